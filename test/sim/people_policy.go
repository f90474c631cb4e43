package sim

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what persons do to policies, and to what policies name.

// ChangePolicy changes the policy's spec.
func (w *World) ChangePolicy(what string, change func(*v1alpha1.CephSpec)) {
	w.happens(func() {
		if w.policy == nil {
			return
		}
		w.tell("a person changes the policy: %s", what)
		next := w.policy.DeepCopy()
		change(next.Spec.Ceph)
		if m := next.Spec.Ceph.ManagePodBudgets; m != nil && !*m {
			w.guarding = time.Time{}
		}
		w.putPolicy(next)
		w.tellWatcher()
	})
}

// Edition tells a policy from the same one before an edit. "": there is none.
func (w *World) Edition() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil {
		return ""
	}
	return fmt.Sprint(w.policy.UID, " ", w.policy.Generation)
}

// Manage switches managePodBudgets.
func (w *World) Manage(on bool) {
	w.ChangePolicy(fmt.Sprintf("managePodBudgets: %t", on), func(s *v1alpha1.CephSpec) { s.ManagePodBudgets = &on })
}

// AnotherPolicy creates a policy of the same storage cluster that counts as the older one, or deletes it. Its keeper
// has claimed the storage cluster, and keeps everything closed as soon as it may make budgets.
func (w *World) AnotherPolicy(exists bool) {
	w.happens(func() {
		if !exists && w.older == nil {
			return
		}
		w.tell("another policy: %t", exists)
		w.foreseeRelease(w.opts.Reaction / 4)
		if w.older != nil { // its keeper holds it until it writes nothing any more
			at := now()
			w.older.DeletionTimestamp, w.guarding = &at, time.Time{}
		}
		if exists && w.older == nil && w.policy != nil {
			w.older = w.policy.DeepCopy()
			w.older.Name, w.older.UID, w.older.Finalizers, w.older.DeletionTimestamp = olderName, "older", nil, nil
			w.older.Status = v1alpha1.MaintenancePolicyStatus{Ceph: &v1alpha1.CephClusterStatus{FSID: w.fsid, Claimed: true}}
			go w.keepClosed(w.older)
		}
		w.tellWatcher()
	})
}

// succeeded tells whether the other policy's keeper makes budgets over what this one's guarded.
func (w *World) succeeded() bool {
	stays := func(p *v1alpha1.MaintenancePolicy) bool { return p != nil && p.DeletionTimestamp == nil }
	return stays(w.older) && kube.Settings(&w.older.Spec).ManagePodBudgets && stays(w.policy) &&
		w.policy.Status.Ceph != nil && w.policy.Status.Ceph.FSID == w.older.Status.Ceph.FSID
}

// olderName is the other policy of the namespace.
const olderName = "a-first"

// keepClosed is the keeper of the other policy: what it may write is closed.
func (w *World) keepClosed(p *v1alpha1.MaintenancePolicy) {
	closed := budget.Spec{MinAvailable: budget.Everything}
	for {
		time.Sleep(w.opts.Reaction / 8)
		var over bool
		w.happens(func() { over = w.end.Err() != nil || w.dropOlder() })
		if over {
			return
		}
		key := storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}
		// What fails is tried again.
		_, _ = w.Kubernetes().ApplyBudgets(w.end, activities.BudgetInput{
			Cluster: key, Specs: budget.Specs{Daemons: closed, Unproved: &closed, Mons: &closed},
		})
		_, _ = w.Kubernetes().ApplyStaticBudgets(w.end, activities.StaticBudgetsInput{Cluster: key})
	}
}

// dropOlder ends the other policy, if it is deleted and its keeper writes nothing, with what it owned.
func (w *World) dropOlder() bool {
	if w.older.DeletionTimestamp == nil {
		return false
	}
	w.tell("the other policy is gone")
	w.foreseeRelease(w.opts.Reaction / 4) // by who has seen it until now, and gives way to it
	uid := w.older.UID
	w.older, w.guarding, w.others = nil, time.Time{}, time.Now()
	w.later(w.opts.Reaction/8, func() { w.collect(uid) })
	w.tellWatcher()
	return true
}

// BudgetsOf names the policies whose budgets there are.
func (w *World) BudgetsOf() (policies []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.budgets {
		if of := b.Labels[kube.LabelPolicy]; of != "" && !slices.Contains(policies, of) {
			policies = append(policies, of)
		}
	}
	slices.Sort(policies)
	return policies
}

