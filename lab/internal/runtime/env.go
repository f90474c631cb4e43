package runtime

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// Objects reads what pods refer to. An absent object is an apierrors.IsNotFound.
type Objects interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// Environment resolves the variables of a container: base, overridden by envFrom, overridden by env in which $(NAME)
// stands for a variable that came before. The pod's status must hold its addresses.
func Environment(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, base map[string]string, objects Objects,
) (map[string]string, error) {
	env := maps.Clone(base)
	for _, from := range c.EnvFrom {
		values, err := envFrom(ctx, pod.Namespace, from, objects)
		if err != nil {
			return nil, err
		}
		for k, v := range values {
			env[from.Prefix+k] = v
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			env[e.Name] = expansion.Expand(e.Value, expansion.MappingFuncFor(env))
			continue
		}
		value, ok, err := valueFrom(ctx, pod, c, e.ValueFrom, objects)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

// CommandLine expands $(NAME) in a container's command and arguments. Without a command there is no image to take one
// from, so the container just waits, as the pause image does.
func CommandLine(c *corev1.Container, env map[string]string) []string {
	if len(c.Command) == 0 {
		return []string{"sleep", "infinity"}
	}
	args := slices.Concat(c.Command, c.Args)
	for i, a := range args {
		args[i] = expansion.Expand(a, expansion.MappingFuncFor(env))
	}
	return args
}

// EnvironmentList is the form that programs are started with, in a stable order.
func EnvironmentList(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func envFrom(
	ctx context.Context, namespace string, from corev1.EnvFromSource, objects Objects,
) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := objects.ConfigMap(ctx, namespace, from.ConfigMapRef.Name)
		if err != nil {
			return nil, unlessOptional(err, from.ConfigMapRef.Optional)
		}
		return cm.Data, nil
	case from.SecretRef != nil:
		secret, err := objects.Secret(ctx, namespace, from.SecretRef.Name)
		if err != nil {
			return nil, unlessOptional(err, from.SecretRef.Optional)
		}
		values := map[string]string{}
		for k, v := range secret.Data {
			values[k] = string(v)
		}
		return values, nil
	}
	return nil, nil
}

// valueFrom says with ok whether there is a value: an optional reference may lead nowhere.
func valueFrom(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, objects Objects,
) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = Field(pod, from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = resource.ExtractContainerResourceValue(from.ResourceFieldRef, c)
		return value, err == nil, err
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional)
		}
		b, ok := secret.Data[ref.Key]
		return string(b), ok, missingKey(ok, ref.Optional, "Secret", ref.Name, ref.Key)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := objects.ConfigMap(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional)
		}
		value, ok := cm.Data[ref.Key]
		return value, ok, missingKey(ok, ref.Optional, "ConfigMap", ref.Name, ref.Key)
	}
	return "", false, fmt.Errorf("unsupported source %v", from)
}

// Field gives a field of a pod as the downward API does.
func Field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP, nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

func unlessOptional(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func missingKey(found bool, optional *bool, kind, name, key string) error {
	if found || optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %s has no key %q", kind, name, key)
}
