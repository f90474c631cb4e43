package longhorncluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// Objects are the objects of an installation, as the API server has them.
type Objects struct {
	Now      time.Time
	Before   Before
	Settings []unstructured.Unstructured
	Managers []unstructured.Unstructured
	Volumes  []unstructured.Unstructured
	Replicas []unstructured.Unstructured
	Nodes    []corev1.Node
	Pods     []corev1.Pod
}

// Labels and settings of others.
const (
	componentLabel      = "longhorn.io/component"
	settingAutoscaler   = "kubernetes-cluster-autoscaler-enabled"
	settingDrainPolicy  = "node-drain-policy"
	settingLastReplica  = "allow-node-drain-with-last-healthy-replica" // before 1.4
	settingVersion      = "current-longhorn-version"
	oldestMinor         = 3
	newestMinor         = 10
	maintainedVersions  = "v1.3 to v1.10"
	settingObjectPrefix = "Setting "
)

// World turns the objects into what a decision needs.
func (o Objects) World() longhorn.World {
	w := longhorn.World{
		Now: o.Now, TaintExpiry: o.Before.TaintExpiry, EvictOnRemoval: o.Before.EvictOnRemoval, Kept: o.Before.Kept,
		Going: o.Before.Going,
	}
	o.readSettings(&w)
	for i := range o.Managers {
		w.Managers = append(w.Managers, manager(&o.Managers[i], &w.Faults))
	}
	for i := range o.Volumes {
		f := fields{object: &o.Volumes[i], faults: &w.Faults}
		w.Volumes = append(w.Volumes, longhorn.Volume{Name: f.object.GetName(), State: f.text("status", "state")})
	}
	for i := range o.Replicas {
		if r, ok := replica(&o.Replicas[i], &w.Faults); ok {
			w.Replicas = append(w.Replicas, r)
		}
	}
	helpers := map[string][]string{}
	for _, p := range o.Pods {
		done := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if longhorn.IsHelper(p.Labels[componentLabel]) && p.Spec.NodeName != "" && !done {
			helpers[p.Spec.NodeName] = append(helpers[p.Spec.NodeName], p.Name)
		}
	}
	for i := range o.Nodes {
		w.Nodes = append(w.Nodes, node(&o.Nodes[i], helpers[o.Nodes[i].Name]))
	}
	return w
}

