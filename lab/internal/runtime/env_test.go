package runtime

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// objects of one namespace, by name.
type objects struct {
	secrets    map[string]map[string]string
	configMaps map[string]map[string]string
}

func (o objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	values, ok := o.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	data := map[string][]byte{}
	for k, v := range values {
		data[k] = []byte(v)
	}
	return &corev1.Secret{Data: data}, nil
}

func (o objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	values, ok := o.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{Data: values}, nil
}

func TestEnvironment(t *testing.T) {
	yes := true
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	secret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: ref(name), Key: key,
			Optional: optional,
		}}
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
		Status:     corev1.PodStatus{PodIP: "127.64.0.1"},
	}
	have := objects{
		secrets:    map[string]map[string]string{"s": {"k": "v"}},
		configMaps: map[string]map[string]string{"c": {"a": "1", "b": "2"}},
	}
	for name, test := range map[string]struct {
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want string // differences from the base, or the error
	}{
		"values": {env: []corev1.EnvVar{{Name: "A", Value: "x"}, {Name: "B", Value: "$(A)y"}}, want: "A=x B=xy"},
		"only what is set": {
			env:  []corev1.EnvVar{{Name: "A", Value: "$(LATER)"}, {Name: "LATER", Value: "x"}},
			want: "A=$(LATER) LATER=x",
		},
		"escape": {env: []corev1.EnvVar{{Name: "A", Value: "$$(BASE) $(BASE)"}}, want: "A=$(BASE) base"},
		"fields": {
			env: []corev1.EnvVar{
				{Name: "A", ValueFrom: field("metadata.labels['app']")},
				{Name: "B", ValueFrom: field("status.podIP")},
				{Name: "C", ValueFrom: field("spec.nodeName")},
			},
			want: "A=x B=127.64.0.1 C=node-a",
		},
		"bad field": {
			env:  []corev1.EnvVar{{Name: "A", ValueFrom: field("spec.nothing")}},
			want: "variable A: unsupported fieldPath: spec.nothing",
		},
		"from": {from: []corev1.EnvFromSource{
			{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("c")}},
		}, want: "P_a=1 P_b=2"},
		"env wins": {
			from: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("c")}},
			},
			env: []corev1.EnvVar{{Name: "a", Value: "own"}}, want: "a=own b=2",
		},
		"from absent": {from: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none")}},
		}, want: `secrets "none" not found`},
		"from optional": {from: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none"), Optional: &yes}},
		}, want: ""},
		"secret": {env: []corev1.EnvVar{{Name: "A", ValueFrom: secret("s", "k", nil)}}, want: "A=v"},
		"key absent": {
			env:  []corev1.EnvVar{{Name: "A", ValueFrom: secret("s", "none", nil)}},
			want: `variable A: Secret s has no key "none"`,
		},
		"key optional":    {env: []corev1.EnvVar{{Name: "A", ValueFrom: secret("s", "none", &yes)}}, want: ""},
		"secret optional": {env: []corev1.EnvVar{{Name: "A", ValueFrom: secret("none", "k", &yes)}}, want: ""},
		"secret not to see": {
			env:  []corev1.EnvVar{{Name: "A", ValueFrom: secret("none", "k", nil)}},
			want: `variable A: secrets "none" not found`,
		},
	} {
		base := map[string]string{"BASE": "base"}
		env, err := Environment(t.Context(), pod, &corev1.Container{EnvFrom: test.from, Env: test.env}, base, have)
		var got []string
		for _, k := range slices.Sorted(maps.Keys(env)) {
			if k != "BASE" {
				got = append(got, k+"="+env[k])
			}
		}
		result := strings.Join(got, " ")
		if err != nil {
			result = err.Error()
		}
		if result != test.want {
			t.Errorf("%s: %s, want %s", name, result, test.want)
		}
		if len(base) != 1 {
			t.Errorf("%s: the base was changed: %v", name, base)
		}
	}
}

func TestCommandLine(t *testing.T) {
	c := &corev1.Container{Command: []string{"sh", "-c", "echo $(A) $$(A)"}, Args: []string{"$(A)"}}
	if got := CommandLine(c, map[string]string{"A": "x"}); !slices.Equal(got, []string{"sh", "-c", "echo x $(A)", "x"}) {
		t.Errorf("got %q", got)
	}
	if c.Args[0] != "$(A)" {
		t.Error("the container's own arguments were changed")
	}
	if got := CommandLine(&corev1.Container{Args: []string{"x"}}, nil); got[0] != "sleep" {
		t.Errorf("without a command: %q", got)
	}
}
