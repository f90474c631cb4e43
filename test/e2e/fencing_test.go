package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/test/remediator"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// This file is what scenarios of fencing are told in.

// machinesNamespace is where the lab has its Machines.
const machinesNamespace = "machines"

// machine is a Machine, or a Node where Nodes are held, as far as a scenario looks at it.
type machine struct {
	Metadata struct {
		Name, UID           string
		Annotations, Labels map[string]string
		DeletionTimestamp   *time.Time
	}
	Spec struct {
		ProviderID     string
		LifecycleHooks struct{ PreDrain, PreTerminate []struct{ Name string } }
	}
	Status struct{ NodeRef struct{ Name string } }
}

// held tells whether lockkeeper holds it, in the way of any API.
func (m machine) held() bool {
	has := func(of map[string]string, key string) bool { _, is := of[key]; return is }
	a, l, hooks := m.Metadata.Annotations, m.Metadata.Labels, m.Spec.LifecycleHooks
	return has(a, hookOf("pre-drain")) && has(a, hookOf("pre-terminate")) ||
		has(a, "cluster.x-k8s.io/skip-remediation") ||
		has(l, "fencegroup.rook.io/"+policyName) ||
		has(l, "remediation.medik8s.io/exclude-from-remediation") ||
		len(hooks.PreDrain) > 0 && len(hooks.PreTerminate) > 0
}

func (m machine) in(zone string) bool { return strings.Contains(m.Spec.ProviderID, "/"+zone+"/") }

// kindOfMachine is that of Machines, as kubectl takes it, and where the API server has them.
func (w *world) kindOfMachine() (kind []string, path string) {
	const in = "/namespaces/" + machinesNamespace + "/machines"
	switch w.fencedBy() {
	case clusterAPI:
		return []string{"-n", machinesNamespace, "machines.v1beta2.cluster.x-k8s.io"}, "/apis/cluster.x-k8s.io/v1beta2" + in
	case remediator.NodeHealths:
		return []string{"nodes"}, corePath + "/nodes"
	}
	return []string{"-n", machinesNamespace, "machines.machine.openshift.io"}, "/apis/machine.openshift.io/v1beta1" + in
}

// machines are all that have nodes, by these.
func (w *world) machines() (map[string]machine, error) {
	var list struct{ Items []machine }
	_, path := w.kindOfMachine()
	if err := w.get(&list, path); err != nil {
		return nil, err
	}
	byNode := map[string]machine{}
	for _, m := range list.Items {
		if w.fencedBy() == remediator.NodeHealths {
			m.Status.NodeRef.Name = m.Metadata.Name
		}
		if m.Status.NodeRef.Name != "" {
			byNode[m.Status.NodeRef.Name] = m
		}
	}
	return byNode, nil
}

// hosts are the nodes with running OSDs and mons: OSDs by name, "mon.a" for a mon. Pods that end do not count.
func (w *world) hosts() (map[string][]string, error) {
	var pods struct {
		Items []struct {
			Metadata struct {
				Labels            map[string]string
				DeletionTimestamp *time.Time
			}
			Spec   struct{ NodeName string }
			Status struct{ Phase string }
		}
	}
	if err := w.get(&pods, podsPath); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, p := range pods.Items {
		kind := strings.TrimPrefix(p.Metadata.Labels["app"], "rook-ceph-")
		if p.Metadata.DeletionTimestamp == nil && p.Status.Phase == "Running" && (kind == "osd" || kind == "mon") {
			out[p.Spec.NodeName] = append(out[p.Spec.NodeName], kind+"."+p.Metadata.Labels["ceph_daemon_id"])
		}
	}
	return out, nil
}

// hostsAndMachines are what each node hosts, and its Machine.
func (w *world) hostsAndMachines() (map[string][]string, map[string]machine, error) {
	hosts, err := w.hosts()
	if err != nil {
		return nil, nil, err
	}
	machines, err := w.machines()
	return hosts, machines, err
}

// machineIn finds the Machine of a node of a zone that hosts an OSD and no mon: a mon's disk stays with its node. Of
// "zone-x/mon" it is that of the node with a mon, of "zone-x/nothing" one of a node with neither.
func (w *world) machineIn(where string) (machine, error) {
	hosts, machines, err := w.hostsAndMachines()
	if err != nil {
		return machine{}, err
	}
	zone, what, _ := strings.Cut(where, "/")
	if what == "nothing" {
		for node, m := range machines {
			if len(hosts[node]) == 0 && m.in(zone) {
				return m, nil
			}
		}
	}
	withMon := what == "mon"
	for node, daemons := range hosts {
		mon := slices.ContainsFunc(daemons, func(d string) bool { return strings.HasPrefix(d, "mon") })
		if mon == withMon && machines[node].in(zone) {
			return machines[node], nil
		}
	}
	return machine{}, fmt.Errorf("no node is as in %s: %v", where, hosts)
}

