package sim

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// This file is the reports that OSDs make, by the clock or when they are told to, and flags of the cluster.

var _ ceph.OSDCommander = monitor{}

// reportPeriod is the time between two reports of an OSD.
func (w *World) reportPeriod() time.Duration { return cmp.Or(w.opts.ReportPeriod, statsPeriod) }

// OSDCommand implements ceph.OSDCommander. The only command that anybody sends is flush_pg_stats.
func (m monitor) OSDCommand(ctx context.Context, id int, _ []byte) (output []byte, status string, err error) {
	if !m.w.opts.MayFlush {
		return nil, "", refusal(syscall.EACCES)
	}
	waiting, cancel := context.WithTimeout(ctx, monTimeout)
	defer cancel()
	if !m.w.await(waiting, func() bool { return m.w.osds[id].serves() }) { // an OSD that hangs answers nobody
		return nil, "", refusal(syscall.ETIMEDOUT)
	}
	err = m.w.request(ctx, "ceph tell osd flush_pg_stats", func() error {
		o := m.w.osds[id]
		if !o.serves() {
			return refusal(syscall.ETIMEDOUT)
		}
		m.w.flushes++
		m.w.reportOf(o)
		output = []byte(strconv.FormatUint(uint64(o.upFrom)<<32|uint64(o.reports), 10))
		return nil
	})
	return output, "", err
}

// Flushes is how often OSDs were told to report.
func (w *World) Flushes() (n int) {
	w.happens(func() { n = w.flushes })
	return n
}

// reportOf has an OSD tell the manager of the PGs that it leads.
func (w *World) reportOf(o *osd) {
	o.reports++
	if !w.manager.alive {
		return
	}
	w.manager.reports[o.id] = uint64(o.upFrom)<<32 | uint64(o.reports)
	for _, p := range w.pgs {
		if live := w.seemLive(p); w.leaderOf(p, live) == o.id {
			w.manager.received[p.id] = believed{state: w.stateWith(p, live), live: live, leader: o.id}
		}
	}
}

// leaderOf is the OSD that reports a PG: the first with a whole copy, and where none is left the first that should have
// one; -1: none is up.
func (w *World) leaderOf(p *pg, live []int) int {
	if len(live) > 0 {
		return live[0]
	}
	for _, id := range p.acting {
		if o := w.osds[id]; o.up && o.running && o.booted {
			return id
		}
	}
	return -1
}

func (w *World) hasFlag(flag string) bool { return slices.Contains(w.flags, flag) }

// PersonSetsFlag sets or unsets a flag of the whole cluster.
func (w *World) PersonSetsFlag(flag string, on bool) {
	w.happens(func() {
		if w.hasFlag(flag) == on {
			return
		}
		w.tell("a person switches the flag %s: %t", flag, on)
		w.crashed = time.Now() // what had been noticed is not any more, or what was hidden shows
		w.epoch++
		w.flags = slices.DeleteFunc(w.flags, func(f string) bool { return f == flag })
		if on {
			w.flags = append(w.flags, flag)
		}
		w.broadcast()
	})
}
