package monspec_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
)

// complete is a set with what the API server adds.
func complete(t *testing.T, spec ...string) monspec.Set {
	t.Helper()
	return set(t, append([]string{
		"dataDirHostPath: /var/lib/rook",
		"ceph: {keyring: {name: mons-keyring, key: keyring}, config: {name: conf, key: config}}",
	}, spec...)...)
}

func newcomer() monspec.Newcomer {
	return monspec.Newcomer{
		Name: "d", FSID: "f", Address: monspec.AddressOf("10.0.0.4"), Hosts: monspec.AddressOf("10.0.0.1"),
	}
}

func deployment(t *testing.T, s monspec.Set, n monspec.Newcomer) *appsv1.Deployment {
	t.Helper()
	d, err := s.Deployment(n)
	require.NoError(t, err)
	return d
}

func TestAddressOf(t *testing.T) {
	assert.Equal(t, "[v2:10.0.0.4:3300,v1:10.0.0.4:6789]", monspec.AddressOf("10.0.0.4"))
	assert.Equal(t, "[v2:[fd00::4]:3300,v1:[fd00::4]:6789]", monspec.AddressOf("fd00::4"))
}

// The canary is scheduled as the mon will be: it differs in its labels, in what it runs, and with zones in its store.
func TestTheCanaryIsScheduledAsTheMonWillBe(t *testing.T) {
	for what, spec := range map[string][]string{
		"HostPath": nil,
		"a claim":  {"volumeClaimTemplate: {}"},
		"all that placement has": {
			"placement: {tolerations: [{key: a}], nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"{nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}, " +
				"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}",
			"podTemplate: {image: ceph, priorityClassName: high, hostNetwork: true, resources: {requests: {cpu: 1}}}",
		},
	} {
		s := complete(t, spec...)
		mon, canary := deployment(t, s, newcomer()), s.Canary(newcomer())
		a, b := mon.Spec.Template.Spec.DeepCopy(), canary.Spec.Template.Spec.DeepCopy()
		for _, p := range []*corev1.PodSpec{a, b} {
			p.InitContainers = nil
			c := &p.Containers[0]
			c.Name, c.Command, c.Args, c.Env, c.ReadinessProbe = "", nil, nil, nil, nil
		}
		assert.Equal(t, a, b, what)
		assert.Len(t, canary.Spec.Template.Spec.Containers, 1)
		assert.Contains(t, canary.Spec.Template.Spec.Containers[0].Command[2], "sleep")
	}
	s := complete(t, zones, "volumeClaimTemplate: {}")
	n := newcomer()
	n.Zones = []string{"x", "z"}
	claims := func(d *appsv1.Deployment) (n int) {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				n++
			}
		}
		return n
	}
	assert.Zero(t, claims(s.Canary(n)), "which zone's class makes the volume is not known yet")
	scheduled := n
	scheduled.Zones, scheduled.Zone = []string{"x"}, "x"
	assert.Equal(t, 1, claims(s.Canary(scheduled)), "the volume waits for its first consumer")
	assert.Equal(t, []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"x", "z"},
	}}, required(s.Canary(n).Spec.Template.Spec)[0].MatchExpressions)
}

func required(p corev1.PodSpec) []corev1.NodeSelectorTerm {
	return p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// A mon without its keyring refuses the others, whatever ceph.conf says of keyrings.
func TestAMonHasItsKeyring(t *testing.T) {
	mon := deployment(t, complete(t), newcomer()).Spec.Template.Spec.Containers[0]
	keyring := ""
	for _, m := range mon.VolumeMounts {
		if m.Name == "keyring" {
			keyring = "--keyring=" + m.MountPath + "/keyring"
		}
	}
	assert.Contains(t, mon.Args, keyring)
}

// No budget, no Service and no mon takes a canary for a mon; and all of them know the mon.
func TestACanaryIsNoMon(t *testing.T) {
	s := complete(t)
	mon, canary := deployment(t, s, newcomer()), s.Canary(newcomer())
	selectors := map[string]*metav1.LabelSelector{
		"the budget":           {MatchLabels: map[string]string{"app": "rook-ceph-mon"}},
		"the mon's Deployment": mon.Spec.Selector,
		"the Service":          {MatchLabels: s.Service("d").Spec.Selector},
		"another mon":          apart(mon)[0].LabelSelector,
	}
	for what, labelSelector := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(labelSelector)
		require.NoError(t, err)
		assert.True(t, selector.Matches(labels.Set(mon.Spec.Template.Labels)), what)
		assert.False(t, selector.Matches(labels.Set(canary.Spec.Template.Labels)), what)
	}
	selector, err := metav1.LabelSelectorAsSelector(canary.Spec.Selector)
	require.NoError(t, err)
	assert.True(t, selector.Matches(labels.Set(canary.Spec.Template.Labels)))
	assert.False(t, selector.Matches(labels.Set(mon.Spec.Template.Labels)))
}

