package workflows_test

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is how nodes of a toy store leave, and the words in which scripts tell of it.

// taint is what Cluster Autoscaler writes on a node that it removes; set is when.
func taint(set time.Time) leaving.Signs {
	return leaving.Signs{Tainted: true, Taint: strconv.FormatInt(set.Unix(), 10)}
}

// announces has a node show signs of its leaving, or none any more.
func (t *toyStore) announces(node string, signs leaving.Signs) {
	t.happens(func() { t.nodes[node].signs = signs })
}

// remove deletes a node, as an autoscaler does when it is empty.
func (t *toyStore) remove(node string) {
	t.happens(func() {
		delete(t.nodes, node)
		for v, copies := range t.volumes {
			t.volumes[v] = slices.DeleteFunc(copies, func(x string) bool { return x == node })
		}
	})
}

// autoscales removes a node as an autoscaler does: its pod goes as soon as it may, and then the machine, unless the
// node is to stay by then.
func (t *toyStore) autoscales(node string) {
	go func() {
		went := false
		_ = t.await(t.scene, func() bool {
			n := t.nodes[node]
			if n == nil || n.signs.How(time.Now(), 0) == leaving.Not {
				return true
			}
			if went = slices.Contains(t.specs.Daemons.Except, node); went {
				t.goes(node)
			}
			return went
		})
		if !went {
			return
		}
		t.happens(func() {})
		select {
		case <-time.After(toyReboots):
			t.remove(node)
		case <-t.scene.Done():
		}
	}()
}

// returns has a node whose pod has gone run it again: the autoscaler gave up in the middle.
func (t *toyStore) returns(node string) {
	t.happens(func() {
		n := t.nodes[node]
		if n.signs = (leaving.Signs{}); !n.pod {
			n.pod, n.serves = true, time.Now()
		}
	})
}

// registersAgain is another node under the same name.
func (t *toyStore) registersAgain(node string, signs leaving.Signs) {
	t.happens(func() {
		n := t.nodes[node]
		n.incarnation++
		n.cordoned, n.pod, n.signs = false, true, signs
	})
}

func (s *scene) scaleDown(node string) (run string) {
	s.Tell("the watcher sees that %s is leaving", node)
	return s.start(jobs.ScaleDownNode.ID(node), jobs.ScaleDownNode.Type, workflows.ScaleDownNodeInput{Node: node})
}

func (s *scene) scaleDownStatus(node string) (status workflows.ScaleDownStatus) {
	s.query(jobs.ScaleDownNode.ID(node), &status)
	return status
}

// awaitScaleDown waits until a scale-down is in a phase.
func (s *scene) awaitScaleDown(node, phase string) {
	s.Helper()
	if !s.Await(2*time.Minute, func() bool { return s.scaleDownStatus(node).Phase == phase }) {
		s.Errorf("the scale-down of %s should be %s: %+v", node, phase, s.scaleDownStatus(node))
	}
}

func (s *scene) awaitRemoval(node, run string, within time.Duration) ended {
	s.Helper()
	key := jobs.ScaleDownNode.ID(node) + "@" + run
	var e ended
	if !s.until(within, func() (ok bool) { e, ok = s.ended[key]; return ok }) {
		s.Errorf("the scale-down of %s has not ended: %+v", node, s.scaleDownStatus(node))
	}
	return e
}

// tellScaleDown sends a scale-down a signal.
func (s *scene) tellScaleDown(node, signal string) {
	s.Tell("the scale-down of %s is told: %s", node, signal)
	s.signal(jobs.ScaleDownNode.ID(node), signal, nil)
}

// scaleDownHolds tells whether the scale-down of a node holds the lease, and whether it asks for it at all.
func (s *scene) scaleDownHolds(node string) (holds, asks bool) {
	id := jobs.ScaleDownNode.ID(node)
	_, holds, asks = s.keeperStatus().Lease.Find(id, s.last[id])
	return holds, asks
}
