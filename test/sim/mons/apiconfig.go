package mons

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the part of the API server that keeps what mons are told: ConfigMaps, Secrets and Services.

type configMapsAPI struct {
	coreclient.ConfigMapInterface
	*World
}

func (a configMapsAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *corev1.ConfigMap, err error) {
	err = a.ask(ctx, "read ConfigMap", false, func() error {
		if name != a.endpoints.Name {
			return kubeapi.NotFound("configmaps", name)
		}
		out = a.endpoints.DeepCopy()
		return nil
	})
	return out, err
}

func (a configMapsAPI) Patch(
	ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.ConfigMap, error) {
	return nil, a.ask(ctx, "save endpoints", true, func() error {
		if name != a.endpoints.Name {
			return kubeapi.NotFound("configmaps", name)
		}
		before, err := json.Marshal(a.endpoints)
		if err != nil {
			return err
		}
		after, err := jsonpatch.MergePatch(before, data)
		if err != nil {
			return err
		}
		next := &corev1.ConfigMap{}
		if err := json.Unmarshal(after, next); err != nil {
			return err
		}
		a.stamped(next)
		a.endpoints = next
		a.tell("the endpoints are %s", next.Data["data"])
		a.judgeEndpoints()
		return nil
	})
}

type secretsAPI struct {
	coreclient.SecretInterface
	*World
}

func (a secretsAPI) Patch(
	ctx context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.Secret, error) {
	return nil, a.ask(ctx, "save mon_host", true, func() error { return kubeapi.NotFound("secrets", name) })
}

type servicesAPI struct {
	coreclient.ServiceInterface
	*World
}

func (w *World) putService(s *corev1.Service) {
	w.stamped(s)
	s.Spec.ClusterIP = fmt.Sprintf("10.0.%d.%d", w.version/250, w.version%250+1)
	w.services[s.Name] = s
}

func (a servicesAPI) Create(
	ctx context.Context, s *corev1.Service, _ metav1.CreateOptions,
) (out *corev1.Service, err error) {
	err = a.ask(ctx, "create "+s.Name+"'s Service", true, func() error {
		if a.services[s.Name] != nil {
			return alreadyThere("services", s.Name)
		}
		a.putService(s.DeepCopy())
		out = a.services[s.Name].DeepCopy()
		return nil
	})
	return out, err
}

func (a servicesAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *corev1.Service, err error) {
	err = a.ask(ctx, "read Service", false, func() error {
		if a.services[name] == nil {
			return kubeapi.NotFound("services", name)
		}
		out = a.services[name].DeepCopy()
		return nil
	})
	return out, err
}

func (a servicesAPI) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	return a.ask(ctx, "delete "+name+"'s Service", true, func() error {
		if a.services[name] == nil {
			return kubeapi.NotFound("services", name)
		}
		a.judgeService(name)
		delete(a.services, name)
		return nil
	})
}
