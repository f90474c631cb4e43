package pghealth

import (
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// Round finds out which OSDs make a report after the round began. Use NewRound. It is not safe for concurrent use.
//
// The monitors learn of reports in digests of the manager, so the first new number of an OSD may be that of a report
// from before the round. What is new after a digest that was itself new was made after that digest, and so after the
// round began: it does not matter whose report told of that digest. The numbers of several OSDs are not read in one
// piece, so an OSD whose number did not rise in the look that told of the digest may rise in the next one for the same
// reason, and only what follows counts.
type Round struct {
	osds   map[int]*reporter // OSDs of which no new report is known
	made   map[int]*reporter // those that have reported, with what was last seen of them
	looks  int               // how many were weighed
	digest bool              // one of them told of a new digest
	last   time.Time         // when the last one was taken
	// flushed: somebody had OSDs report out of turn, so that what follows tells nothing of their period.
	flushed bool
	// intervals are the times between two reports of the same OSD, as they were seen.
	intervals []time.Duration
}

// reporter is what was seen of one OSD's reports in its present life.
type reporter struct {
	life  int64     // the epoch at which it went up
	count uint32    // the number of its last report; 0: none in this life
	seen  time.Time // when its number was last seen to have risen; zero: never
	// read: its number was in an earlier look, so that a greater one is new.
	read bool
	// based: count is from after the digest, so that a greater one is the number of a report that was made since.
	based bool
	more  uint32 // reports since then
	// flushed is the number of a report that the OSD made since the round began, by its own word; 0: it gave none.
	flushed uint32
}

// NewRound begins a round of OSDs: by number, since which epoch they are up. Any report counts of those that born
// names: their present life began with what the round is about.
func NewRound(up map[int]int64, born func(osd int) bool) *Round {
	r := &Round{osds: make(map[int]*reporter, len(up)), made: map[int]*reporter{}}
	for id, life := range up {
		r.osds[id] = &reporter{life: life, based: born != nil && born(id)}
	}
	return r
}

// Update takes in which OSDs are up now. One that went down since the round began is not waited for. One that came up
// since has shown that it lives.
func (r *Round) Update(up map[int]int64) {
	for id, o := range r.osds {
		if life, is := up[id]; !is || life != o.life {
			delete(r.osds, id)
		}
	}
}

// Weigh takes in one look at the numbers of reports, and when it was taken. The numbers of some OSDs may be missing.
func (r *Round) Weigh(at time.Time, reports map[int]ceph.Report) {
	news := false
	for id, report := range reports {
		o := r.osds[id]
		if o == nil {
			if o = r.made[id]; o != nil && report.UpFrom == o.life && report.Count > o.count {
				o.more += report.Count - o.count
				o.count, o.seen = report.Count, at
			}
			continue
		}
		count := report.Count
		if report.UpFrom != o.life {
			count = 0 // of a life before this one
		}
		risen := (o.based || o.read) && count > o.count
		if risen && !o.seen.IsZero() && !r.flushed {
			r.intervals = append(r.intervals, at.Sub(o.seen)/time.Duration(count-o.count))
		}
		if risen {
			o.seen = at
		}
		switch {
		case o.flushed > 0 && count >= o.flushed:
			delete(r.osds, id)
			r.made[id] = o
		case o.based && risen:
			o.more = count - o.count
			delete(r.osds, id)
			r.made[id] = o
		case r.digest:
			o.based = true
		case risen:
			news, o.based = true, true
		}
		o.read, o.count = true, max(o.count, count)
	}
	r.looks++
	r.digest = r.digest || news
	r.last = at
}

// Flushed takes in that OSDs reported when they were told to, after the round began, and when they were told. Each
// counts once the monitors have its report.
func (r *Round) Flushed(at time.Time, reports map[int]ceph.Report) {
	for id, report := range reports {
		r.flushed = true
		if o := r.osds[id]; o != nil && report.UpFrom == o.life {
			o.flushed = report.Count
			if at.After(o.seen) {
				o.seen = at
			}
		}
	}
}

// Answered takes in that OSDs answered a question that was put to them after the round began: they live, whatever has
// become of their reports.
func (r *Round) Answered(at time.Time, reports map[int]ceph.Report) {
	r.Flushed(at, reports)
	for id, report := range reports {
		if o := r.osds[id]; o != nil && report.UpFrom == o.life {
			delete(r.osds, id)
			r.made[id] = o
		}
	}
}

// Silent lists, in order, the OSDs that have not made a report since the round began, as far as is known.
func (r *Round) Silent() []int { return slices.Sorted(maps.Keys(r.osds)) }

// Seen is when the last report was seen of the OSD of which that is the longest ago; zero: of none yet.
func (r *Round) Seen() (first time.Time) {
	for _, o := range r.made {
		if first.IsZero() || o.seen.Before(first) {
			first = o.seen
		}
	}
	return first
}

// Due lists, in order, the OSDs that have reported so long ago that they will have done so again. Who reported first,
// because its life began with the round, say, would otherwise be the one whose sign of life is old by the time when the
// last has reported.
func (r *Round) Due(period time.Duration) []int {
	var due []int
	for id, o := range r.made {
		if period > 0 && r.last.Sub(o.seen) >= period {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	return due
}

// clocks is how many OSDs that have reported are asked on, to see how often the others could have.
const clocks = 3

// Asks lists, in order, the OSDs whose numbers the next look should have: the silent ones, and some that are not.
func (r *Round) Asks() []int {
	asks := r.Silent()
	made := slices.Sorted(maps.Keys(r.made))
	asks = append(asks, made[:min(clocks, len(made))]...)
	slices.Sort(asks)
	return asks
}

// overdue is how many reports others make while an OSD that makes none is only late.
const overdue = 3

// Overdue tells whether others made so many reports since the round began that who made none has missed its turn.
func (r *Round) Overdue() bool {
	for _, o := range r.made {
		if o.more >= overdue {
			return true
		}
	}
	return false
}
