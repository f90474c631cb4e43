package pghealth

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Sample is one look, and the evidence that was asked for after the look before it.
type Sample struct {
	// Reading is the look. Its Status must have been read after Evidence, and its Map after, or not before, its Status.
	Reading ceph.Reading
	// Evidence is the answer to what Tracker.Asks wanted after the previous sample; nil without one.
	Evidence *Evidence
	// At is when Evidence was read, by one clock for all samples.
	At time.Time
}

// Evidence is who reported to whom, asked for between two looks.
type Evidence struct {
	Manager ceph.Manager
	Reports map[int]ceph.Report // by OSD; one that has not reported has the zero Report
}

// Policy is what a person decided about the placement groups.
type Policy struct {
	// Healthy says which states of a placement group count as clean.
	Healthy *regexp.Regexp
	// ToleratedPools are pools that may be unavailable while one failure domain is down.
	ToleratedPools []string
}

// Tracker watches one cluster. Use New. It is not safe for concurrent use.
type Tracker struct {
	policy Policy

	last      *ceph.OSDMap // nil: none yet
	placement placement    // of last
	// upDownOnly: placement differs from the one known before by OSDs that went up or down, and by nothing else.
	upDownOnly bool
	proved     bool
	proofs     int          // how many proofs were begun
	manager    ceph.Manager // that the proof is made with, once there is evidence
	election   int64        // of the quorum that the last sample is from; 0: none yet
	round      *Round       // of the OSDs that are up since placement changed; nil: none began
	cadence    *cadence     // of the reports, which outlives every doubt
}

// New makes a Tracker that knows nothing.
func New(policy Policy) *Tracker { return &Tracker{policy: policy, cadence: &cadence{}} }

// Observe takes in a sample and says what is known now.
func (t *Tracker) Observe(s Sample) storage.Health {
	switch {
	case s.Reading.Unavailable != "":
		t.forget()
		return storage.Health{Reason: s.Reading.Unavailable}
	case !s.Reading.Status.MgrMap.Available:
		t.forget()
		h := t.judge(s.Reading, "no manager is active, so nobody knows the placement groups")
		h.NoManager = true
		return h
	}
	elected := t.elected(s.Reading.Status.ElectionEpoch)
	if t.moved(s.Reading.Map) || elected && !t.proved {
		// Evidence belongs to the placement before, and the summary may, too.
		t.begin()
	} else if !t.proved && s.Evidence != nil {
		t.weigh(s.At, *s.Evidence)
	}
	return t.judge(s.Reading, t.missing())
}

// elected takes in the quorum's number, and tells whether it is another one than before. While the mons had none, what
// the manager told them waited: it is news to whoever looks, and may be from before an OSD hung.
func (t *Tracker) elected(election int64) bool {
	before := t.election
	t.election = election
	return before != 0 && election != before
}

// moved takes in the OSD map, and tells whether the placement of data is another than before.
func (t *Tracker) moved(m *ceph.OSDMap) bool {
	if m == t.last {
		return false
	}
	before, now := t.placement, placementOf(m)
	known := t.last != nil
	t.last, t.placement = m, now
	if known && now.equal(before) {
		return false
	}
	t.upDownOnly = known && now.sameButUpDown(before)
	return true
}

// Base takes in the numbers of reports as they are right after a proof was begun: whatever is new in the next look
// counts. Without it the next look is the base, and a digest that arrives in between proves nothing.
func (t *Tracker) Base(at time.Time, e Evidence) {
	if !t.proved && t.round != nil && t.round.looks == 0 {
		t.weigh(at, e)
	}
}

// Asks lists, in order, the OSDs whose last report the next sample should have evidence of. A cluster at rest needs
// none.
func (t *Tracker) Asks() []int {
	if t.round == nil {
		return nil
	}
	silent := t.round.Silent()
	if len(silent) == 0 {
		return nil
	}
	asks := append(silent, t.round.Due(t.cadence.period())...)
	slices.Sort(asks)
	return asks
}

