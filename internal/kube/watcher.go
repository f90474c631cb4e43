package kube

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WatcherLease is the name of the Lease that the leading watcher holds and renews.
const WatcherLease = "lockkeeper-watcher"

// Watcher is what its Lease tells of the watcher.
type Watcher struct {
	Found   bool
	Holder  string
	Renewed time.Time
	Lasts   time.Duration // after which another watcher may take over
}

// Running tells whether a watcher is at work: one that renews its Lease, if not always in time.
func (w Watcher) Running(now time.Time) bool {
	const late = 3
	return w.Found && w.Holder != "" && now.Sub(w.Renewed) < late*max(w.Lasts, time.Second)
}

// Watcher reads the watcher's Lease in a namespace.
func (c *Cluster) Watcher(ctx context.Context, namespace string) (Watcher, error) {
	l, err := c.typed.CoordinationV1().Leases(namespace).Get(ctx, WatcherLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Watcher{}, nil
	}
	if err != nil {
		return Watcher{}, err
	}
	w := Watcher{Found: true}
	if l.Spec.HolderIdentity != nil {
		w.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		w.Renewed = l.Spec.RenewTime.Time
	}
	if l.Spec.LeaseDurationSeconds != nil {
		w.Lasts = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return w, nil
}
