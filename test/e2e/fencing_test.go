package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// This file is what scenarios of fencing are told in, and who watches that never two Machines are released at once.

// machinesNamespace is where the lab has its Machines.
const machinesNamespace = "machines"

// machine is a Machine, as far as a scenario looks at it.
type machine struct {
	Metadata struct {
		Name, UID           string
		Annotations, Labels map[string]string
		DeletionTimestamp   *time.Time
	}
	Spec   struct{ ProviderID string }
	Status struct{ NodeRef struct{ Name string } }
}

func (m machine) held() bool {
	const hook = ".delete.hook.machine.cluster.x-k8s.io/lockkeeper." + cephNamespace + "." + policyName
	_, drain := m.Metadata.Annotations["pre-drain"+hook]
	_, end := m.Metadata.Annotations["pre-terminate"+hook]
	_, covered := m.Metadata.Labels["fencegroup.rook.io/"+policyName]
	return drain && end || covered
}

func (m machine) in(zone string) bool { return strings.Contains(m.Spec.ProviderID, "/"+zone+"/") }

func (w *world) machines() (map[string]machine, error) {
	kind := "machines.v1beta2.cluster.x-k8s.io"
	if w.ofBudgets() {
		kind = "machines.machine.openshift.io"
	}
	var list struct{ Items []machine }
	if err := w.read(&list, "kubectl", "-n", machinesNamespace, "get", kind, "-o", "json"); err != nil {
		return nil, err
	}
	byNode := map[string]machine{}
	for _, m := range list.Items {
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
	if err := w.read(&pods, "kubectl", "-n", cephNamespace, "get", "pods", "-l", "app in (rook-ceph-osd, rook-ceph-mon)",
		"-o", "json"); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, p := range pods.Items {
		if p.Metadata.DeletionTimestamp == nil && p.Status.Phase == "Running" {
			kind := strings.TrimPrefix(p.Metadata.Labels["app"], "rook-ceph-")
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

// machineIn finds the Machine of a node of a zone that hosts an OSD and no mon: a mon's disk stays with its node.
func (w *world) machineIn(zone string) (machine, error) {
	hosts, machines, err := w.hostsAndMachines()
	if err != nil {
		return machine{}, err
	}
	for node, daemons := range hosts {
		if !slices.ContainsFunc(daemons, func(d string) bool { return strings.HasPrefix(d, "mon") }) &&
			machines[node].in(zone) {
			return machines[node], nil
		}
	}
	return machine{}, fmt.Errorf("no node of %s hosts an OSD and no mon: %v", zone, hosts)
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
			return w.run("kubectl", "-n", machinesNamespace, "delete", "machines.v1beta2.cluster.x-k8s.io",
				m.Metadata.Name, "--wait=false")
		}},
		"replaced": {"ZONE", func(w *world, a []string) error {
			return until(patience, func() error { return w.replaced(w.fenced[a[0]]) })
		}},
		"fence-ended": {"ZONE OUTCOME", func(w *world, a []string) error {
			return w.eventually(patience, `"outcome": "`+a[1]+`"`, "temporal", "workflow", "result", "--workflow-id",
				"fence/"+w.fenced[a[0]].Status.NodeRef.Name, "-o", "json")
		}},
		"take-hold": {"ZONE", func(w *world, a []string) error {
			m, err := w.machineIn(a[0])
			if err != nil {
				return err
			}
			return w.run("kubectl", "-n", machinesNamespace, "annotate", "machines.v1beta2.cluster.x-k8s.io",
				m.Metadata.Name, "pre-drain.delete.hook.machine.cluster.x-k8s.io/lockkeeper."+cephNamespace+"."+policyName+"-")
		}},
	}
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
	if len(machines) < 7 {
		return fmt.Errorf("%d of 7 Machines have nodes", len(machines))
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

// watchReleases looks every half second that at most one Machine that hosts something is released, until stop is
// called. It looks at the policy's status, where a release is written down before it is made.
func (w *world) watchReleases(t *testing.T) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
			out, err := w.command("kubectl", "-n", cephNamespace, "get", "maintenancepolicy", policyName, "-o",
				"jsonpath={.status.fencing.nodes}").Output()
			var nodes []struct {
				Node, Stage  string
				HostsNothing bool
			}
			if err != nil || len(out) == 0 || json.Unmarshal(out, &nodes) != nil {
				continue
			}
			var released []string
			for _, n := range nodes {
				if n.Stage == "Released" && !n.HostsNothing {
					released = append(released, n.Node)
				}
			}
			if len(released) > 1 {
				t.Errorf("released at once: %v", released)
			}
		}
	}()
	return func() { close(done); <-ended }
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
