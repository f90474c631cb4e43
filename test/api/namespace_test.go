package api

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestDeletedNamespaceEnds: `kubectl delete namespace` deletes what is in a namespace in any order. Whatever the worker
// may no longer do, the policy's finalizer goes, and what is left in Ceph is told outside of the namespace.
func TestDeletedNamespaceEnds(t *testing.T) {
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	vanish := map[string]func(t *testing.T, ns string){
		"rights": func(t *testing.T, ns string) { remove(t, &rbacv1.RoleBinding{}, ns, "lockkeeper-worker-storage") },
		"secret": func(t *testing.T, ns string) { remove(t, &corev1.Secret{}, ns, "lockkeeper-ceph-user") },
		"mons":   func(t *testing.T, ns string) { remove(t, &corev1.ConfigMap{}, ns, "lockkeeper-mon-endpoints") },
	}
	for name, c := range map[string]struct {
		before []string // what is gone before the keeper looks
		ceph   bool     // answers
		told   bool
	}{
		"ns-all-there": {nil, true, false},
		// a worker that is not connected yet cannot read the Secret any more
		"ns-rights-first": {[]string{"rights"}, true, true},
		"ns-secret-first": {[]string{"secret"}, true, true},
		"ns-mons-first":   {[]string{"mons", "rights"}, true, true},
		"ns-ceph-first":   {nil, false, true},
		"ns-all-gone":     {[]string{"secret", "rights", "mons"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := storage.ClusterKey{Namespace: name, Name: "ceph"}
			create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			apply(t, filepath.Join(*root, "deploy", "storage-namespace.yaml"), name)
			create(t, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "lockkeeper-ceph-user"},
				StringData: map[string]string{"userID": "lockkeeper", "userKey": "x"},
			})
			create(t, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "lockkeeper-mon-endpoints"},
				Data:       map[string]string{"data": "a=127.0.0.1:6789"},
			})
			p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{
				Namespace: name, Name: "ceph",
				Finalizers: []string{kube.Finalizer},
			}}
			p.Spec.Ceph = &v1alpha1.CephSpec{}
			p.Spec.Ceph.Connection.MonEndpoints = v1alpha1.KeyReference{Name: "lockkeeper-mon-endpoints", Key: "data"}
			p.Spec.Ceph.Connection.Credentials.Name = "lockkeeper-ceph-user"
			p.Spec.Ceph.Connection.Credentials.UserKey, p.Spec.Ceph.Connection.Credentials.SecretKey = "userID", "userKey"
			create(t, p)
			p.Status.Noout = []v1alpha1.NooutStatus{{
				Host: "node-a", HostID: -3, Owner: "drain/node-a", Since: metav1.Now(),
				Expires: metav1.NewTime(time.Now().Add(time.Hour)), Confirmed: true,
			}}
			require.NoError(t, server.Status().Update(t.Context(), p))

			// No namespace controller runs here: the test deletes what it would.
			require.NoError(t, server.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
			require.NoError(t, server.Delete(t.Context(), p))
			for _, what := range c.before {
				vanish[what](t, name)
			}
			ceph := &farewellCeph{answers: c.ceph}
			result := retires(t, key, ceph)
			err := server.Get(t.Context(), client.ObjectKeyFromObject(p), p)
			require.True(t, apierrors.IsNotFound(err), "the policy is gone: %v, %+v", err, p.Finalizers)
			require.Equal(t, c.told, len(result.Left) > 0, "%+v", result)
			require.Equal(t, !c.told, ceph.unset)
			var events corev1.EventList
			require.NoError(t, server.List(t.Context(), &events, client.InNamespace("default")))
			told := false
			for _, e := range events.Items {
				if e.InvolvedObject.Kind == "Namespace" && e.InvolvedObject.Name == name {
					told = true
					require.Contains(t, e.Message, "ceph osd unset-group noout node-a")
				}
			}
			require.Equal(t, c.told, told)
		})
	}
}

func remove(t *testing.T, o client.Object, namespace, name string) {
	t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	require.NoError(t, server.Delete(t.Context(), o))
}

// retires runs a keeper, with the worker's own rights, until it ends. Time passes as soon as everybody waits.
func retires(t *testing.T, key storage.ClusterKey, ceph cephcluster.Dialer) (result workflows.KeeperResult) {
	t.Helper()
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:lockkeeper-system:lockkeeper-worker",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	k, err := kube.New(as)
	require.NoError(t, err)
	var suite testsuite.WorkflowTestSuite
	env := unhurried.Environment(&suite)
	env.SetStartWorkflowOptions(temporal.StartWorkflowOptions{ID: workflows.KeeperID(key), TaskQueue: workflows.TaskQueue})
	env.RegisterActivityWithOptions(&activities.Keeper{Policies: k, Budgets: k, Clusters: cephcluster.New(k, ceph)},
		activity.RegisterOptions{})
	env.ExecuteWorkflow(workflows.Keeper, workflows.KeeperInput{Cluster: key})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.NoError(t, env.GetWorkflowResult(&result))
	return result
}

// farewellCeph is a Ceph that does as it is told, or does not answer.
type farewellCeph struct{ answers, unset bool }

func (c *farewellCeph) Dial(context.Context, cephcluster.Address) (cephcluster.Conn, error) {
	return c, nil
}

func (c *farewellCeph) Close() {}

func (c *farewellCeph) MonCommand(_ context.Context, command []byte) ([]byte, string, error) {
	if !c.answers {
		return nil, "", errors.New("no mon answers")
	}
	c.unset = true
	return nil, "", nil
}
