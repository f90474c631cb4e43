package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/deploy"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestInstanceManagersWait: in Longhorn's namespace the guard keeps instance managers as the budgets do. Longhorn's own
// manager replaces those in which nothing runs, as its account may.
func TestInstanceManagersWait(t *testing.T) {
	const may, mayNot = true, false
	w := newLonghornGuardWorld(t, "longhorn-guarded")
	longhorns := account(w.ns, "longhorn-service-account")
	w.pod("im-a", instanceManager("node-a"))
	w.pod("im-b", instanceManager("node-b"))
	w.pod("proved", instanceManager("node-a"), labelled("lockkeeper.io/proved", "any"))
	w.pod("engine", labelled("longhorn.io/component", "engine-image"))
	for name, c := range map[string]struct {
		by  who
		pod string
		may bool
	}{
		"a person":                          {person, "im-a", mayNot},
		"a person, where the node is open":  {person, "im-b", may},
		"a person, a spare one":             {person, "proved", mayNot},
		"a person, what has no budget":      {person, "engine", may},
		"Longhorn's manager":                {longhorns, "im-a", may},
		"Longhorn's manager, a spare one":   {longhorns, "proved", may},
		"its account of another namespace":  {account("elsewhere", "longhorn-service-account"), "im-a", mayNot},
		"another account":                   {account(w.ns, "longhorn-support-bundle"), "im-a", mayNot},
		"the generic garbage collector":     {own("generic-garbage-collector"), "im-a", mayNot},
		"Karpenter, at the end of its time": {account("kube-system", "karpenter"), "im-a", mayNot},
		"kubectl drain --disable-eviction":  {who{user: "somebody", groups: []string{"system:masters"}}, "im-a", mayNot},
		"lockkeeper's worker":               {theWorker, "im-a", may},
	} {
		t.Run(name, func(t *testing.T) {
			says, no := refused(t, w.try(c.by, c.pod))
			require.Equal(t, c.may, !no, says)
		})
	}
}

func instanceManager(node string) podOption {
	return func(p *corev1.Pod) {
		labelled("longhorn.io/component", "instance-manager", "longhorn.io/node", node)(p)
		containers("instance-manager", running)(p)
	}
}

// newLonghornGuardWorld is a guarded namespace with a Longhorn policy, of which node-b is open.
func newLonghornGuardWorld(t *testing.T, ns string) guardWorld {
	t.Helper()
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	applyText(t, deploy.GuardDeletions, "")
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	for _, file := range []string{"storage-namespace.yaml", "storage-namespace-longhorn.yaml"} {
		apply(t, filepath.Join(*root, "deploy", file), ns)
	}
	writer, err := os.ReadFile(filepath.Join(*root, "deploy", "longhorn", "one-writer.yaml"))
	require.NoError(t, err)
	applyText(t, []byte(strings.ReplaceAll(string(writer), "longhorn-system", ns)), "")
	made := policy(t, guarding, `{longhorn: {}}`)
	made.SetNamespace(ns)
	create(t, made)
	w := guardWorld{T: t, ns: ns}
	w.bind("Deny")
	w.worker, err = kube.New(asAccount(config, "lockkeeper-worker"))
	require.NoError(t, err)
	open := budget.Spec{MinAvailable: budget.Everything, Key: "longhorn.io/node", Except: []string{"node-b"}}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, w.tryBudgets(budget.Specs{Daemons: open, Unproved: &open}))
	}, apiserver.Patience, 20*time.Millisecond)
	w.pod("probe", instanceManager("node-x"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Error(c, w.try(person, "probe"))
	}, apiserver.Patience, 20*time.Millisecond)
	return w
}
