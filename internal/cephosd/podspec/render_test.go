package podspec_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

var sdb = podspec.OSD{Host: "node-a.example.com", Data: "/dev/sdb", DB: "/dev/nvme0n1p1"}

func TestRender(t *testing.T) {
	set := read(t, `
  storage: []
  podTemplate:
    apiVersion: v1
    kind: Pod
    metadata:
      name: not-this
      namespace: nor-this
      labels: {role: osd, topology-location-zone: of-the-template, ceph.elemental.net/owner: somebody}
      annotations: {note: kept, ceph.elemental.net/wal: /dev/of/the/template, ceph.elemental.net/released: never}
    spec:
      initContainers:
        - {name: activate, image: ceph}
      containers:
        - name: osd
          image: ceph
          env: [{name: OSD_DEVICE, value: /dev/of/the/template}, {name: WHERE, value: $(OSD_DEVICE)}]
      restartPolicy: Always
      hostNetwork: true`)
	id := 7
	got := set.Render(sdb, podspec.Knowledge{
		ID:             &id,
		FailureDomains: map[string]string{"zone": "zone-x", "host": "node-a", "rack": "no label's value!"},
	})
	devices := `
      - {name: OSD_DEVICE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['ceph.elemental.net/data']"}}}
      - {name: OSD_DB_DEVICE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['ceph.elemental.net/db']"}}}
      - {name: OSD_WAL_DEVICE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['ceph.elemental.net/wal']"}}}`
	want := &corev1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
apiVersion: v1
kind: Pod
metadata:
  name: `+podspec.PodName(sdb)+`
  namespace: ceph
  labels:
    role: osd
    ceph-osd-id: "7"
    topology-location-host: node-a
    topology-location-zone: zone-x
    ceph.elemental.net/owner: CephOSD-osds
  annotations:
    note: kept
    ceph.elemental.net/pod-template-hash: `+set.Hash+`
    ceph.elemental.net/host: node-a.example.com
    ceph.elemental.net/data: /dev/sdb
    ceph.elemental.net/db: /dev/nvme0n1p1
    ceph.elemental.net/pod-state: unready
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-a.example.com]}]
  initContainers:
  - name: activate
    image: ceph
    env:`+devices+`
  containers:
  - name: osd
    image: ceph
    env:`+devices+`
      - {name: WHERE, value: $(OSD_DEVICE)}
  restartPolicy: Always
  hostNetwork: true`), want))
	assert.Equal(t, want, got)
}

func TestRenderKnowsNothing(t *testing.T) {
	pod := read(t, `{storage: []}`).Render(podspec.OSD{Host: "a", Data: "x"}, podspec.Knowledge{})
	assert.Equal(t, map[string]string{podspec.OwnerLabel: "CephOSD-osds"}, pod.Labels)
	assert.NotContains(t, pod.Annotations, podspec.DBAnnotation)
	assert.NotContains(t, pod.Annotations, podspec.WALAnnotation)
}

func TestOwnerFollowsTheDeletionPolicy(t *testing.T) {
	assert.Empty(t, read(t, `{storage: []}`).Render(sdb, podspec.Knowledge{}).OwnerReferences)
	assert.Empty(t, read(t, `{storage: [], deletionPolicy: Retain}`).Render(sdb, podspec.Knowledge{}).OwnerReferences)
	yes := true
	assert.Equal(t, []metav1.OwnerReference{{
		APIVersion: "ceph.elemental.net/v1alpha1", Kind: "CephOSD", Name: "osds", UID: "uid-of-osds", Controller: &yes,
		BlockOwnerDeletion: &yes,
	}}, read(t, `{storage: [], deletionPolicy: Delete}`).Render(sdb, podspec.Knowledge{}).OwnerReferences)
}

// What is known of an OSD is on its pod, and from there on the one that comes after it.
func TestKnowledgeIsHandedOn(t *testing.T) {
	set := read(t, `{storage: []}`)
	id := 0
	k := podspec.Knowledge{ID: &id, FailureDomains: map[string]string{"zone": "x", "host": "a"}}
	assert.Equal(t, k, podspec.Known(set.Render(sdb, k)))
	assert.Nil(t, podspec.Known(set.Render(sdb, podspec.Knowledge{})).ID)
	assert.Nil(t, podspec.Known(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{podspec.IDLabel: "-1"}},
	}).ID)
	assert.Nil(t, podspec.Known(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{podspec.IDLabel: "osd.1"}},
	}).ID)
}

// matches tells whether a node with these labels matches a node selector, as the scheduler would: one of the terms,
// with all of its expressions, and a term without any matches nothing. Operators other than In do not occur here.
func matches(s *corev1.NodeSelector, node map[string]string) bool {
	return s == nil || slices.ContainsFunc(s.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchExpressions) > 0 &&
			!slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return !slices.Contains(r.Values, node[r.Key])
			})
	})
}

func terms() *rapid.Generator[*corev1.NodeSelector] {
	requirement := rapid.Custom(func(t *rapid.T) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{
			Key:      rapid.SampledFrom([]string{"disk", "cpu", corev1.LabelHostname}).Draw(t, "key"),
			Operator: corev1.NodeSelectorOpIn,
			Values:   rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 2).Draw(t, "values"),
		}
	})
	term := rapid.Custom(func(t *rapid.T) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: rapid.SliceOfN(requirement, 0, 2).Draw(t, "expressions")}
	})
	return rapid.Custom(func(t *rapid.T) *corev1.NodeSelector {
		if rapid.Bool().Draw(t, "no selector") {
			return nil
		}
		return &corev1.NodeSelector{NodeSelectorTerms: rapid.SliceOfN(term, 1, 3).Draw(t, "terms")}
	})
}

// A pod may run where the template lets it run, and on its host: nowhere else, and nowhere less.
func TestRenderKeepsTheTermsOfTheTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := read(t, `{storage: []}`)
		theirs := terms().Draw(t, "terms")
		set.Spec.PodTemplate.Spec.Affinity = &corev1.Affinity{
			PodAntiAffinity: &corev1.PodAntiAffinity{},
			NodeAffinity:    &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: theirs},
		}
		affinity := set.Render(podspec.OSD{Host: "a", Data: "x"}, podspec.Knowledge{}).Spec.Affinity
		if affinity.PodAntiAffinity == nil {
			t.Fatal("other affinities are lost")
		}
		for _, host := range []string{"a", "b"} {
			for _, disk := range []string{"a", "b"} {
				for _, cpu := range []string{"a", "b"} {
					node := map[string]string{corev1.LabelHostname: host, "disk": disk, "cpu": cpu}
					want := host == "a" && matches(theirs, node)
					if got := matches(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, node); got != want {
						t.Fatalf("on %v it may run: %v", node, got)
					}
				}
			}
		}
	})
}

// Rendering neither changes the CephOSD nor shares anything with it; no variable is there twice, and none of the
// template's is lost or changes places with another.
func TestRenderIsACopy(t *testing.T) {
	variable := rapid.Custom(func(t *rapid.T) corev1.EnvVar {
		return corev1.EnvVar{Name: rapid.SampledFrom([]string{
			"OSD_DEVICE", "OSD_DB_DEVICE", "OSD_WAL_DEVICE", "A", "B",
			"C",
		}).Draw(t, "name"), Value: "theirs"}
	})
	rapid.Check(t, func(t *rapid.T) {
		set := read(t, `{storage: []}`)
		env := rapid.SliceOfNDistinct(variable, 0, 6, func(v corev1.EnvVar) string { return v.Name }).Draw(t, "env")
		template := &set.Spec.PodTemplate
		template.Labels = map[string]string{"role": "osd"}
		template.Spec.Containers = []corev1.Container{{Name: "a", Env: env}, {Name: "b"}}
		template.Spec.InitContainers = []corev1.Container{{Name: "c", Env: slices.Clone(env)}}
		template.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms().Draw(t, "terms")},
		}
		before := set.DeepCopy()

		o := anOSD().Draw(t, "osd")
		pod := set.Render(o, podspec.Knowledge{})
		if again := set.Render(o, podspec.Knowledge{}); !assert.ObjectsAreEqual(pod, again) {
			t.Fatal("the same OSD has another pod the second time")
		}
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			names := map[string]bool{}
			var kept []corev1.EnvVar
			for _, v := range c.Env {
				if names[v.Name] {
					t.Fatalf("%s is there twice", v.Name)
				}
				names[v.Name] = true
				if !strings.HasPrefix(v.Name, "OSD_") {
					kept = append(kept, v)
				} else if v.ValueFrom == nil || v.Value != "" {
					t.Fatalf("%s is not ours", v.Name)
				}
			}
			want := slices.DeleteFunc(slices.Clone(env), func(v corev1.EnvVar) bool { return strings.HasPrefix(v.Name, "OSD_") })
			if len(names)-len(kept) != 3 || c.Name != "b" && !slices.Equal(kept, want) {
				t.Fatalf("%v became %v", env, c.Env)
			}
		}
		for label, value := range pod.Labels {
			if wrong := slices.Concat(validation.IsQualifiedName(label), validation.IsValidLabelValue(value)); len(wrong) > 0 {
				t.Fatalf("%s=%s: %v", label, value, wrong)
			}
		}
		scribble(pod)
		if !assert.ObjectsAreEqual(before, set.CephOSD) {
			t.Fatal("the CephOSD has changed")
		}
	})
}

// scribble changes everything in a pod that could be shared with a template.
func scribble(pod *corev1.Pod) {
	pod.Labels["role"] = "scribbled"
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for i := range c.Env {
			c.Env[i] = corev1.EnvVar{Name: "scribbled"}
		}
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for i := range term.MatchExpressions {
			for j := range term.MatchExpressions[i].Values {
				term.MatchExpressions[i].Values[j] = "scribbled"
			}
		}
	}
}

// Which types there are only the storage cluster knows.
func TestUpdateDomains(t *testing.T) {
	assert.Equal(t, v1alpha1.UpdateDomain("OSD"), read(t, `{storage: []}`).Domain())
	for _, d := range []string{"OSD", "Host", "Rack", "Cage-1"} {
		_, refused := read(t, `{storage: [], updateDomain: `+d+`}`).Desired()
		assert.Empty(t, refused, d)
	}
}

// What the API server says of a rendered pod is said of the template that people wrote.
func TestTemplateField(t *testing.T) {
	set := read(t, `{storage: [{hosts: [a], osds: [{data: /dev/sdb}]}], podTemplate: {spec: {
		initContainers: [{name: i, env: [{name: X}]}], containers: [{name: osd, env: [{name: A}, {name: OSD_DEVICE}, {name: B}]}, {name: two}]}}}`)
	for rendered, want := range map[string]string{
		"spec.containers[0].env[3].name":      "spec.containers[0].env[0].name",
		"spec.containers[0].env[4].valueFrom": "spec.containers[0].env[2].valueFrom",
		"spec.containers[0].env[1].name":      "spec.containers[0]",
		"spec.containers[0].env[5]":           "spec.containers[0]",
		"spec.containers[7].env[3]":           "spec.containers[7].env[3]",
		"spec.initContainers[0].env[3]":       "spec.initContainers[0].env[0]",
		"spec.containers[0].image":            "spec.containers[0].image",
	} {
		assert.Equal(t, want, set.TemplateField(rendered), rendered)
	}
	pod := set.Render(podspec.OSD{Host: "a", Data: "/dev/sdb"}, podspec.Knowledge{})
	assert.Equal(t, "B", pod.Spec.Containers[0].Env[4].Name)
}
