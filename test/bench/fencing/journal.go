package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file writes down what happens, and judges every release by it. It shares nothing with lockkeeper: it knows what
// the API server and Ceph say, and the rule that a node may be fenced when nothing on it serves, or when everything
// else is whole.

// fact is something that is so or not, of a daemon, of a node or of all.
type fact string

const (
	serves    fact = "serves"    // of a daemon: an OSD is up in the map, a mon in quorum
	leaving   fact = "leaving"   // of an OSD: its pod is being deleted
	hasHold   fact = "hasHold"   // of a node: its Machine carries the label by which the budget selects it
	letsOneGo fact = "letsOneGo" // the budget's maxUnavailable is not 0
	clean     fact = "clean"     // all placement groups are, by the manager's last report
)

// change is that a fact became so, or ceased to be.
type change struct {
	what fact
	of   string
	is   bool
}

// journal is all that was seen.
type journal struct {
	mu      sync.Mutex
	is      map[fact]map[string]bool
	log     []entry
	home    map[string]string    // of daemons, "osd.3" or "mon.a": their nodes
	unready map[string]time.Time // of nodes that are not ready: since when, by their condition
	toJudge []entry              // releases that wait for the next look at Ceph
	wrong   []string
}

type entry struct {
	at time.Time
	change
}

func newJournal() *journal {
	return &journal{
		is:   map[fact]map[string]bool{serves: {}, leaving: {}, hasHold: {}, letsOneGo: {}, clean: {}},
		home: map[string]string{}, unready: map[string]time.Time{},
	}
}

// note takes in what is so, as of a time.
func (j *journal) note(at time.Time, c change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, known := j.is[c.what][c.of]
	if was == c.is && known {
		return
	}
	j.is[c.what][c.of] = c.is
	j.log = append(j.log, entry{at, c})
	if known && (c.what == hasHold && !c.is || c.what == letsOneGo && c.is) {
		j.toJudge = append(j.toJudge, entry{at, c})
	}
}

// news tells whether something is not known yet.
func (j *journal) news(c change) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, known := j.is[c.what][c.of]
	return !known || was != c.is
}

// dismiss forgets a Machine that is gone: that is no release.
func (j *journal) dismiss(node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.is[hasHold], node)
}

func (j *journal) livesOn(daemon, node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.home[daemon] = node
}

func (j *journal) homeOf(daemon string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.home[daemon]
}

// readiness notes since when a node is not ready; zero: it is.
func (j *journal) readiness(node string, since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.unready[node] = since; since.IsZero() {
		delete(j.unready, node)
	}
}

// osds and mons are those that have a home, in order.
func (j *journal) osds() []string { return j.daemons("osd.") }
func (j *journal) mons() []string { return j.daemons("mon.") }

func (j *journal) daemons(kind string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(j.home)), func(d string) bool { return !strings.HasPrefix(d, kind) })
}

// first is when something was first seen to become so since a time; zero: never.
func (j *journal) first(c change, since time.Time) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.firstOf(c, since)
}

func (j *journal) firstOf(c change, since time.Time) time.Time {
	for _, e := range j.log {
		if e.change == c && !e.at.Before(since) {
			return e.at
		}
	}
	return time.Time{}
}

// costless is from when on it could be known that a node that has failed since a time is to be fenced, and that this
// takes nothing: it meets the condition for as long as the health check wants, and none of its daemons serves. Zero: it
// cannot be known yet.
func (j *journal) costless(node string, since time.Time, timeout time.Duration) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	unready, ok := j.unready[node]
	if !ok {
		return time.Time{}
	}
	at := unready.Add(timeout)
	for daemon, home := range j.home {
		if home != node {
			continue
		}
		ended := j.firstOf(change{what: serves, of: daemon, is: false}, since)
		if ended.IsZero() {
			return time.Time{}
		}
		if ended.After(at) {
			at = ended
		}
	}
	return at
}

// judge judges the releases that were seen before a look at Ceph began, whose results are noted.
func (j *journal) judge(began time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.toJudge = slices.DeleteFunc(j.toJudge, func(e entry) bool {
		if !e.at.Before(began) {
			return false
		}
		var why []string
		if e.what == letsOneGo {
			why = j.hurt("")
		} else if rest := j.servingOn(e.of); len(rest) > 0 {
			for _, trouble := range j.hurt(e.of) {
				why = append(why, strings.Join(rest, ", ")+" serve, and "+trouble)
			}
		}
		why = append(why, j.released(e.of)...)
		if len(why) > 0 {
			j.wrong = append(j.wrong, fmt.Sprintf("at %s %s of %q became %t although %s", e.at.Format(time.RFC3339Nano), e.what,
				e.of, e.is, strings.Join(why, "; ")))
		}
		return true
	})
}

// servingOn are the daemons of a node that serve.
func (j *journal) servingOn(node string) (out []string) {
	for daemon, home := range j.home {
		if home == node && j.is[serves][daemon] {
			out = append(out, daemon)
		}
	}
	slices.Sort(out)
	return out
}

// hurt is why the data is not whole, but for the OSDs of one node.
func (j *journal) hurt(except string) (out []string) {
	for daemon, home := range j.home {
		if home != except && strings.HasPrefix(daemon, "osd.") && !j.is[serves][daemon] {
			out = append(out, daemon+" is down")
		}
	}
	slices.Sort(out)
	if !j.is[clean][""] {
		out = append(out, "not all placement groups are clean")
	}
	return out
}

// released are the other nodes with daemons whose Machines nobody holds.
func (j *journal) released(except string) (out []string) {
	for node, held := range j.is[hasHold] {
		hosts := slices.Contains(slices.Collect(maps.Values(j.home)), node)
		if node != except && hosts && !held {
			out = append(out, "the Machine of "+node+" is released")
		}
	}
	slices.Sort(out)
	return out
}

// wholeFor tells whether nothing has changed for that long, and all is well.
func (j *journal) wholeFor(d time.Duration) bool {
	j.mu.Lock()
	quiet := len(j.log) > 0 && time.Since(j.log[len(j.log)-1].at) > d
	j.mu.Unlock()
	return quiet && j.missing() == ""
}

// missing is why not all is well; "": it is.
func (j *journal) missing() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := append(j.hurt(""), j.released("")...)
	for daemon := range j.home {
		if strings.HasPrefix(daemon, "mon.") && !j.is[serves][daemon] {
			out = append(out, daemon+" is not in quorum")
		}
		if j.is[leaving][daemon] {
			out = append(out, daemon+" ends")
		}
	}
	for node := range j.unready {
		out = append(out, node+" is not ready")
	}
	if !j.is[letsOneGo][""] {
		out = append(out, "the budget lets nobody go")
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
