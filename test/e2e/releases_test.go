package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// This file is who judges what lockkeeper lets go: never two Machines at once, and none whose OSDs serve while other
// data is not whole, by Ceph's word.

// watchReleases looks every half second, until stop is called, which fails if it could never look. That one goes at a
// time it reads in the policy's status, where a release is written down before it is made. Where fencing is imitated,
// whoever fences judges the rest.
func (w *world) watchReleases(t *testing.T) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	looked, judged := 0, 0
	go func() {
		defer close(ended)
		var last holds
		for {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
			if released, err := w.releasedNow(); err == nil {
				looked++
				if len(released) > 1 {
					t.Errorf("released at once: %v", released)
				}
			}
			if w.imitated() {
				judged++
				continue
			}
			now, err := w.holdsNow()
			if err != nil {
				continue
			}
			judged++
			for _, wrong := range now.wronglyGone(last) {
				t.Error(wrong)
			}
			last = now
		}
	}()
	return func() {
		close(done)
		if <-ended; looked == 0 || judged == 0 {
			t.Errorf("looked %d times and judged %d times: nobody knows what was released", looked, judged)
		}
	}
}

// releasedNow are the nodes with daemons whose Machines are released.
func (w *world) releasedNow() (nodes []string, err error) {
	var policy struct {
		Status struct {
			Fencing struct {
				Nodes []struct {
					Node, Stage  string
					HostsNothing bool
				}
			}
		}
	}
	err = w.get(&policy, policyPath)
	for _, n := range policy.Status.Fencing.Nodes {
		if n.Stage == "Released" && !n.HostsNothing {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes, err
}

// holds are Machines by their UIDs, each as it is held, and why it must not go; "": it may.
type holds map[string]holdOf

type holdOf struct {
	node, why string
	held      bool
}

// holdsNow asks Ceph first, so that what is let go while it answers is not judged by what came of that.
func (w *world) holdsNow() (holds, error) {
	l, err := w.lookAtCeph()
	if err != nil {
		return nil, err
	}
	machines, err := w.machines()
	now := holds{}
	for node, m := range machines {
		now[m.Metadata.UID] = holdOf{node: node, held: m.held(), why: l.hurtsWithout(node)}
	}
	return now, err
}

// wronglyGone are the holds that are gone since the last look, although at neither look their Machines could go.
func (h holds) wronglyGone(last holds) (wrong []string) {
	for uid, was := range last {
		is, still := h[uid]
		if still && was.held && !is.held && was.why != "" && is.why != "" {
			wrong = append(wrong, fmt.Sprintf("the Machine of %s is released although %s, and then %s",
				was.node, was.why, is.why))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestWronglyGone(t *testing.T) {
	const hurts = "[osd.1] serve on it, and [osd.2] are down elsewhere"
	tests := map[string]struct {
		was, is holdOf
		wrong   bool
	}{
		"held":                   {holdOf{"n", hurts, true}, holdOf{"n", hurts, true}, false},
		"never held":             {holdOf{"n", hurts, false}, holdOf{"n", hurts, false}, false},
		"let go while it hurts":  {holdOf{"n", hurts, true}, holdOf{"n", hurts, false}, true},
		"let go, and then hurts": {holdOf{"n", "", true}, holdOf{"n", hurts, false}, false},
		"let go when it did not": {holdOf{"n", hurts, true}, holdOf{"n", "", false}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.wrong, len(holds{"1": test.is}.wronglyGone(holds{"1": test.was})) > 0)
			assert.Empty(t, holds{}.wronglyGone(holds{"1": test.was}), "its Machine is gone")
		})
	}
}

// cephLook is what Ceph says, and where its pods are.
type cephLook struct {
	pods   []pod
	osds   []struct{ OSD, Up int }
	states []string
}

func (w *world) lookAtCeph() (l cephLook, err error) {
	if l.pods, err = w.pods(); err != nil {
		return l, err
	}
	var dump struct{ OSDs []struct{ OSD, Up int } }
	if err := w.ask(&dump, "osd dump"); err != nil {
		return l, err
	}
	l.osds = dump.OSDs
	l.states, err = w.pgStates()
	return l, err
}

// hurtsWithout is why a node must not be fenced now: OSDs on it serve, and not all else is whole. "": it may.
func (l cephLook) hurtsWithout(node string) string {
	var serve, down []string
	for _, o := range l.osds {
		id := strconv.Itoa(o.OSD)
		here := slices.ContainsFunc(l.pods, func(p pod) bool {
			return p.Spec.NodeName == node && p.Metadata.Labels["ceph_daemon_id"] == id &&
				p.Metadata.Labels["app"] == "rook-ceph-osd"
		})
		switch {
		case o.Up == 0 && !here:
			down = append(down, "osd."+id)
		case o.Up == 1 && here:
			serve = append(serve, "osd."+id)
		}
	}
	if len(serve) == 0 {
		return ""
	}
	if len(down) > 0 {
		return fmt.Sprintf("%v serve on it, and %v are down elsewhere", serve, down)
	}
	for _, s := range l.states {
		if !strings.HasPrefix(s, "active+clean") {
			return fmt.Sprintf("%v serve on it, and placement groups are %s", serve, s)
		}
	}
	return ""
}
