//go:build lab

package rados

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// TestLate measures how late Ceph's word is, which is why a summary counts only when it is proved (ADR 2): in a lab of
// three zones with two OSDs each, and three mons. It prints lines "name value unit". LOCKKEEPER_TEST_KUBECTL is a
// kubectl of that lab.
func TestLate(t *testing.T) {
	l := &late{T: t, client: connect(t)}
	l.settled()
	l.stoppedOSD()
	l.outOSD()
	l.stoppedZone()
	l.deadManager()
	l.noQuorum()
}

type late struct {
	*testing.T
	client ceph.Client
}

// glance is what Ceph says at an instant.
type glance struct {
	at         time.Time
	up         int // by the OSD map; -1: no answer
	clean, pgs int // by the summary
	manager    bool
	quorum     int
}

func (l *late) glance() glance {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	g := glance{up: -1}
	if s, err := l.client.Status(ctx); err == nil {
		g.pgs, g.manager, g.quorum = s.PGMap.NumPGs, s.MgrMap.Available, len(s.QuorumNames)
		for _, state := range s.PGMap.States {
			if state.State == "active+clean" {
				g.clean += state.Count
			}
		}
	}
	if m, err := l.client.OSDDump(ctx); err == nil {
		g.up = 0
		for _, o := range m.OSDs {
			if o.Up {
				g.up++
			}
		}
	}
	g.at = time.Now()
	return g
}

// until looks again and again until what it sees is so, and returns all that it saw.
func (l *late) until(what string, within time.Duration, so func(glance) bool) (seen []glance) {
	l.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		g := l.glance()
		if seen = append(seen, g); so(g) {
			return seen
		}
		require.False(l, time.Now().After(end), "%s within %s: %+v", what, within, g)
	}
}

func (l *late) during(d time.Duration) []glance {
	end := time.Now().Add(d)
	return l.until("", 2*d, func(g glance) bool { return g.at.After(end) })
}

func (l *late) settled() {
	l.until("all is well", 2*time.Minute, func(g glance) bool {
		return g.up == 6 && g.pgs > 0 && g.clean == g.pgs && g.manager && g.quorum == 3
	})
	time.Sleep(5 * time.Second) // what was late has come
	l.until("all is well", 2*time.Minute, func(g glance) bool { return g.up == 6 && g.clean == g.pgs && g.manager })
}

func (l *late) scale(replicas int, deployments ...string) {
	args := []string{"-n", "rook-ceph", "scale", fmt.Sprint("--replicas=", replicas)}
	for _, d := range deployments {
		args = append(args, "deployment/rook-ceph-"+d)
	}
	out, err := exec.Command(os.Getenv("LOCKKEEPER_TEST_KUBECTL"), args...).CombinedOutput()
	require.NoError(l, err, "%s", out)
}

func (l *late) print(name string, d time.Duration) { fmt.Printf("%s %d ms\n", name, d.Milliseconds()) }

// lies tells for how long after an instant a summary went on to say that all is clean, and when it had the last to say.
func (l *late) lies(since time.Time, seen []glance) (wrong, incomplete time.Duration) {
	last := seen[len(seen)-1]
	for _, g := range seen {
		if g.at.Before(since) || g.pgs == 0 {
			continue
		}
		if g.clean == g.pgs {
			wrong = g.at.Sub(since)
		}
		if g.clean != last.clean {
			incomplete = g.at.Sub(since)
		}
	}
	require.Less(l, last.clean, last.pgs, "it never came out")
	return wrong, incomplete
}

func (l *late) stoppedOSD() {
	l.scale(0, "osd-0")
	seen := l.until("osd.0 is down", time.Minute, func(g glance) bool { return g.up == 5 })
	since := seen[len(seen)-1].at
	wrong, incomplete := l.lies(since, append(seen, l.during(12*time.Second)...))
	l.print("late_osd_stopped_all_clean", wrong)
	l.print("late_osd_stopped_not_all_told", incomplete)
	l.scale(1, "osd-0")
	l.settled()
}

func (l *late) outOSD() {
	still := []string{"norebalance", "nobackfill", "norecover"} // else so little data has moved before anybody hears of it
	for _, flag := range still {
		command(l.T, "ceph", "osd", "set", flag)
	}
	command(l.T, "ceph", "osd", "out", "0")
	since := time.Now()
	wrong := time.Duration(0)
	for _, g := range l.until("the data moves", time.Minute, func(g glance) bool { return g.pgs > 0 && g.clean < g.pgs }) {
		wrong = g.at.Sub(since)
	}
	l.print("late_osd_out_all_clean", wrong)
	command(l.T, "ceph", "osd", "in", "0")
	for _, flag := range still {
		command(l.T, "ceph", "osd", "unset", flag)
	}
	time.Sleep(3 * time.Second)
	l.settled()
}

func (l *late) stoppedZone() {
	l.scale(0, "osd-0", "osd-3")
	l.until("one of zone-x is down", time.Minute, func(g glance) bool { return g.up >= 0 && g.up < 6 })
	since, yes := time.Now(), time.Duration(0)
	for time.Since(since) < 12*time.Second {
		answer, err := l.client.OKToStop(context.Background(), []int{1})
		require.NoError(l, err)
		if answer.OK {
			yes = time.Since(since)
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.print("late_zone_stopped_ok_to_stop", yes)
	l.scale(1, "osd-0", "osd-3")
	l.settled()
}

func (l *late) deadManager() {
	l.scale(0, "mgr-a")
	since := time.Now()
	seen := l.until("no manager is available", 2*time.Minute, func(g glance) bool { return g.quorum > 0 && !g.manager })
	l.print("late_manager_dead_available", seen[len(seen)-1].at.Sub(since))
	l.scale(1, "mgr-a")
	l.settled()
}

func (l *late) noQuorum() {
	l.scale(0, "mon-b", "mon-c")
	seen := l.until("the OSD map has no answer", time.Minute, func(g glance) bool { return g.up < 0 })
	since := seen[len(seen)-1].at
	clean := time.Duration(0)
	for _, g := range l.during(15 * time.Second) {
		if g.up < 0 && g.quorum > 0 && g.pgs > 0 && g.clean == g.pgs {
			clean = g.at.Sub(since)
		}
	}
	l.print("late_no_quorum_status_all_clean", clean)
	l.scale(1, "mon-b", "mon-c")
	l.settled()
}
