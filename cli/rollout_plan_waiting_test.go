package cli

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

const waitingID = "restart-waiting/rook-ceph/rook-ceph"

// waitingWorld is a storage cluster of six OSDs in three zones, all of which and two mons somebody wants restarted.
func waitingWorld() *world {
	w := newWorld()
	w.hosts = map[string]string{}
	for i := range 6 {
		node, zone := fmt.Sprintf("node-%c", 'a'+i), fmt.Sprintf("zone-%c", 'x'+i%3)
		w.hosts[node] = ""
		w.pods = append(w.pods, storageview.Pod{
			Name: fmt.Sprintf("osd-%d", i), OSD: i, Node: node, Labels: map[string]string{"topology-location-zone": zone},
		})
		if i < 2 {
			w.wish(fmt.Sprintf("mon.%c", 'a'+i), "mon", node, "Deployment/mon")
		}
		w.wish(fmt.Sprintf("osd.%d", i), fmt.Sprintf("osd-%d", i), node, "Deployment/osd")
	}
	return w
}

func (w *world) wish(daemon, pod, node, owner string) {
	w.wishes = append(w.wishes, kube.StorageWish{
		Daemon: daemon, Wish: wish.Wish{Pod: pod, Node: node, Owner: owner, Newer: true},
	})
}

func (w *world) restartWindow(schedule string) {
	w.policy.Spec.Ceph.RestartWindows = []cephv1alpha1.Window{
		{Schedule: schedule, Duration: metav1.Duration{Duration: 3 * time.Hour}},
	}
}

// TestPlanOfWhatWaits: mons one by one, then the first OSD alone, then failure domain by failure domain.
func TestPlanOfWhatWaits(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"all": func(*world) {},
		"a-node-is-away-and-one-goes-for-good": func(w *world) {
			w.hosts["node-b"] = "node node-b is cordoned"
			w.wishes[len(w.wishes)-1].Newer = false
		},
		"a-zone-is-open": func(w *world) {
			w.policy.Status.OpenFailureDomain = &v1alpha1.FailureDomain{Type: "zone", Name: "zone-z"}
			w.wishes = w.wishes[4:]
		},
		"a-mon-has-a-node-of-its-own": func(w *world) {
			w.hosts["node-m"] = ""
			w.wish("mon.m", "mon", "node-m", "Deployment/mon")
		},
		"observed": func(w *world) { w.policy.Spec.Ceph.Restarts = v1alpha1.RestartsObserve },
		"nothing":  func(w *world) { w.wishes = nil },
		"outside-its-windows": func(w *world) {
			w.policy.Spec.Ceph.Restarts = v1alpha1.RestartsAutomatic
			w.restartWindow("0 2 1 1 *")
		},
		"with-a-wrong-window": func(w *world) { w.restartWindow("0 25 * * *") },
	} {
		t.Run(name, func(t *testing.T) {
			w := waitingWorld()
			edit(w)
			c, out, _ := w.command()
			p, err := c.PlanWaiting(t.Context(), waitingID)
			require.NoError(t, err)
			p.Write(out)
			golden(t, "plan-waiting-"+name+".txt", out.String())
		})
	}
	c, _, _ := waitingWorld().command()
	_, err := c.PlanWaiting(t.Context(), "update-osds/ceph/osds")
	assert.ErrorContains(t, err, "--plan")
	_, err = c.PlanWaiting(t.Context(), "drain/node-a")
	assert.ErrorContains(t, err, "JOB")
}
