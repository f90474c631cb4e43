package autoscaler

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

// removalTaint is on a node that the autoscaler is about to remove.
const removalTaint = "ToBeDeletedByClusterAutoscaler"

// event is what happens to a node.
type event string

const (
	appeared event = "appeared"
	tainted  event = "tainted"
	rolled   event = "rolled back"
	gone     event = "gone"
)

type entry struct {
	at   time.Time
	node string
	event
}

// journal is what has happened to the nodes.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

// follow watches the nodes until the test ends.
func follow(t *testing.T, c kubernetes.Interface) *journal {
	t.Helper()
	j := &journal{}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	factory := informers.NewSharedInformerFactory(c, 0)
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { j.add(o.(*corev1.Node).Name, appeared) },
		UpdateFunc: func(old, now any) {
			before, after := old.(*corev1.Node), now.(*corev1.Node)
			switch {
			case !leaving(before) && leaving(after):
				j.add(after.Name, tainted)
			case leaving(before) && !leaving(after):
				j.add(after.Name, rolled)
			}
		},
		DeleteFunc: func(o any) {
			if n, ok := o.(*corev1.Node); ok {
				j.add(n.Name, gone)
			}
		},
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return j
}

func leaving(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == removalTaint {
			return true
		}
	}
	return false
}

func (j *journal) add(node string, e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{time.Now(), node, e})
}

// when tells when something first happened to a node; zero: it did not.
func (j *journal) when(node string, e event) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.entries {
		if entry.node == node && entry.event == e {
			return entry.at
		}
	}
	return time.Time{}
}

// has tells whether something ever happened to a node.
func (j *journal) has(node string, e event) bool { return !j.when(node, e).IsZero() }

// between tells how long after one event another first happened to a node.
func (j *journal) between(node string, first, second event) time.Duration {
	return j.when(node, second).Sub(j.when(node, first)).Round(time.Millisecond)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for _, e := range j.entries {
		lines = append(lines, fmt.Sprintf("%s %s %s", e.at.Format("15:04:05.000"), e.node, e.event))
	}
	return strings.Join(lines, "\n")
}
