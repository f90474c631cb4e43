package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is what the API server and the Deployments' controller do when somebody restarts a Deployment. Its strategy
// is Recreate: the old pod is gone before the next one starts.

// deploymentSeen is how long the controller takes to notice a change.
const deploymentSeen = 20 * time.Millisecond

// deployment is a workload's Deployment with its status.
func (w *World) deployment(d *workload) appsv1.Deployment {
	out := d.object()
	out.Status.ObservedGeneration = d.observed
	if p := w.podOf(d); p != nil {
		out.Status.Replicas = 1
		if p.revision == d.generation {
			out.Status.UpdatedReplicas = 1
		}
		if p.state == storage.PodReady {
			out.Status.ReadyReplicas, out.Status.AvailableReplicas = 1, 1
		}
	}
	return out
}

func (w *World) deploymentNamed(name string) *workload {
	for _, d := range w.workloads {
		if d.name() == name && !d.bare {
			return d
		}
	}
	return nil
}

func (a deploymentsAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *appsv1.Deployment, err error) {
	err = a.server.ask(ctx, "read Deployment", func() error {
		d := a.server.deploymentNamed(name)
		if d == nil {
			return kubeapi.NotFound("deployments", name)
		}
		x := a.server.deployment(d)
		out = &x
		return nil
	})
	return out, err
}

// Patch knows changes of annotations, of the Deployment and of its pods, and of their image.
func (a deploymentsAPI) Patch(
	ctx context.Context, name string, _ types.PatchType, data []byte, o metav1.PatchOptions, _ ...string,
) (*appsv1.Deployment, error) {
	var patch struct {
		Metadata struct {
			UID         string            `json:"uid"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec *struct {
			Template struct {
				Metadata struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
				Spec struct {
					Containers []corev1.Container `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("the simulated API server does not understand the patch %s: %w", data, err)
	}
	err := a.server.ask(ctx, "annotate Deployment", func() error {
		d := a.server.deploymentNamed(name)
		switch {
		case d == nil:
			return kubeapi.NotFound("deployments", name)
		case patch.Metadata.UID != "" && patch.Metadata.UID != d.name():
			return kubeapi.Conflict("deployments", name)
		case len(o.DryRun) > 0:
			return nil
		}
		d.annotations = with(d.annotations, patch.Metadata.Annotations)
		if patch.Spec != nil {
			image := d.image
			for _, c := range patch.Spec.Template.Spec.Containers {
				image = c.Image
			}
			if image != d.image && a.server.user == byUs {
				a.server.judgeVersion(a.server.osdOf(d), image)
			}
			a.server.restart(d, patch.Spec.Template.Metadata.Annotations, image)
		}
		a.server.tellWatcher()
		return nil
	})
	return &appsv1.Deployment{}, err
}

// with is a map with some of another one's entries.
func with(m, more map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}

// restart changes the annotations and the image of a Deployment's pods, so that it makes another one.
func (w *World) restart(d *workload, annotations map[string]string, image string) {
	next := with(d.template, annotations)
	if maps.Equal(next, d.template) && image == d.image {
		return
	}
	if image != d.image {
		w.tell("%s gets image %s", d.name(), image)
	}
	d.template, d.image = next, image
	d.generation++
	this := d.generation
	w.tell("%s is restarted", d.name())
	if p := w.podOf(d); p != nil {
		w.judgeStop(p)
	}
	w.later(deploymentSeen, func() {
		if d.observed = d.generation; d.generation != this {
			return
		}
		if p := w.podOf(d); p != nil && p.revision != this {
			w.remove(p)
		}
		w.tellWatcher()
	})
}

// Restarts is how often the OSDs' Deployments were restarted, all together.
func (w *World) Restarts() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.workloads {
		n += int(d.generation - 1)
	}
	return n
}
