package rookceph

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// find returns the daemon of that name.
func find(t *testing.T, c cluster, name string) daemon {
	t.Helper()
	all := c.daemons()
	i := slices.IndexFunc(all, func(d daemon) bool { return d.name() == name })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	return all[i]
}

// Others find the daemons by these labels, on the Deployment and on the pod.
func TestLabelsAreRooks(t *testing.T) {
	c := sized(3, 2, 2)
	for name, want := range map[string]map[string]string{
		"rook-ceph-osd-3": {
			"app": "rook-ceph-osd", "ceph-osd-id": "3", "osd": "3", "ceph_daemon_type": "osd", "ceph_daemon_id": "3",
			"rook_cluster": "rook-ceph", "failure-domain": "node-b", "topology-location-root": "default",
			"topology-location-zone": "zone-y", "topology-location-host": "node-b",
		},
		"rook-ceph-mon-c": {
			"app": "rook-ceph-mon", "mon": "c", "ceph_daemon_type": "mon", "ceph_daemon_id": "c",
			"rook_cluster": "rook-ceph",
		},
		"rook-ceph-mgr-a": {
			"app": "rook-ceph-mgr", "mgr": "a", "ceph_daemon_type": "mgr", "ceph_daemon_id": "a",
			"rook_cluster": "rook-ceph",
		},
	} {
		dep := c.deployment(find(t, c, name))
		for k, v := range want {
			if dep.Labels[k] != v || dep.Spec.Template.Labels[k] != v {
				t.Errorf("%s: label %s is %q and %q, want %q", name, k, dep.Labels[k], dep.Spec.Template.Labels[k], v)
			}
		}
	}
}

func TestEachDeploymentSelectsItsOwnPodOnly(t *testing.T) {
	c := sized(3, 2, 2)
	for _, a := range c.daemons() {
		selector := labels.SelectorFromSet(c.deployment(a).Spec.Selector.MatchLabels)
		for _, b := range c.daemons() {
			if got := selector.Matches(labels.Set(c.deployment(b).Spec.Template.Labels)); got != (a.name() == b.name()) {
				t.Errorf("%s selects %s: %v", a.name(), b.name(), got)
			}
		}
	}
}

// A daemon with a disk stays on its node and waits while that is cordoned; the manager has nothing to stay for.
func TestPlacement(t *testing.T) {
	c := sized(3, 2, 1)
	for name, node := range map[string]string{
		"rook-ceph-osd-4": "node-e", "rook-ceph-mon-b": "node-b",
		"rook-ceph-mgr-a": "",
	} {
		spec := c.deployment(find(t, c, name)).Spec.Template.Spec
		if got := spec.NodeSelector[corev1.LabelHostname]; got != node {
			t.Errorf("%s: on %q, want %q", name, got, node)
		}
		if (len(spec.Tolerations) == 0) != (node != "") {
			t.Errorf("%s: tolerations %v", name, spec.Tolerations)
		}
	}
}

func TestPortsDoNotOverlap(t *testing.T) {
	c := sized(3, 4, 8)
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	first, last := c.inst.Ports.CephDaemons()
	next := c.mgrPort()
	if next != first {
		t.Errorf("the manager's first port is %d, want %d", next, first)
	}
	for _, osd := range c.topo.OSDs() {
		next += portsPerDaemon
		if got := c.osdPort(osd.ID); got != next || got+portsPerDaemon-1 > last {
			t.Errorf("osd.%d from %d, want %d", osd.ID, got, next)
		}
	}
}
