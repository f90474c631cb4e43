package api

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestTheWatcherWaitsForTheDefinition of CephOSDs where there is none, and watches them once it is installed.
func TestTheWatcherWaitsForTheDefinition(t *testing.T) {
	t.Parallel()
	crds := filepath.Join(*root, "deploy", "crds")
	all, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	require.NoError(t, err)
	var policies, cephOSDs []string
	for _, path := range all {
		if strings.Contains(path, "cephosds") {
			cephOSDs = append(cephOSDs, path)
		} else {
			policies = append(policies, path)
		}
	}
	require.Len(t, cephOSDs, 1)
	own, err := apiserver.Start(*root, policies...)
	require.NoError(t, err)
	defer func() { require.NoError(t, own.Stop()) }()
	cfg := own.Config

	watcher := startWatcher(t, cfg, starter.Options{Namespace: "later"})
	defer watcher.stop()
	temporal := watcher.told
	time.Sleep(2 * time.Second) // it waits by now; if not, the test shows less, and is no less true
	require.NoError(t, own.Install(cephOSDs...))
	c, err := client.New(cfg, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}))
	u := cephOSD(t, "osds", `{storage: [{hosts: [a], osds: [{data: /dev/sdb}]}]}`)
	u.SetNamespace("later")
	require.NoError(t, c.Create(t.Context(), u))
	require.Eventually(t, func() bool { return len(temporal.all()) > 0 }, apiserver.Patience, 20*time.Millisecond)
	require.Contains(t, temporal.all()[0], "later/osds: generation 1 was not looked at yet")
}
