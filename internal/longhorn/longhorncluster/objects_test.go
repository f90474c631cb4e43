package longhorncluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
)

func object(t *testing.T, kind, name, rest string) unstructured.Unstructured {
	t.Helper()
	var o unstructured.Unstructured
	require.NoError(t, yaml.Unmarshal([]byte(rest), &o.Object))
	o.SetAPIVersion("longhorn.io/v1beta2")
	o.SetKind(kind)
	o.SetName(name)
	return o
}

func readyNode(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}
}

// installation is a small one that is in order: volume v is detached, with replicas on a and b.
func installation(t *testing.T) longhorncluster.Objects {
	t.Helper()
	o := longhorncluster.Objects{
		Now:      time.Unix(1_800_000_000, 0),
		Settings: []unstructured.Unstructured{object(t, "Setting", "current-longhorn-version", "value: v1.10.0")},
		Volumes:  []unstructured.Unstructured{object(t, "Volume", "v", "status: {state: detached}")},
	}
	for _, n := range []string{"a", "b", "c"} {
		o.Nodes = append(o.Nodes, readyNode(n))
		o.Managers = append(o.Managers, object(t, "InstanceManager", "im-"+n,
			"spec: {nodeID: "+n+", type: aio}\nstatus: {currentState: running}"))
	}
	for _, n := range []string{"a", "b"} {
		o.Replicas = append(o.Replicas, object(t, "Replica", "v-"+n, "spec: {nodeID: "+n+`, volumeName: v, healthyAt: "2026",
  failedAt: "", desireState: stopped}
status: {currentState: stopped, instanceManagerName: im-`+n+"}"))
	}
	return o
}

func setting(name, value string) func(*testing.T, *longhorncluster.Objects) {
	return func(t *testing.T, o *longhorncluster.Objects) {
		t.Helper()
		o.Settings = append(o.Settings, object(t, "Setting", name, "value: "+value))
	}
}

func TestWorld(t *testing.T) {
	o := installation(t)
	setting("kubernetes-cluster-autoscaler-enabled", `"true"`)(t, &o)
	o.Replicas = append(o.Replicas, object(t, "Replica", "unscheduled", `spec: {volumeName: v, nodeID: ""}`))
	o.Managers[2] = object(t, "InstanceManager", "im-c", `spec: {nodeID: c, type: aio}
status: {currentState: running, instanceEngines: {v-e-0: {}}, instanceEngineFrontends: {w-ef-0: {}, v-e-0: {}}}`)
	o.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Value: "1799999999"}}
	o.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted"}}
	o.Nodes[1].Spec.Unschedulable = true
	o.Pods = []corev1.Pod{
		{
			ObjectMeta: metav1.ObjectMeta{
				Name: "bim", Labels: map[string]string{"longhorn.io/component": "backing-image-manager"},
			},
			Spec: corev1.PodSpec{NodeName: "c"},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "im-c", Labels: map[string]string{"longhorn.io/component": "instance-manager"}},
			Spec:       corev1.PodSpec{NodeName: "c"},
		},
	}
	w := o.World()
	require.Empty(t, w.Faults)
	require.Equal(t, longhorn.Settings{
		ClusterAutoscaler: true, DrainPolicy: longhorn.BlockIfContainsLastReplica,
	}, w.Settings)
	require.Len(t, w.Replicas, 2)
	require.Equal(t, longhorn.Replica{
		Name: "v-a", Volume: "v", Node: "a", Manager: "im-a", Healthy: true, Desired: "stopped", Current: "stopped",
	}, w.Replicas[0])
	require.Equal(t, []string{"v-e-0", "w-ef-0"}, w.Managers[2].Engines)
	require.Equal(t, longhorn.Node{Name: "a", Ready: true, HasRemovalTaint: true, RemovalTaint: "1799999999"}, w.Nodes[0])
	require.Equal(t, longhorn.Node{Name: "b", Ready: true, Cordoned: true, Disrupted: true}, w.Nodes[1])
	require.Equal(t, []string{"bim"}, w.Nodes[2].Helpers)
}

