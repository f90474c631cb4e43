package sim

import (
	"time"
)

// This file is the life of an OSD: it stops, hangs, is missed, is given up, and comes back.

// stopOSD ends the process. The map shows it a little later; until then the manager says what it said before.
func (w *World) stopOSD(o *osd) {
	if !o.running {
		return
	}
	for _, p := range w.pgs {
		// Clients go on writing to the others, if those are enough.
		if live := w.live(p); p.whole[o.id] && len(live) > minSize {
			delete(p.whole, o.id)
		}
	}
	o.running, o.booted, w.hurt = false, false, time.Now()
	w.later(osdDownAfter, func() { w.markDown(o) })
	w.broadcast()
}

// monsRetry is how often what needs the mons is tried again while they cannot commit.
const monsRetry = 100 * time.Millisecond

func (w *World) markDown(o *osd) {
	switch {
	case !o.up || o.serves():
		return
	case !w.commits() || w.hasFlag("nodown"):
		w.later(monsRetry, func() { w.markDown(o) })
		return
	}
	w.epoch++
	o.up, o.downAt, o.since = false, w.epoch, time.Now()
	if o.hung {
		w.crashed = time.Now() // nobody could know before
	}
	w.tell("ceph: %s is down (epoch %d)", o.name(), w.epoch)
	w.hurt = time.Now()
	w.peer()
	w.broadcast()
	w.later(downOutAfter, func() { w.markOut(o) })
}

// hang stops an OSD in its tracks, or lets it go on. The others notice when their heartbeats fail, and the mons believe
// them when those on two other hosts say so; otherwise they wait until they miss it themselves.
func (w *World) hang(o *osd, on bool) {
	if o.hung == on {
		return
	}
	o.hung, o.hungAt = on, time.Now()
	o.hangs++
	w.crashed, w.hurt = time.Now(), time.Now()
	if !on {
		if o.running {
			w.later(time.Second, func() { w.markUp(o) })
		}
		return
	}
	this := o.hangs
	w.later(hangNoticed, func() {
		if o.hangs == this && w.reporters(o) >= 2 {
			w.markDown(o)
		}
	})
	w.later(hangMissed, func() {
		if o.hangs == this {
			w.markDown(o)
		}
	})
}

// reporters counts the other hosts with OSDs that serve.
func (w *World) reporters(of *osd) int {
	hosts := map[string]bool{}
	for _, o := range w.osds {
		if o.host != of.host && o.up && o.serves() {
			hosts[o.host] = true
		}
	}
	return len(hosts)
}

func (w *World) markOut(o *osd) {
	if o.up || !o.in || time.Since(o.since) < downOutAfter {
		return
	}
	if w.noout[o.host] != "" || w.noout[o.name()] != "" || !w.commits() {
		w.later(time.Second, func() { w.markOut(o) })
		return
	}
	w.epoch++
	o.in, w.lastInOut, w.hurt = false, time.Now(), time.Now()
	w.place()
	w.tell("ceph: %s is out", o.name())
	w.broadcast()
}

// startOSD tells whether it runs.
func (w *World) startOSD(o *osd) bool {
	if o.dead {
		return false
	}
	if o.running {
		return true
	}
	o.running, o.booted, o.hung, o.cutAt = true, false, false, time.Time{}
	o.hangs++
	o.nonce++
	w.later(osdBoots, func() { w.markUp(o) })
	return true
}

func (w *World) markUp(o *osd) {
	switch {
	case !o.running || o.hung || o.up && o.booted:
		return
	case !w.commits() || w.hasFlag("noup"):
		w.later(monsRetry, func() { w.markUp(o) })
		return
	}
	w.markDown(o) // its last life, if nobody noticed the end of it
	w.epoch++
	o.booted, o.version, o.upNonce = true, o.starting, o.nonce
	o.up, o.upFrom, o.since, o.reports, o.evicted = true, w.epoch, time.Now(), 1, false
	if !o.in {
		o.in, w.lastInOut = true, time.Now()
		w.place()
	}
	w.hurt = time.Now()
	w.tell("ceph: %s is up (epoch %d)", o.name(), w.epoch)
	w.peer()
	w.broadcast()
}

// Dead tells whether the disk of an OSD is broken.
func (w *World) Dead(osd string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.osdOf(w.find(osd)).dead
}

// MarkOut is an administrator who gives an OSD up, or takes it in again.
func (w *World) MarkOut(osd string, out bool) {
	w.happens(func() {
		o := w.osdOf(w.find(osd))
		if o.in != out {
			return
		}
		w.tell("a person marks %s %s", osd, map[bool]string{true: "out", false: "in"}[out])
		w.epoch++
		o.in, w.lastInOut, w.hurt = !out, time.Now(), time.Now()
		if !out {
			o.backIn = time.Now()
		}
		if !out && !o.up {
			w.later(downOutAfter, func() { w.markOut(o) })
		}
		w.place()
		w.broadcast()
	})
}
