package starter

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// MonSnapshot is what matters to the job of a CephMon of everything that Kubernetes knows. That a mon is out of quorum
// only Ceph knows: the keeper's watch tells of it.
type MonSnapshot struct {
	UID        types.UID
	Generation int64
	// Looked: a job has seen this generation, and left no step under way.
	Looked bool
	// Mons are the names that Deployments have, Nodes those of nodes with the reason why one can take no mon.
	Mons  []string
	Nodes map[string]string
	// Policy tells whether the policy is there.
	Policy bool
}

const cordoned = "is cordoned"

// DecideMons compares two snapshots of a CephMon, and says why its job has to look; "" when there is nothing that it
// would not see by itself. before is nil for one that was not watched until now.
func DecideMons(before *MonSnapshot, now MonSnapshot) (reason string) {
	c := &change{}
	switch {
	case before == nil || before.UID != now.UID:
		c.add("the watcher started") // one look, which finds nothing as a rule
		return firstOf(c.reasons)
	case now.Generation != before.Generation:
		c.add("the spec changed")
	case now.Policy && !before.Policy:
		c.add("its MaintenancePolicy is there")
	}
	for _, mon := range before.Mons {
		if !slices.Contains(now.Mons, mon) && now.Looked {
			c.add("the Deployment of mon.%s is gone", mon)
		}
	}
	for _, node := range sortedKeys(before.Nodes) {
		if why, there := now.Nodes[node]; !there {
			c.add("node %s is gone", node)
		} else if why == "" && before.Nodes[node] != "" {
			c.add("node %s is in service again", node)
		} else if why == cordoned && before.Nodes[node] != cordoned {
			c.add("node %s is cordoned", node) // the status notes which mons are there, before they are evicted
		}
	}
	for _, node := range sortedKeys(now.Nodes) {
		if _, was := before.Nodes[node]; !was {
			c.add("node %s is there", node)
		}
	}
	return firstOf(c.reasons)
}

// TakeMons makes a snapshot.
func TakeMons(
	m *v1alpha1.CephMon, p *v1alpha1.MaintenancePolicy, ds []appsv1.Deployment, ns []corev1.Node,
) MonSnapshot {
	s := MonSnapshot{
		UID: m.UID, Generation: m.Generation, Policy: p != nil, Nodes: map[string]string{},
		Looked: m.Status.ObservedGeneration == m.Generation && m.Status.Step == nil,
	}
	for i := range ds {
		if name := ds[i].Spec.Template.Labels[kube.MonLabel]; name != "" && strings.HasPrefix(ds[i].Name, "rook-ceph-mon-") {
			s.Mons = append(s.Mons, name)
		}
	}
	slices.Sort(s.Mons)
	for i := range ns {
		why := ""
		if !kube.NodeReady(&ns[i]) {
			why = "is not ready"
		}
		if ns[i].Spec.Unschedulable {
			why = cordoned
		}
		s.Nodes[ns[i].Name] = why
	}
	return s
}

// MonReconciler compares what is with what was, one CephMon at a time, and tells its job, or starts it.
type MonReconciler struct {
	Objects  client.Reader // a cache
	Temporal Temporal
	Log      logr.Logger

	cephMons sync.Map // of *cephMon by types.NamespacedName
}

// cephMon is what the watcher remembers of one. Its key is reconciled by one goroutine at a time.
type cephMon struct {
	seen    *MonSnapshot
	pending string // why its job has to be told, and was not yet
}

// Reconcile takes a snapshot and tells the job what has changed. What could not be told is kept, and the error makes
// the queue come back to it.
func (r *MonReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now, err := r.take(ctx, req)
	if apierrors.IsNotFound(err) {
		if _, known := r.cephMons.LoadAndDelete(req.NamespacedName); known {
			// A job that runs takes back what it has begun; one that does not ends at once.
			return reconcile.Result{}, r.Temporal.SignalMons(ctx, req.Namespace, req.Name, "the CephMon is deleted")
		}
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	known, _ := r.cephMons.LoadOrStore(req.NamespacedName, &cephMon{})
	f := known.(*cephMon)
	f.pending = joinReasons(f.pending, DecideMons(f.seen, now))
	f.seen = &now
	if f.pending == "" {
		return reconcile.Result{}, nil
	}
	if err := r.Temporal.SignalMons(ctx, req.Namespace, req.Name, f.pending); err != nil {
		return reconcile.Result{}, err
	}
	r.Log.Info("told who looks after the mons", "cephMon", req.String(), "reason", f.pending)
	f.pending = ""
	return reconcile.Result{}, nil
}

// take reads from the cache, without a copy.
func (r *MonReconciler) take(ctx context.Context, req reconcile.Request) (MonSnapshot, error) {
	var m v1alpha1.CephMon
	if err := r.Objects.Get(ctx, req.NamespacedName, &m); err != nil {
		return MonSnapshot{}, err
	}
	p := &v1alpha1.MaintenancePolicy{}
	err := r.Objects.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: m.Spec.Policy}, p)
	if apierrors.IsNotFound(err) {
		p, err = nil, nil
	}
	if err != nil {
		return MonSnapshot{}, err
	}
	var deployments appsv1.DeploymentList
	if err := r.Objects.List(ctx, &deployments, client.InNamespace(req.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return MonSnapshot{}, fmt.Errorf("list Deployments in the cache: %w", err)
	}
	var nodes corev1.NodeList
	if err := r.Objects.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return MonSnapshot{}, fmt.Errorf("list Nodes in the cache: %w", err)
	}
	return TakeMons(&m, p, deployments.Items, nodes.Items), nil
}

// mattersToMons tells whether an update may change a snapshot of a CephMon: its own status does not.
func mattersToMons(before, now client.Object) bool {
	switch now.(type) {
	case *v1alpha1.CephMon:
		was, ok := before.(*v1alpha1.CephMon)
		is := now.(*v1alpha1.CephMon)
		return !ok || was.Generation != is.Generation || (was.Status.Step == nil) != (is.Status.Step == nil)
	case *v1alpha1.MaintenancePolicy:
		return false // only that it is there is in the snapshot
	default:
		return !reflect.DeepEqual(unversioned(before), unversioned(now))
	}
}