// TestEvicted: newer versions of Longhorn want a replica evicted, older ones have noted so.
func TestEvicted(t *testing.T) {
	for text, want := range map[string]bool{
		"spec: {nodeID: a, volumeName: v, evictionRequested: true}":                                   true,
		"spec: {nodeID: a, volumeName: v, evictionRequested: false}\nstatus: {currentState: running}": false,
		"spec: {nodeID: a, volumeName: v}\nstatus: {evictionRequested: true}":                         true,
	} {
		o := installation(t)
		o.Replicas = append(o.Replicas, object(t, "Replica", "r", text))
		w := o.World()
		require.Empty(t, w.Faults)
		require.Equal(t, want, w.Replicas[len(w.Replicas)-1].Evicted, text)
	}
}

// TestMalformed: what cannot be read is named, with its field and what is allowed, and what it may be about stays.
func TestMalformed(t *testing.T) {
	type change = func(*testing.T, *longhorncluster.Objects)
	for name, c := range map[string]struct {
		change change
		fault  string
		open   bool // whether node c, on which there is nothing, may still leave
	}{
		"a version that nobody knows": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Settings = nil
				setting("current-longhorn-version", "v2.0.0")(t, o)
			}, `Setting current-longhorn-version: value: "v2.0.0": allowed are v1.3 to v1.10`, false,
		},
		"no version": {
			func(_ *testing.T, o *longhorncluster.Objects) { o.Settings = nil },
			`Setting current-longhorn-version: value: "": allowed are v1.3 to v1.10`, false,
		},
		"a flag that is neither": {
			setting("kubernetes-cluster-autoscaler-enabled", "maybe"),
			`Setting kubernetes-cluster-autoscaler-enabled: value: "maybe": allowed are true and false`, false,
		},
		"an unknown policy": {
			setting("node-drain-policy", "now-and-then"), `Setting node-drain-policy: value: "now-and-then"`, true,
		},
		"a number for a node": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Replicas = append(o.Replicas, object(t, "Replica", "r", `spec: {nodeID: 7, volumeName: v, healthyAt: "2026"}`))
			}, `Replica r: spec.nodeID: "7": allowed are text`, false,
		},
		"data without a node": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Replicas = append(o.Replicas, object(t, "Replica", "r", `spec: {volumeName: v, healthyAt: "2026"}`))
			}, `Replica r: spec.nodeID: "": allowed are the node that has the data`, false,
		},
		"an eviction that is neither wanted nor not": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Replicas = append(o.Replicas, object(t, "Replica", "r",
					`spec: {nodeID: a, volumeName: v, healthyAt: "2026", evictionRequested: soon}`))
			}, `Replica r: spec.evictionRequested: "soon": allowed are true and false`, true,
		},
		"data of no volume": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Replicas = append(o.Replicas, object(t, "Replica", "r", `spec: {nodeID: a, healthyAt: "2026"}`))
			}, `Replica r: spec.volumeName: "": allowed are the name of a volume`, true,
		},
		"a list for a map": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Managers[0] = object(t, "InstanceManager", "im-a", "spec: {nodeID: a, type: aio}\nstatus: {instanceEngines: [x]}")
			}, `InstanceManager im-a: status.instanceEngines: "[x]": allowed are an object`, true,
		},
		"no status at all": {
			func(t *testing.T, o *longhorncluster.Objects) {
				t.Helper()
				o.Managers[0] = object(t, "InstanceManager", "im-a", "spec: {nodeID: a, type: aio}\nstatus: nothing")
			}, `InstanceManager im-a: status: `, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := installation(t)
			c.change(t, &o)
			for i := range o.Nodes {
				o.Nodes[i].Spec.Unschedulable = o.Nodes[i].Name != "b"
			}
			d := longhorn.Decide(o.World())
			require.NotEmpty(t, d.Faults)
			require.Contains(t, d.Faults[0].String(), c.fault)
			require.Equal(t, longhorn.Kept, d.Nodes[0].State, "a")
			want := longhorn.Kept
			if c.open {
				want = longhorn.Open
			}
			require.Equal(t, want, d.Nodes[2].State, "c")
		})
	}
}

// TestOlderSettings: the boolean that came before the drain policies.
func TestOlderSettings(t *testing.T) {
	o := installation(t)
	setting("allow-node-drain-with-last-healthy-replica", `"true"`)(t, &o)
	require.Equal(t, longhorn.AlwaysAllow, o.World().Settings.DrainPolicy)
	setting("node-drain-policy", "block-for-eviction")(t, &o)
	require.Equal(t, longhorn.BlockForEviction, o.World().Settings.DrainPolicy)
}
