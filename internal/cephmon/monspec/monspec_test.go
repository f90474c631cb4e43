package monspec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

const zones = "zones: [{name: x}, {name: 'y'}, {name: z}]"

// set is a CephMon of which the test says what is unusual.
func set(t *testing.T, spec ...string) monspec.Set {
	t.Helper()
	out := monspec.Set{Namespace: "rook-ceph", Name: "mons"}
	fields := map[string]any{}
	for _, line := range append([]string{"policy: rook-ceph", "count: 3", "podTemplate: {image: ceph}"}, spec...) {
		require.NoError(t, yaml.Unmarshal([]byte(line), &fields), line) // into what is there already
	}
	all, err := yaml.Marshal(fields)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(all, &out.Spec), string(all))
	return out
}

func said(refused []*input.Error) string {
	var lines []string
	for _, e := range refused {
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "\n")
}

func TestRefusals(t *testing.T) {
	for spec, want := range map[string]string{
		"migrate: Automatic":       "",
		"migrate: Sometimes":       `spec.migrate: "Sometimes": must be Manual or Automatic`,
		"count: 0":                 `spec.count: "0": must be between 1 and 15`,
		"count: 17":                `spec.count: "17": must be between 1 and 15`,
		"healthTimeout: 5s":        `spec.healthTimeout: "5s": must be between 1m and 168h, such as 10m`,
		"failureDomainLabel: rack": `spec.failureDomainLabel: "rack": must be topology.kubernetes.io/region`,
		"dataDirHostPath: /a/../b": `spec.dataDirHostPath: "/a/../b": must be an absolute path`,
		"zones: [{name: x}]":       `spec.count: "3": must be at most 1: a zone has at most one mon, and spec.zones lists 1`,
		"zones: [{name: x}, {name: 'y'}, {name: z}, {name: x}]": `spec.zones[3].name: "x": is the same as spec.zones[0].name`,
		"zones: [{name: x}, {name: 'y'}, {name: ''}]":           `spec.zones[2].name: "": must be the value of label topology`,
		"podTemplate: {image: 'a b'}":                           `spec.podTemplate.image: "a b": must be the name of a container image`,
		"podTemplate: {image: c, labels: {app: x}}":             `spec.podTemplate.labels[app]: "x": must be left out: pods are found by it`,
		"podTemplate: {image: c, args: ['--id=a']}":             `spec.podTemplate.args[0]: "--id=a": must be left out`,
		"volumeClaimTemplate: {spec: {accessModes: [ReadWriteMany]}}": `spec.volumeClaimTemplate.spec.accessModes: ` +
			`"[ReadWriteMany]": is not honoured, leave it out: only spec.storageClassName and spec.resources are`,
		"volumeClaimTemplate: {metadata: {name: a}, spec: {}}": `spec.volumeClaimTemplate.metadata: "": is not honoured`,
		"volumeClaimTemplate: {spec: {volumeName: v, selector: {}, dataSource: {kind: a, name: b}}}": `` +
			"spec.volumeClaimTemplate.spec.dataSource: \"\": is not honoured, " +
			"leave it out: only spec.storageClassName and spec.resources are\n" +
			"spec.volumeClaimTemplate.spec.selector: \"\": is not honoured, " +
			"leave it out: only spec.storageClassName and spec.resources are\n" +
			"spec.volumeClaimTemplate.spec.volumeName: \"v\": is not honoured",
		"volumeClaimTemplate: {spec: {resources: {requests: {storage: 0}}}}": `spec.volumeClaimTemplate.spec.resources.requests.storage: ` +
			`"0": must be more than 0, such as 10Gi`,
		"zones: [{name: x}, {name: 'y', volumeClaimTemplate: {spec: {volumeMode: Block}}}, {name: z}]": `` +
			`spec.zones[1].volumeClaimTemplate.spec.volumeMode: "Block": is not honoured`,
	} {
		got := said(set(t, spec).Refusals())
		if want == "" {
			assert.Empty(t, got, spec)
		} else {
			assert.Contains(t, got, want, spec)
		}
	}
}

func node(name, zone string, taints ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if zone != "" {
		n.Labels[corev1.LabelTopologyZone] = zone
	}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func class(name, provisioner string, waits bool) storagev1.StorageClass {
	mode := storagev1.VolumeBindingImmediate
	if waits {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	return storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: &mode,
	}
}

// volume is a static one in a zone.
func volume(class, size, zone string) corev1.PersistentVolume {
	return corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone},
			}},
		}}}},
	}}
}

func world() monspec.World {
	return monspec.World{
		Nodes: []corev1.Node{node("a", "x"), node("b", "y"), node("c", "z"), node("d", "x"), node("m", "", "control-plane")},
		Classes: []storagev1.StorageClass{
			class("fast", "disks.example.org", true), class("early", "disks.example.org", false),
			class("local", "kubernetes.io/no-provisioner", true),
		},
		Volumes: []corev1.PersistentVolume{
			volume("local", "20Gi", "x"), volume("local", "20Gi", "y"), volume("local", "5Gi", "z"),
			volume("other", "20Gi", "z"),
		},
		New: 1,
	}
}

