package sim

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

type nodesAPI struct {
	coreclient.NodeInterface
	server server
}

func (a nodesAPI) List(ctx context.Context, o metav1.ListOptions) (out *corev1.NodeList, err error) {
	out = &corev1.NodeList{}
	err = a.server.ask(ctx, "list nodes", func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil {
			return err
		}
		for _, name := range a.server.names {
			n := a.server.nodes[name]
			if x := n.object(); !n.gone && matches(x.Labels, fields.Set{metav1.ObjectNameField: name}) {
				out.Items = append(out.Items, x)
			}
		}
		return nil
	})
	return out, err
}

func (a nodesAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *corev1.Node, err error) {
	err = a.server.ask(ctx, "read node", func() error {
		n := a.server.nodes[name]
		if n == nil || n.gone {
			return kubeapi.NotFound("nodes", name)
		}
		if a.server.user == byUs {
			n.lookedAt = time.Now()
		}
		x := n.object()
		out = &x
		return nil
	})
	return out, err
}

// Patch knows the one that cordons.
func (a nodesAPI) Patch(
	ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.Node, error) {
	var p struct {
		Spec struct {
			Unschedulable bool `json:"unschedulable"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	err := a.server.ask(ctx, "cordon", func() error {
		if n := a.server.nodes[name]; n == nil || n.gone {
			return kubeapi.NotFound("nodes", name)
		}
		a.server.cordon(name, p.Spec.Unschedulable, a.server.user)
		return nil
	})
	return &corev1.Node{}, err
}

// Watch tells of one node, from now on.
func (a nodesAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return nil, err
	}
	name, _ := f.RequiresExactMatch(metav1.ObjectNameField)
	var last activities.NodeState
	err = a.server.ask(ctx, "watch node", func() error { last = a.server.nodeState(name); return nil })
	if err != nil {
		return nil, err
	}
	return kubeapi.Watch(ctx, func(ctx context.Context) []watch.Event {
		e := watch.Event{Type: watch.Deleted, Object: &corev1.Node{}}
		changed := a.server.await(ctx, func() bool {
			now := a.server.nodeState(name)
			if reflect.DeepEqual(now, last) {
				return false
			}
			if last = now; now.Found {
				x := a.server.nodes[name].object()
				e = watch.Event{Type: watch.Modified, Object: &x}
			}
			return true
		})
		if !changed {
			return nil
		}
		return []watch.Event{e}
	}), nil
}

func (w *World) nodeState(name string) activities.NodeState {
	n := w.nodes[name]
	if n == nil || n.gone {
		return activities.NodeState{}
	}
	x := n.object()
	return kube.StateOf(&x, time.Now())
}
