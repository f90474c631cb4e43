package monspec

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// This file changes the Deployment of a mon in place.

// Restart is a patch that gives a mon's Deployment the image and the resources of the spec. Others than lockkeeper may
// have made it: a container beside the mon gets the image if it has the mon's, and keeps its own resources, and so does
// the mon while the spec has none.
func (s Set) Restart(d *appsv1.Deployment) ([]byte, error) {
	hash, err := s.TemplateHash()
	if err != nil {
		return nil, err
	}
	pod := &d.Spec.Template.Spec
	mon := MonContainer(pod)
	if mon == nil {
		return nil, fmt.Errorf("deployment %s has no container", d.Name)
	}
	wants := s.Spec.PodTemplate.Resources
	keeps := d.Spec.Template.Labels[CephMonLabel] == "" && isEmpty(wants)
	patched := func(all []corev1.Container, init bool) (out []map[string]any, err error) {
		for i := range all {
			c := map[string]any{"name": all[i].Name}
			if all[i].Image == mon.Image {
				c["image"] = s.Spec.PodTemplate.Image
			}
			if !keeps && (init && all[i].Image == mon.Image || all[i].Name == mon.Name) {
				if c["resources"], err = instead(wants); err != nil {
					return nil, err
				}
			}
			out = append(out, c)
		}
		return out, nil
	}
	spec := map[string]any{}
	if spec["containers"], err = patched(pod.Containers, false); err != nil {
		return nil, err
	}
	if len(pod.InitContainers) > 0 {
		if spec["initContainers"], err = patched(pod.InitContainers, true); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{TemplateAnnotation: hash}}, "spec": spec,
	}}})
}

// IsAsSpec tells whether a mon that others have made has the image of the spec, and its resources if it names any.
func (s Set) IsAsSpec(d *appsv1.Deployment) bool {
	mon, wants := MonContainer(&d.Spec.Template.Spec), s.Spec.PodTemplate
	return mon != nil && mon.Image == wants.Image &&
		(isEmpty(wants.Resources) || equality.Semantic.DeepEqual(mon.Resources, wants.Resources))
}

func isEmpty(r corev1.ResourceRequirements) bool {
	return len(r.Limits)+len(r.Requests)+len(r.Claims) == 0
}

// MonContainer is the container of a pod in which the mon runs: the one that Rook calls "mon", or the first; nil: there
// is none. Others, which somebody may have put into some of the pods only, say nothing of a mon.
func MonContainer(pod *corev1.PodSpec) *corev1.Container {
	if len(pod.Containers) == 0 {
		return nil
	}
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "mon" })
	return &pod.Containers[max(i, 0)]
}

// instead is part of a strategic merge patch that leaves nothing of what was there.
func instead(value any) (map[string]any, error) {
	out := map[string]any{}
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	out["$patch"] = "replace"
	return out, err
}
