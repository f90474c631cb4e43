package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestAStatusThatNobodyKeeps: the keeper confirms, the watcher disowns, the keeper overwrites; with the rights and the
// admission policy that are shipped, and as kubectl prints it.
func TestAStatusThatNobodyKeeps(t *testing.T) {
	w := newBudgetWorld(t, "kept")
	apply(t, *root+"/deploy/rbac.yaml", "")
	apply(t, *root+"/deploy/admission.yaml", "")
	apply(t, *root+"/deploy/storage-namespace.yaml", w.key.Namespace)
	as := func(who string) *kube.Cluster {
		c, err := kube.New(asAccount(config, who))
		require.NoError(t, err)
		return c
	}
	keeper, watcher := as("lockkeeper-worker"), as("lockkeeper-watcher")
	read := func() *v1alpha1.MaintenancePolicy {
		p, err := w.cluster.MaintenancePolicy(t.Context(), w.key)
		require.NoError(t, err)
		return p
	}
	began := time.Now().Add(-12 * time.Minute)
	report := activities.Report{
		Generation: 1, Since: began, AsOf: began, MayDrain: "any node", Keeper: "keeper/a/b",
		Decision: budget.Decision{
			Mode: budget.ModeDefault, Reason: budget.ReasonClean,
			Message: "one OSD may be disrupted anywhere",
		},
		Memory: activities.Memory{Lease: lease.State{
			Token: 7,
			Holders: []lease.Claim{{
				WorkflowID: "drain/a", RunID: "1", Domain: storage.FailureDomain{Type: "zone", Name: "x"},
				Granted: began,
			}},
		}},
	}
	require.NoError(t, keeper.ReportStatus(t.Context(), w.key, report))
	none := storage.ClusterKey{Namespace: w.key.Namespace, Name: "none"}
	require.ErrorIs(t, keeper.ReportStatus(t.Context(), none, report), activities.ErrNotFound, "nothing was written down")
	cells := printed(t, w.key)
	assert.Equal(t, "any node", cells["May Drain"])
	assert.Equal(t, "12m", cells["As Of"])

	now := time.Now()
	differs, err := keeper.RenewStatus(t.Context(), w.key, activities.Renewal{MayDrain: "any node", AsOf: now})
	require.NoError(t, err)
	require.False(t, differs)
	require.WithinDuration(t, now, read().Status.AsOf.Time, time.Second)
	require.True(t, meta.IsStatusConditionTrue(read().Status.Conditions, v1alpha1.ConditionKept))

	// Who writes by what was read before loses, and nothing is changed.
	stale := read()
	_, err = keeper.RenewStatus(t.Context(), w.key, activities.Renewal{MayDrain: "any node", AsOf: now.Add(time.Minute)})
	require.NoError(t, err)
	require.True(t, apierrors.IsConflict(watcher.Disown(t.Context(), stale, now, "no worker answers")))
	require.Equal(t, "any node", read().Status.MayDrain)

	require.NoError(t, watcher.Disown(t.Context(), read(), now, "no worker answers"))
	cells = printed(t, w.key)
	assert.Equal(t, kube.NotKept, cells["May Drain"])
	assert.Contains(t, cells["Why"], "no worker answers")
	assert.Contains(t, cells["Why"], `the last word was "any node"`)
	p := read()
	require.True(t, kube.Disowned(p.Status))
	require.Equal(t, int64(7), p.Status.Lease.Token, "the keeper's memory stays")
	require.Len(t, p.Status.Lease.Holders, 1)
	require.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionDisruptionAllowed),
		"its conditions, too")

	differs, err = keeper.RenewStatus(t.Context(), w.key, activities.Renewal{MayDrain: "any node", AsOf: now})
	require.NoError(t, err)
	require.True(t, differs)
	report.AsOf = now
	require.NoError(t, keeper.ReportStatus(t.Context(), w.key, report))
	require.False(t, kube.Disowned(read().Status))

	gone := read()
	gone.Name = "gone"
	require.NoError(t, watcher.Disown(t.Context(), gone, now, "?"))
	_, err = keeper.RenewStatus(t.Context(), storage.ClusterKey{Namespace: w.key.Namespace, Name: "gone"},
		activities.Renewal{MayDrain: "no", AsOf: now})
	require.NoError(t, err)
}