// spread has an OSD of the zone live on a node without a mon, where machineIn finds it.
func (w *world) spread(zone string) error {
	if _, err := w.machineIn(zone); err == nil {
		return nil
	}
	hosts, machines, err := w.hostsAndMachines()
	if err != nil {
		return err
	}
	for node, daemons := range hosts {
		osd := slices.IndexFunc(daemons, func(d string) bool { return strings.HasPrefix(d, "osd.") })
		if osd < 0 || !machines[node].in(zone) {
			continue
		}
		if err := w.run("kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m",
			"--pod-selector", "app=rook-ceph-osd,ceph_daemon_id="+strings.TrimPrefix(daemons[osd], "osd.")); err != nil {
			return err
		}
		moved := until(patience, func() error { _, err := w.machineIn(zone); return err })
		return errors.Join(moved, w.run("kubectl", "uncordon", node), until(patience, w.notWhole))
	}
	return fmt.Errorf("no node of %s hosts an OSD: %v", zone, hosts)
}

// fencingWords are those of scenarios with Machines.
func (w *world) fencingWords() map[string]word {
	return map[string]word{
		"spread": {"ZONE", func(w *world, a []string) error { return w.spread(a[0]) }},
		"held":   {"", func(w *world, _ []string) error { return until(patience, w.allHeld) }},
		"lose": {"ZONE", func(w *world, a []string) error {
			m, err := w.doom(a[0])
			if err != nil {
				return err
			}
			return w.fault("node-lost", m.Status.NodeRef.Name)
		}},
		"delete-machine": {"ZONE", func(w *world, a []string) error {
			m, err := w.doom(a[0])
			if err != nil {
				return err
			}
			kind, _ := w.kindOfMachine()
			return w.run("kubectl", append(append([]string{"delete", "--wait=false"}, kind...), m.Metadata.Name)...)
		}},
		"power-returns": {"ZONE", func(w *world, a []string) error {
			return w.fault("node-return", w.fenced[a[0]].Status.NodeRef.Name)
		}},
		"network-returns": {"ZONE", func(w *world, a []string) error {
			return w.fault("node-return", w.fenced[a[0]].Status.NodeRef.Name)
		}},
		"unready": {"ZONE", func(w *world, a []string) error { return w.awaitNode(a[0], "Ready=Unknown") }},
		"ready":   {"ZONE", func(w *world, a []string) error { return w.awaitNode(a[0], "Ready=True") }},
		"shrink":  {"ZONE", func(w *world, a []string) error { return w.shrink(a[0]) }},
		"grow":    {"ZONE", func(w *world, a []string) error { return w.scalePool(a[0], 1) }},
		"fence-rights": {"", func(w *world, _ []string) error {
			return w.run("kubectl", "-n", machinesNamespace, "apply", "-f",
				filepath.Join(w.root, "deploy", "fencing-namespace.yaml"))
		}},
		"no-fence-rights": {"", func(w *world, _ []string) error {
			return w.run("kubectl", "-n", machinesNamespace, "delete", "rolebinding", "lockkeeper-worker-fencing")
		}},
		"not-replaced": {"ZONE DURATION", func(w *world, a []string) error { return w.notReplaced(a[0], a[1]) }},
		"fence-says": {"ZONE REGEXP", func(w *world, a []string) error {
			return w.eventually(patience, a[1], "lockkeeper", "fence", "status", w.fenced[a[0]].Status.NodeRef.Name)
		}},
		"fence-release": {"ZONE REASON", func(w *world, a []string) error {
			node := w.fenced[a[0]].Status.NodeRef.Name
			if w.fencer != nil {
				w.fencer.byHand.Store(node, true)
			}
			return w.run("lockkeeper", "fence", "release", node, "--reason", a[1])
		}},
		"fence-history": {"ZONE REGEXP", func(w *world, a []string) error {
			return w.eventually(patience, a[1], "lockkeeper", "history", "fence/"+w.fenced[a[0]].Status.NodeRef.Name)
		}},
		"health-check": {"LIMIT TEMPLATE", func(w *world, a []string) error { return w.setHealthCheck(a[0], a[1]) }},
		"fencing": {"PATCH", func(w *world, a []string) error {
			return w.run("kubectl", "-n", cephNamespace, "patch", "maintenancepolicy", policyName, "--type=merge", "-p",
				`{"spec":{"fencing":`+a[0]+`}}`)
		}},
		"no-replacements": {"ZONE", func(w *world, a []string) error { return w.takeTemplate(a[0]) }},
		"replacements":    {"", func(w *world, _ []string) error { return w.restoreTemplate() }},
		"replaced": {"ZONE", func(w *world, a []string) error {
			return until(patience, func() error { return w.replaced(w.fenced[a[0]]) })
		}},
		"fence-ended": {"ZONE OUTCOME", func(w *world, a []string) error {
			return w.eventually(patience, `"outcome": "`+a[1]+`"`, "temporal", "workflow", "result", "--workflow-id",
				"fence/"+w.fenced[a[0]].Status.NodeRef.Name, "-o", "json")
		}},
		"hold-by-hand": {"ZONE", func(w *world, a []string) error {
			m, err := w.doom(a[0])
			if err != nil {
				return err
			}
			return w.annotateMachine(m, hookOf("pre-drain")+"=", hookOf("pre-terminate")+"=")
		}},
		"no-hold-by-hand": {"ZONE", func(w *world, a []string) error {
			return w.annotateMachine(w.fenced[a[0]], hookOf("pre-drain")+"-", hookOf("pre-terminate")+"-")
		}},
		"control-plane": {"ZONE", func(w *world, a []string) error {
			m, err := w.machineIn(a[0])
			if err != nil {
				return err
			}
			kind, _ := w.kindOfMachine()
			return w.run("kubectl", append(append([]string{"label"}, kind...), m.Metadata.Name,
				"cluster.x-k8s.io/control-plane=")...)
		}},
		"roll-out": {"ZONE", func(w *world, a []string) error { return w.rollPool(a[0]) }},
		"rolled-out": {"ZONE", func(w *world, a []string) error {
			return until(2*patience, func() error { return w.rolledOut(a[0]) })
		}},
		"take-hold": {"ZONE", func(w *world, a []string) error {
			m, err := w.machineIn(a[0])
			if err != nil {
				return err
			}
			return w.annotateMachine(m, hookOf("pre-drain")+"-")
		}},
	}
}