func node(n *corev1.Node, helpers []string) longhorn.Node {
	signs := leaving.Of(n)
	out := longhorn.Node{
		Name: n.Name, Cordoned: signs.Cordoned, Deleting: signs.Deleting, HasRemovalTaint: signs.Tainted,
		RemovalTaint: signs.Taint, Disrupted: signs.Disrupted, Pinned: kube.PinnedByPerson(n),
		Helpers: slices.Sorted(slices.Values(helpers)),
	}
	for _, c := range n.Status.Conditions {
		out.Ready = out.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return out
}

func manager(object *unstructured.Unstructured, faults *[]longhorn.Fault) longhorn.Manager {
	f := fields{object: object, faults: faults}
	f.node = f.text("spec", "nodeID")
	m := longhorn.Manager{
		Name: object.GetName(), Node: f.node, Kind: longhorn.Kind(f.text("spec", "type")),
		State: f.text("status", "currentState"),
	}
	m.Engines = append(f.keys("status", "instanceEngines"), f.keys("status", "instanceEngineFrontends")...)
	if m.Kind == longhorn.Engine { // Longhorn 1.3 and older have one map for all
		m.Engines = append(m.Engines, f.keys("status", "instances")...)
	}
	slices.Sort(m.Engines)
	m.Engines = slices.Compact(m.Engines)
	return m
}

// replica reads a replica. One that was never scheduled is none.
func replica(object *unstructured.Unstructured, faults *[]longhorn.Fault) (longhorn.Replica, bool) {
	f := fields{object: object, faults: faults}
	f.node = f.text("spec", "nodeID")
	r := longhorn.Replica{
		Name: object.GetName(), Node: f.node, Volume: f.text("spec", "volumeName"),
		Manager: f.text("status", "instanceManagerName"),
		Healthy: f.text("spec", "healthyAt") != "", Failed: f.text("spec", "failedAt") != "",
		Evicted: f.flag("spec", "evictionRequested") || f.flag("status", "evictionRequested"), // the latter before 1.6
		Desired: f.text("spec", "desireState"), Current: f.text("status", "currentState"),
	}
	switch data := r.Healthy || r.Failed; {
	case r.Node == "" && !data:
		return r, false
	case r.Node == "":
		f.fault("", "the node that has the data", "spec", "nodeID")
		return r, false
	case r.Volume == "":
		f.fault("", "the name of a volume", "spec", "volumeName")
		return r, false
	}
	return r, true
}

// readSettings reads the settings that decide. One that is missing has Longhorn's default.
func (o Objects) readSettings(w *longhorn.World) {
	faults := &w.Faults
	values := map[string]string{}
	for i := range o.Settings {
		f := fields{object: &o.Settings[i], faults: faults}
		values[o.Settings[i].GetName()] = f.text("value")
	}
	refuse := func(name, allowed string) {
		*faults = append(*faults, longhorn.Fault{
			Object: settingObjectPrefix + name, Field: "value", Value: values[name], Allowed: allowed,
		})
	}
	flag := func(name string) bool {
		switch values[name] {
		case "true":
			return true
		case "", "false":
		default:
			refuse(name, "true and false")
		}
		return false
	}
	w.Version = values[settingVersion]
	if !knownVersion(w.Version) {
		refuse(settingVersion, maintainedVersions)
	}
	w.Settings = longhorn.Settings{
		ClusterAutoscaler: flag(settingAutoscaler),
		DrainPolicy: longhorn.DrainPolicy(cmp.Or(values[settingDrainPolicy],
			string(longhorn.BlockIfContainsLastReplica))),
	}
	if _, newer := values[settingDrainPolicy]; !newer && flag(settingLastReplica) {
		w.Settings.DrainPolicy = longhorn.AlwaysAllow
	}
}

// knownVersion tells whether a version of Longhorn has the fields that are read here, with their meaning.
func knownVersion(version string) bool {
	rest, ok := strings.CutPrefix(version, "v1.")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return ok && err == nil && n >= oldestMinor && n <= newestMinor
}

// fields reads the fields of an object, and notes those that are not what they should be.
type fields struct {
	object *unstructured.Unstructured
	faults *[]longhorn.Fault
	node   string // whose protection does not depend on the object any more
}

// text is a field that is text; "" where it is missing.
func (f fields) text(path ...string) string {
	value, found, err := unstructured.NestedFieldNoCopy(f.object.Object, path...)
	if err != nil {
		f.fault(err.Error(), "an object", path[:len(path)-1]...)
		return ""
	}
	text, is := value.(string)
	if found && value != nil && !is {
		f.fault(fmt.Sprint(value), "text", path...)
	}
	return text
}

// flag is a field that is true or false; false where it is missing.
func (f fields) flag(path ...string) bool {
	value, found, err := unstructured.NestedFieldNoCopy(f.object.Object, path...)
	if err != nil {
		f.fault(err.Error(), "an object", path[:len(path)-1]...)
		return false
	}
	is, right := value.(bool)
	if found && value != nil && !right {
		f.fault(fmt.Sprint(value), "true and false", path...)
	}
	return is
}

// keys are the keys of a field that is a map.
func (f fields) keys(path ...string) []string {
	value, found, err := unstructured.NestedFieldNoCopy(f.object.Object, path...)
	if err != nil {
		f.fault(err.Error(), "an object", path[:len(path)-1]...)
		return nil
	}
	entries, is := value.(map[string]any)
	if found && value != nil && !is {
		f.fault(fmt.Sprint(value), "an object", path...)
	}
	return slices.Sorted(maps.Keys(entries))
}

func (f fields) fault(value, allowed string, path ...string) {
	*f.faults = append(*f.faults, longhorn.Fault{
		Object: cmp.Or(f.object.GetKind(), "object") + " " + f.object.GetName(), Field: strings.Join(path, "."), Value: value,
		Allowed: allowed, Node: f.node,
	})
}