// TestTheWatcherMayOnlyDisown: by the admission policy that is shipped.
func TestTheWatcherMayOnlyDisown(t *testing.T) {
	w := newBudgetWorld(t, "disown")
	apply(t, *root+"/deploy/rbac.yaml", "")
	apply(t, *root+"/deploy/admission.yaml", "")
	apply(t, *root+"/deploy/storage-namespace.yaml", w.key.Namespace)
	now := time.Now()
	require.NoError(t, w.cluster.ReportStatus(t.Context(), w.key,
		activities.Report{
			Generation: 1, Since: now, AsOf: now, MayDrain: "no", Keeper: "keeper/a/b",
			Decision: budget.Decision{Mode: budget.ModeClosed, Reason: "A", Message: "b"},
		}))
	watcher, err := client.New(asAccount(config, "lockkeeper-watcher"), client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	patch := func(text string, opts ...client.SubResourcePatchOption) error {
		o := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: w.key.Name}}
		return watcher.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)), opts...)
	}
	// A policy takes effect a moment after it was made. A patch that went through before would be none the next time.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ErrorContains(c, patch(`{"status":{"mayDrain":"any node"}}`, client.DryRunAll), "ValidatingAdmissionPolicy")
	}, apiserver.Patience, 100*time.Millisecond)
	for name, text := range map[string]string{
		"all is well":             `{"status":{"mayDrain":"any node","reason":"NotKept"}}`,
		"another reason":          `{"status":{"mayDrain":"unknown: ?","reason":"Clean"}}`,
		"the lease":               `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","lease":{"token":9}}}`,
		"as of now":               `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","asOf":"2026-01-01T00:00:00Z"}}`,
		"noout":                   `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","noout":[{"host":"a","owner":"b","expires":"2026-01-01T00:00:00Z"}]}}`,
		"nothing any more":        `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","storage":null}}`,
		"no conditions":           `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","conditions":null}}`,
		"another condition":       `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","conditions":[{"type":"Protected","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"that the keeper is back": `{"status":{"mayDrain":"unknown: ?","reason":"NotKept","conditions":[{"type":"Kept","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
	} {
		require.ErrorContains(t, patch(text), "ValidatingAdmissionPolicy", name)
	}
	var p v1alpha1.MaintenancePolicy
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: w.key.Namespace, Name: w.key.Name}, &p))
	restricted, err := kube.New(asAccount(config, "lockkeeper-watcher"))
	require.NoError(t, err)
	require.NoError(t, restricted.Disown(t.Context(), &p, now, "a test"))
}

// printed are the columns of kubectl get, as the API server fills them in.
func printed(t *testing.T, key storage.ClusterKey) map[string]string {
	t.Helper()
	cfg := rest.CopyConfig(config)
	cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &v1alpha1.GroupVersion, "/apis",
		scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	require.NoError(t, err)
	raw, err := c.Get().Namespace(key.Namespace).Resource("maintenancepolicies").Name(key.Name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(context.Background()).Raw()
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	out := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		text, _ := table.Rows[0].Cells[i].(string)
		out[column.Name] = strings.TrimSpace(text)
	}
	return out
}

// counted counts the requests by method.
type counted struct {
	http.RoundTripper
	methods []string
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.methods = append(c.methods, r.Method)
	return c.RoundTripper.RoundTrip(r)
}

// TestAStatusIsWrittenUponTheLastOne: nobody reads it before, unless somebody else has written; and what they wrote
// stays.
func TestAStatusIsWrittenUponTheLastOne(t *testing.T) {
	w := newBudgetWorld(t, "upon")
	var wire *counted
	cfg := rest.CopyConfig(config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { wire = &counted{RoundTripper: next}; return wire })
	keeper, err := kube.New(cfg)
	require.NoError(t, err)
	report := func(says string) []string {
		wire.methods = nil
		require.NoError(t, keeper.ReportStatus(t.Context(), w.key, activities.Report{
			Generation: 1, Since: time.Now(), AsOf: time.Now(), MayDrain: says, Keeper: "keeper/a/b",
			Decision: budget.Decision{Mode: budget.ModeDefault, Reason: budget.ReasonClean, Message: "it says " + says},
		}))
		return wire.methods
	}
	read := func() *v1alpha1.MaintenancePolicy {
		p, err := w.cluster.MaintenancePolicy(t.Context(), w.key)
		require.NoError(t, err)
		return p
	}
	report("first") // what the API server can is asked once for each client
	assert.Equal(t, []string{http.MethodPut}, report("second"))
	require.NoError(t, w.cluster.Disown(t.Context(), read(), time.Now(), "no worker answers"))
	assert.Equal(t, []string{http.MethodPut, http.MethodGet, http.MethodPut}, report("third"))
	assert.Equal(t, []string{http.MethodPut}, report("fourth"))
	assert.Equal(t, "fourth", read().Status.MayDrain)

	other := read()
	other.Annotations = map[string]string{"of": "a person"}
	_, api := w.cluster.Clients()
	require.NoError(t, api.Update(t.Context(), other))
	report("fifth")
	assert.Equal(t, "fifth", read().Status.MayDrain)
	assert.Equal(t, "a person", read().Annotations["of"])
}