// Lived tells since when it is known of every OSD that is up, as of the proof, that it lived: no longer ago than this
// the monitors told of a report of it that they had not told of before, and for how long from then on that counts.
// Zero: not known.
func (t *Tracker) Lived() (since time.Time, lasts time.Duration) {
	if !t.proved || t.round == nil {
		return time.Time{}, 0
	}
	return t.round.Seen(), t.cadence.lasts()
}

// Period is the time between two reports of an OSD, as it was learned; 0: not known.
func (t *Tracker) Period() time.Duration { return t.cadence.period() }

// Up lists, in order, the OSDs that are up.
func (t *Tracker) Up() []int { return slices.Sorted(maps.Keys(t.placement.up)) }

// Doubt drops what was proved: something happened of which the map does not tell yet, so that the proof has to begin
// anew.
func (t *Tracker) Doubt() { t.forget() }

// forget drops what was known, so that the next look that counts starts anew.
func (t *Tracker) forget() { *t = Tracker{policy: t.policy, cadence: t.cadence, proofs: t.proofs + 1} }

// Flushed takes in that OSDs reported when they were told to, and when they were told. proof is the one of Proofs for
// which that was done: what was flushed for an earlier one may have been made without knowledge of the change that this
// one is about.
func (t *Tracker) Flushed(proof int, at time.Time, reports map[int]ceph.Report) {
	if t.round != nil && proof == t.proofs && !t.proved {
		t.round.Flushed(at, reports)
	}
}

// Proved tells whether the proof for the placement that is known is made; Proofs counts those that were begun, so that
// somebody who keeps something beside a proof can tell it from the next.
func (t *Tracker) Proved() bool { return t.last != nil && t.proved }

// Election is the number of the quorum that the last sample is from; 0: the last was from none.
func (t *Tracker) Election() int64 { return t.election }

// Proofs counts the proofs that were begun.
func (t *Tracker) Proofs() int { return t.proofs }

// begin starts the proof for the placement that is known.
func (t *Tracker) begin() {
	t.proofs++
	t.manager = ceph.Manager{}
	t.round = NewRound(t.placement.up, t.bornOfChange)
	// An empty cluster has nobody to report, and nothing to report on. In any other, silence proves nothing.
	t.proved = len(t.placement.up) == 0 && t.placement.pgs == 0
}

// weigh takes in evidence that was asked for under the present placement.
func (t *Tracker) weigh(at time.Time, e Evidence) {
	if t.manager != (ceph.Manager{}) && t.manager != e.Manager {
		t.begin()
	}
	t.manager = e.Manager
	t.round.Weigh(at, e.Reports)
	t.proved = len(t.placement.up) > 0 && len(t.round.Silent()) == 0
	t.cadence.learn(t.round.intervals)
	t.round.intervals = nil
}

// bornOfChange tells whether an OSD's present life began with the very change that the proof is about, so that all its
// reports were made with knowledge of it.
func (t *Tracker) bornOfChange(osd int) bool {
	return t.upDownOnly && t.placement.up[osd] == t.placement.changeEpoch
}

// missing says what the proof still lacks, "" when it is made.
func (t *Tracker) missing() string {
	if t.proved {
		return ""
	}
	if t.round == nil || len(t.round.Silent()) == 0 {
		return "no OSD is up that could report the placement groups"
	}
	silent := t.round.Silent()
	names := make([]string, 0, 3)
	for _, id := range silent[:min(3, len(silent))] {
		names = append(names, ceph.OSDName(id))
	}
	text := strings.Join(names, ", ")
	if more := len(silent) - len(names); more > 0 {
		text = fmt.Sprintf("%s and %d more", text, more)
	}
	return fmt.Sprintf("not yet reported since epoch %d: %s", t.placement.changeEpoch, text)
}