// What is deleted together with a CephMon would be the quorum.
func TestNothingHasAnOwner(t *testing.T) {
	s := complete(t, "volumeClaimTemplate: {}")
	for _, o := range []metav1.Object{
		deployment(t, s, newcomer()), s.Canary(newcomer()), s.Service("d"), s.Claim("d", ""),
	} {
		assert.Empty(t, o.GetOwnerReferences(), o.GetName())
		assert.Empty(t, o.GetFinalizers(), o.GetName())
	}
}

func TestWhereAMonRuns(t *testing.T) {
	// HostPath: pinned to the node of its store.
	n := newcomer()
	n.Node, n.Host = "node-a.cloud.example", "node-a"
	d := deployment(t, complete(t), n)
	assert.Equal(t, map[string]string{corev1.LabelHostname: "node-a"}, d.Spec.Template.Spec.NodeSelector)
	assert.Equal(t, "/var/lib/rook/mon-d", d.Spec.Template.Spec.Volumes[0].HostPath.Path)

	// A node without the label has a name all the same.
	n.Host = ""
	spec := deployment(t, complete(t), n).Spec.Template.Spec
	assert.Empty(t, spec.NodeSelector)
	assert.Equal(t, []corev1.NodeSelectorRequirement{{
		Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a.cloud.example"},
	}}, required(spec)[0].MatchFields)

	// A claim and zones: bound to the zone, also where the placement has alternatives.
	s := complete(t, zones, "volumeClaimTemplate: {}",
		"placement: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "+
			"[{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}, {}]}}}")
	n = newcomer()
	n.Zone, n.Zones = "x", []string{"x"}
	d = deployment(t, s, n)
	terms := required(d.Spec.Template.Spec)
	assert.Len(t, terms[0].MatchExpressions, 2)
	assert.Len(t, terms[1].MatchExpressions, 2)
	assert.Empty(t, terms[2].MatchExpressions, "a term without requirements matches no node")
	assert.Equal(t, "rook-ceph-mon-d", d.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	assert.Equal(t, "x", d.Annotations[monspec.ZoneAnnotation])
	assert.Empty(t, d.Spec.Template.Spec.NodeSelector)
	again := deployment(t, s, n)
	assert.Equal(t, terms, required(again.Spec.Template.Spec), "the spec stays as it is")

	// A claim without zones: wherever the placement lets it.
	d = deployment(t, complete(t, "volumeClaimTemplate: {}"), newcomer())
	assert.Nil(t, d.Spec.Template.Spec.Affinity.NodeAffinity)
}

// apart is what keeps a pod from the nodes of others.
func apart(d *appsv1.Deployment) []corev1.PodAffinityTerm {
	if d.Spec.Template.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return d.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func TestWhoSharesANode(t *testing.T) {
	assert.Empty(t, apart(complete(t, "allowMultiplePerNode: true").Canary(newcomer())))
	n := newcomer()
	n.Instead = "a"
	terms := apart(complete(t).Canary(n))
	require.Len(t, terms, 1)
	selector, err := metav1.LabelSelectorAsSelector(terms[0].LabelSelector)
	require.NoError(t, err)
	for mon, kept := range map[string]bool{"a": false, "b": true} {
		assert.Equal(t, kept, selector.Matches(labels.Set{"app": "rook-ceph-mon", "ceph_daemon_id": mon}), mon)
	}
}

// Only what restarts a mon in place changes the hash.
func TestTemplateHash(t *testing.T) {
	hash := func(spec ...string) string {
		h, err := complete(t, spec...).TemplateHash()
		require.NoError(t, err)
		return h
	}
	same := hash()
	assert.Len(t, same, 16)
	assert.Equal(t, same, hash("podTemplate: {image: ceph, hostNetwork: true, args: [--a=b]}"))
	assert.Equal(t, same, hash("count: 5", "volumeClaimTemplate: {}"))
	assert.NotEqual(t, same, hash("podTemplate: {image: ceph:2}"))
	assert.NotEqual(t, same, hash("podTemplate: {image: ceph, resources: {requests: {cpu: 1}}}"))
}

func TestClaim(t *testing.T) {
	assert.Nil(t, complete(t).Claim("d", ""))
	c := complete(t, "volumeClaimTemplate: {spec: {storageClassName: fast}}").Claim("d", "")
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	assert.Equal(t, []string{"rook-ceph-mon-d", "fast", "10Gi"}, []string{c.Name, *c.Spec.StorageClassName, size.String()})
}

// A policy that finds mons by other labels finds those that lockkeeper makes, too.
func TestOtherLabels(t *testing.T) {
	s := complete(t)
	s.Selector = map[string]string{"application": "ceph", "component": "mon"}
	d := deployment(t, s, newcomer())
	for key, value := range s.Selector {
		assert.Equal(t, value, d.Spec.Template.Labels[key])
		assert.Equal(t, value, s.Service("d").Spec.Selector[key])
	}
	assert.NotContains(t, d.Spec.Template.Labels, "app")
}

// A restart changes the mon's image and resources, and leaves what stands beside it to whoever has put it there.
func TestRestart(t *testing.T) {
	limits := func(memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	s := complete(t, "podTemplate: {image: ceph:20, resources: {requests: {cpu: 1}}}")
	wants := s.Spec.PodTemplate.Resources
	pod := corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "chown", Image: "ceph:18", Resources: limits("1Gi")},
			{Name: "log", Image: "busybox", Resources: limits("1Mi")},
		},
		Containers: []corev1.Container{
			{Name: "log-collector", Image: "ceph:18", Resources: limits("2Mi")},
			{Name: "mon", Image: "ceph:18", Resources: limits("1Gi"), Command: []string{"ceph-mon"}},
			{Name: "exporter", Image: "exporter:1"},
		},
	}
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: pod}}}
	patch, err := s.Restart(d)
	require.NoError(t, err)
	before, err := json.Marshal(d)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.Deployment{})
	require.NoError(t, err)
	var got appsv1.Deployment
	require.NoError(t, json.Unmarshal(after, &got))

	hash, err := s.TemplateHash()
	require.NoError(t, err)
	assert.Equal(t, hash, got.Spec.Template.Annotations[monspec.TemplateAnnotation])
	want := pod.DeepCopy()
	want.InitContainers[0].Image, want.InitContainers[0].Resources = "ceph:20", wants
	want.Containers[0].Image = "ceph:20"
	want.Containers[1].Image, want.Containers[1].Resources = "ceph:20", wants // and the limit of before has gone
	assert.True(t, equality.Semantic.DeepEqual(*want, got.Spec.Template.Spec), "%s", after)
}

// A mon that others have made keeps its resources while the spec has none. Of one that lockkeeper has made they go.
func TestRestartWithoutResources(t *testing.T) {
	s := complete(t, "podTemplate: {image: ceph:20}")
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "mon", Image: "ceph:18"}}
	patch, err := s.Restart(d)
	require.NoError(t, err)
	assert.Contains(t, string(patch), "ceph:20")
	assert.NotContains(t, string(patch), "resources")
	d.Spec.Template.Labels = map[string]string{monspec.CephMonLabel: s.Name}
	patch, err = s.Restart(d)
	require.NoError(t, err)
	assert.Contains(t, string(patch), `"resources":{"$patch":"replace"}`)
}