// hookOf is lockkeeper's annotation on a Machine of Cluster API, of a kind: pre-drain or pre-terminate.
func hookOf(kind string) string {
	return kind + ".delete.hook.machine.cluster.x-k8s.io/lockkeeper." + cephNamespace + "." + policyName
}

func (w *world) annotateMachine(m machine, annotations ...string) error {
	kind, _ := w.kindOfMachine()
	return w.run("kubectl", append(append(append([]string{"annotate"}, kind...), m.Metadata.Name), annotations...)...)
}

// pools are the MachineDeployments of the zones.
const pools = "machinedeployments.v1beta2.cluster.x-k8s.io"

// shrink takes a Machine from the pool of a zone, which is to be the one that is chosen here.
func (w *world) shrink(zone string) error {
	m, err := w.doom(zone)
	if err != nil {
		return err
	}
	return errors.Join(w.annotateMachine(m, "cluster.x-k8s.io/delete-machine="), w.scalePool(zone, -1))
}

func (w *world) scalePool(zone string, by int) error {
	var pool struct{ Spec struct{ Replicas int } }
	if err := w.read(&pool, "kubectl", "-n", machinesNamespace, "get", pools, zone, "-o", "json"); err != nil {
		return err
	}
	return w.run("kubectl", "-n", machinesNamespace, "scale", pools, zone,
		fmt.Sprintf("--replicas=%d", pool.Spec.Replicas+by))
}

// rollPool has all Machines of a zone made anew, each under another name, as an upgrade does.
func (w *world) rollPool(zone string) error {
	before, err := w.machines()
	if err != nil {
		return err
	}
	if w.rolled == nil {
		w.rolled = map[string][]machine{}
	}
	w.rolled[zone] = slices.Collect(maps.Values(before))
	return w.run("kubectl", "-n", machinesNamespace, "patch", pools, zone, "--type=merge", "-p",
		`{"spec":{"rollout":{"after":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}`)
}

