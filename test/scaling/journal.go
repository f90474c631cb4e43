package scaling

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Event is what happens to a node.
type Event string

// The events.
const (
	Appeared Event = "appeared"
	Tainted  Event = "tainted"
	Rolled   Event = "rolled back"
	Deleted  Event = "deleted" // and still there, because of its finalizer
	Gone     Event = "gone"
)

type entry struct {
	at   time.Time
	node string
	Event
}

// Journal is what has happened to the nodes.
type Journal struct {
	taint   string
	mu      sync.Mutex
	entries []entry
}

// Follow watches the nodes until the test ends. taint is the key of the taint by which an autoscaler says that it is
// about to remove a node.
func Follow(t *testing.T, c kubernetes.Interface, taint string) *Journal {
	t.Helper()
	j := &Journal{taint: taint}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	factory := informers.NewSharedInformerFactory(c, 0)
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { j.add(o.(*corev1.Node).Name, Appeared) },
		UpdateFunc: func(old, now any) { j.compare(old.(*corev1.Node), now.(*corev1.Node)) },
		DeleteFunc: func(o any) {
			if n, ok := o.(*corev1.Node); ok {
				j.add(n.Name, Gone)
			}
		},
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return j
}

func (j *Journal) compare(before, after *corev1.Node) {
	switch {
	case !j.leaving(before) && j.leaving(after):
		j.add(after.Name, Tainted)
	case j.leaving(before) && !j.leaving(after):
		j.add(after.Name, Rolled)
	}
	if before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
		j.add(after.Name, Deleted)
	}
}

func (j *Journal) leaving(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == j.taint {
			return true
		}
	}
	return false
}

func (j *Journal) add(node string, e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{time.Now(), node, e})
}

// When tells when something first happened to a node; zero: it did not.
func (j *Journal) When(node string, e Event) time.Time { return j.After(time.Time{}, node, e) }

// After tells when something first happened to a node since then; zero: it did not.
func (j *Journal) After(since time.Time, node string, e Event) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.entries {
		if entry.node == node && entry.Event == e && !entry.at.Before(since) {
			return entry.at
		}
	}
	return time.Time{}
}

// Has tells whether something ever happened to a node.
func (j *Journal) Has(node string, e Event) bool { return !j.When(node, e).IsZero() }

// Between tells how long after one event another first happened to a node.
func (j *Journal) Between(node string, first, second Event) time.Duration {
	return j.When(node, second).Sub(j.When(node, first)).Round(time.Millisecond)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for _, e := range j.entries {
		lines = append(lines, fmt.Sprintf("%s %s %s", e.at.Format("15:04:05.000"), e.node, e.Event))
	}
	return strings.Join(lines, "\n")
}