func TestAgainst(t *testing.T) {
	template := func(class string) string { return "volumeClaimTemplate: {spec: {storageClassName: " + class + "}}" }
	for _, c := range []struct {
		what  string
		spec  []string
		world func(*monspec.World)
		want  string // of what is refused; "": nothing
		warns string
	}{
		{what: "HostPath"},
		{what: "zones, each with a claim", spec: []string{zones, template("fast")}},
		{
			what: "two for one policy", world: func(w *monspec.World) { w.Others = []string{"others"} },
			want: `spec.policy: "rook-ceph": must have one CephMon only, and others name it, too`,
		},
		{
			what: "more than nodes", spec: []string{"count: 5"},
			want: `spec.count: "5": must be at most 4: a node has at most one mon, and spec.placement allows 4 of 5 nodes`,
		},
		{what: "more than nodes, which they may share", spec: []string{"count: 5", "allowMultiplePerNode: true"}},
		{what: "a cordon is no reason", world: func(w *monspec.World) {
			for i := range w.Nodes {
				w.Nodes[i].Spec.Taints = append(w.Nodes[i].Spec.Taints,
					corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
			}
		}},
		{
			what: "an unknown zone", spec: []string{"zones: [{name: x}, {name: 'y'}, {name: v}]"},
			want: `spec.zones[2].name: "v": must be a value of label topology.kubernetes.io/zone of some node: x, y, z`,
		},
		{
			what: "an unknown label", spec: []string{zones, "failureDomainLabel: topology.rook.io/rack"},
			want: `spec.failureDomainLabel: "topology.rook.io/rack": must be a label of some node, and none has it`,
		},
		{
			what: "a zone that the placement excludes",
			spec: []string{zones, "placement: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"{nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: NotIn, values: [z]}]}]}}}"},
			want: `spec.count: "3": must be at most 2: a zone has at most one mon, and spec.placement allows nodes of 2 of the zones`,
		},
		{
			what: "an unknown class", spec: []string{template("slow")},
			want: `spec.volumeClaimTemplate.spec.storageClassName: "slow": must be a StorageClass: early, fast, local`,
		},
		{
			what: "no default class", spec: []string{"volumeClaimTemplate: {}"},
			want: `spec.volumeClaimTemplate.spec.storageClassName: "": is required, since there is no default StorageClass`,
		},
		{what: "the default class", spec: []string{"volumeClaimTemplate: {}"}, world: func(w *monspec.World) {
			w.Classes[0].Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}},
		{
			what: "a class that does not wait, with zones", spec: []string{zones, template("early")},
			want: `"early": must be a StorageClass with volumeBindingMode WaitForFirstConsumer`,
		},
		{
			what: "a class that does not wait, without zones", spec: []string{template("early")},
			warns: "StorageClass early has not volumeBindingMode WaitForFirstConsumer",
		},
		{
			what: "no static volume in a zone that is large enough", spec: []string{zones, template("local")},
			want: `"local": must have a free volume of at least 10Gi that nodes of zone z can use, since nothing makes any: there are 0`,
		},
		{
			what: "nor is one needed there", spec: []string{zones, template("local")},
			world: func(w *monspec.World) { w.Settled = []string{"z"} },
		},
		{
			what: "static volumes without zones", spec: []string{template("local")}, world: func(w *monspec.World) { w.New = 3 },
			want: `"local": must have 3 free volumes of at least 10Gi, since nothing makes any: there are 2`,
		},
		{
			what: "a volume that is taken", spec: []string{zones, template("local")},
			world: func(w *monspec.World) {
				w.Settled = []string{"z"}
				w.Volumes[0].Spec.ClaimRef = &corev1.ObjectReference{Name: "somebody"}
			},
			want: `of zone x can use`,
		},
		{
			what: "an even count", spec: []string{"count: 4"},
			warns: "spec.count 4 is even: it survives the loss of 1 mons, as many as 3 do",
		},
		{what: "one mon", spec: []string{"count: 1"}, warns: "it cannot be moved"},
		{
			what: "far fewer than there are", spec: []string{"count: 2"},
			world: func(w *monspec.World) { w.Mons = make(quorum.Map, 5) },
			want:  `spec.count: "2": must be at least 3, a majority of the 5 mons in the monmap; shrink in several steps`,
			warns: "even",
		},
	} {
		w := world()
		if c.world != nil {
			c.world(&w)
		}
		s := set(t, c.spec...)
		require.Empty(t, said(s.Refusals()), c.what)
		refused, warnings := s.Against(w)
		for what, got := range map[string][2]string{
			"refused": {c.want, said(refused)}, "warnings": {c.warns, strings.Join(warnings, "\n")},
		} {
			if got[0] == "" {
				assert.Empty(t, got[1], "%s: %s", c.what, what)
			} else {
				assert.Contains(t, got[1], got[0], "%s: %s", c.what, what)
			}
		}
		if c.want != "" {
			assert.Len(t, refused, 1, "%s: %s", c.what, said(refused))
		}
	}
}

func TestStorage(t *testing.T) {
	s := set(t, "zones: [{name: x, volumeClaimTemplate: {spec: {storageClassName: zone-x, "+
		"resources: {requests: {storage: 5Gi}}}}}, {name: 'y'}, {name: z}]",
		"volumeClaimTemplate: {spec: {storageClassName: any}}")
	x, y := s.Storage("x"), s.Storage("y")
	size := x.Size()
	assert.Equal(t, "zone-x 5Gi", *x.Class+" "+size.String())
	size = y.Size()
	assert.Equal(t, "any 10Gi", *y.Class+" "+size.String())
	assert.Empty(t, s.Spec.VolumeClaimTemplate.Spec.Resources.Requests, "the spec stays as it is")
	assert.False(t, set(t).Storage("").Claim)
}

func TestOf(t *testing.T) {
	c := &v1alpha1.CephMon{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Generation: 7}}
	assert.Equal(t, monspec.Set{Namespace: "a", Name: "b", Generation: 7}, monspec.Of(c))
}