// Elsewhere is a policy of another namespace, as its keeper last reported. The keeper is not simulated.
type Elsewhere struct {
	Older   bool // than the World's own policy
	FSID    string
	Claimed bool
}

// PolicyElsewhere creates or changes the policy of another namespace; nil deletes it.
func (w *World) PolicyElsewhere(e *Elsewhere) {
	w.happens(func() {
		if e == nil && w.elsewhere == nil {
			return
		}
		w.elsewhere, w.others = nil, time.Now()
		w.foreseeRelease(w.opts.Reaction / 4)
		if e == nil {
			w.tell("the policy of another namespace is gone")
		} else {
			w.tell("a policy of another namespace: older %t, Ceph %s, claimed %t", e.Older, e.FSID, e.Claimed)
			p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "zoo", Name: "ceph", UID: "elsewhere"}}
			if w.policy != nil {
				p.CreationTimestamp = w.policy.CreationTimestamp
			}
			if e.Older {
				p.Namespace = "a-zoo" // both of the same second
			}
			p.Spec.Ceph = &v1alpha1.CephSpec{}
			if e.FSID != "" {
				p.Status.Ceph = &v1alpha1.CephClusterStatus{FSID: e.FSID, Claimed: e.Claimed}
			}
			w.elsewhere = p
		}
		w.tellWatcher()
	})
}

// AnotherCeph makes the mons that the policy names those of another Ceph cluster, which looks the same.
func (w *World) AnotherCeph(fsid string) {
	w.happens(func() {
		w.tell("the mons are those of another Ceph cluster: %s", fsid)
		w.fsid = fsid
		for host := range w.noout {
			w.noout[host] = byPerson // whoever set it there, it was not lockkeeper
		}
		w.tellWatcher()
	})
}

// Claim is what the policy's status says of its Ceph cluster: "9c0a…, claimed".
func (w *World) Claim() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.policy == nil || w.policy.Status.Ceph == nil:
		return "none"
	case w.policy.Status.Ceph.Claimed:
		return w.policy.Status.Ceph.FSID + ", claimed"
	default:
		return w.policy.Status.Ceph.FSID
	}
}

// LoseClaim takes the claim out of the policy's status, as a worker of an older version does.
func (w *World) LoseClaim() {
	w.happens(func() {
		w.tell("the claim is taken out of the status")
		w.policy.Status.Ceph = nil
		w.versioned()
		w.tellWatcher()
	})
}

// DeletePolicy begins the deletion of the policy; the keeper's finalizer may hold it up.
func (w *World) DeletePolicy() {
	w.happens(func() {
		if w.policy == nil || w.policy.DeletionTimestamp != nil {
			return
		}
		w.tell("a person deletes the policy")
		at := now()
		w.policy.DeletionTimestamp, w.retiring = &at, time.Now()
		w.versioned()
		w.guarding = time.Time{}
		w.dropPolicy()
		w.tellWatcher()
	})
}

// DeleteNamespace begins the deletion of the storage cluster's namespace. Of what is in it only the policy is
// simulated.
func (w *World) DeleteNamespace() {
	w.happens(func() {
		w.tell("a person deletes the namespace")
		w.ending = time.Now()
	})
	w.DeletePolicy()
}

// AnnotatePolicy sets an annotation of the policy.
func (w *World) AnnotatePolicy(key, value string) {
	w.happens(func() {
		if w.policy == nil {
			return
		}
		w.tell("a person annotates the policy: %s=%s", key, value)
		next := w.policy.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
		w.putPolicy(next)
		w.tellWatcher()
	})
}

// TakeFinalizer is a person who lets the policy go by hand.
func (w *World) TakeFinalizer() {
	w.happens(func() {
		w.tell("a person takes the finalizer off the policy")
		next := w.policy.DeepCopy()
		next.Finalizers = nil
		w.putPolicy(next)
		w.tellWatcher()
	})
}

// RestorePolicy creates the policy anew, if it is gone.
func (w *World) RestorePolicy() {
	w.happens(func() {
		if w.policy != nil {
			return
		}
		w.tell("a person creates the policy")
		w.createPolicy(v1alpha1.CephSpec{})
		w.tellWatcher()
	})
}