// rolledOut: all Machines of a zone that rollPool saw are gone, and others are in their place.
func (w *world) rolledOut(zone string) error {
	for _, m := range w.rolled[zone] {
		if m.in(zone) {
			if err := w.replaced(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitNode waits until the node that was last cut off in a zone has a condition.
func (w *world) awaitNode(zone, condition string) error {
	node := w.fenced[zone].Status.NodeRef.Name
	return w.run("kubectl", "wait", "node", node, "--for=condition="+condition, "--timeout=1m")
}

// notReplaced: for that long the Machine that a zone has lost stays, whatever else becomes of it.
func (w *world) notReplaced(zone, duration string) error {
	if err := pass(duration); err != nil {
		return err
	}
	machines, err := w.machines()
	if err != nil {
		return err
	}
	for _, m := range machines {
		if m.Metadata.UID == w.fenced[zone].Metadata.UID {
			return nil
		}
	}
	return fmt.Errorf("Machine %s is gone", w.fenced[zone].Metadata.Name)
}

// setHealthCheck says how many Machines may be unhealthy, and from which template remediations are made; "-": Machines
// are deleted.
func (w *world) setHealthCheck(limit, template string) error {
	reference := "null"
	if template != "-" {
		reference = `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"LabRemediationTemplate","name":"` +
			template + `"}`
	}
	return w.run("kubectl", "-n", machinesNamespace, "patch", "machinehealthchecks.v1beta2.cluster.x-k8s.io", "workers",
		"--type=merge", "-p", `{"spec":{"remediation":{"triggerIf":{"unhealthyLessThanOrEqualTo":"`+limit+
			`"},"templateRef":`+reference+`}}}`)
}

// takeTemplate has a zone get no new Machines: what they are made from is deleted.
func (w *world) takeTemplate(zone string) error {
	var o map[string]any
	const kind = "labmachinetemplates.infrastructure.cluster.x-k8s.io"
	if err := w.read(&o, "kubectl", "-n", machinesNamespace, "get", kind, zone, "-o", "json"); err != nil {
		return err
	}
	o["metadata"] = map[string]any{"name": zone, "namespace": machinesNamespace}
	template, err := json.Marshal(o)
	w.template = string(template)
	return errors.Join(err, w.run("kubectl", "-n", machinesNamespace, "delete", kind, zone))
}

// restoreTemplate undoes takeTemplate. Cluster API tries again at once only if something happens to its MachineSets.
func (w *world) restoreTemplate() error {
	return errors.Join(w.apply(w.template), w.run("kubectl", "-n", machinesNamespace, "annotate",
		"machinesets.v1beta2.cluster.x-k8s.io", "--all", "--overwrite", "tried-again="+time.Now().Format("150405")))
}

// doom chooses the Machine that a zone is about to lose, and remembers it.
func (w *world) doom(zone string) (machine, error) {
	m, err := w.machineIn(zone)
	if err != nil {
		return machine{}, err
	}
	if w.fenced == nil {
		w.fenced = map[string]machine{}
	}
	w.fenced[zone] = m
	if w.fencer != nil {
		w.fencer.before[zone] = len(w.fencer.Fenced())
	}
	return m, nil
}

// allHeld: every Machine that hosts an OSD or a mon is held, and no other one.
func (w *world) allHeld() error {
	hosts, machines, err := w.hostsAndMachines()
	if err != nil {
		return err
	}
	for node, m := range machines {
		if want := len(hosts[node]) > 0; m.held() != want {
			return fmt.Errorf("Machine %s of %s: held %t, and it hosts %v", m.Metadata.Name, node, m.held(), hosts[node])
		}
	}
	return nil
}

// workers is how many Machines the lab has.
func (w *world) workers() int {
	if w.fencedBy() == clusterAPI {
		return 7
	}
	return 6
}

// replaced: the Machine is gone, as many as before have nodes, and all OSDs run.
func (w *world) replaced(old machine) error {
	machines, err := w.machines()
	if err != nil {
		return err
	}
	for _, m := range machines {
		if m.Metadata.UID == old.Metadata.UID {
			return fmt.Errorf("Machine %s is still there (held %t)", m.Metadata.Name, m.held())
		}
	}
	if len(machines) < w.workers() {
		return fmt.Errorf("%d of %d Machines have nodes", len(machines), w.workers())
	}
	hosts, err := w.hosts()
	if err != nil {
		return err
	}
	osds := 0
	for _, daemons := range hosts {
		for _, d := range daemons {
			if strings.HasPrefix(d, "osd") {
				osds++
			}
		}
	}
	if osds < 6 {
		return fmt.Errorf("%d of 6 OSDs run", osds)
	}
	return nil
}

// withoutClusterAPI tells whether Cluster API's manager is not built, so that its scenarios are left out.
func withoutClusterAPI(t *testing.T) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(*root, "lab", "bin", "cluster-api")); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if turns.OnlyWithAll("scenarios of fencing: make cluster-api") {
		t.Fatal("Cluster API is not built: run make cluster-api")
	}
	return true
}
