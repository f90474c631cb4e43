package pghealth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/brief"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// judge puts a look's summary of the placement groups in words. doubt says why it is not known to be fresh; "" if it
// is.
func (t *Tracker) judge(reading ceph.Reading, doubt string) storage.Health {
	summary := reading.Status.PGMap
	h := storage.Health{Fresh: doubt == "", Reason: doubt, ChangeEpoch: reading.Map.ChangeEpoch(), PGs: summary.NumPGs}
	var unclean []string
	for _, s := range summary.States {
		if s.Count == 0 {
			continue
		}
		h.Moving = h.Moving || moving(s.State)
		if t.policy.Healthy.MatchString(s.State) {
			h.PGsClean += s.Count
			continue
		}
		unclean = append(unclean, s.State)
		if !t.explained(s.State, reading.Map.Pools, h.Fresh) {
			h.Unexplained = append(h.Unexplained, s.State)
		}
	}
	slices.Sort(unclean)
	slices.Sort(h.Unexplained)
	if !h.Fresh {
		return h
	}
	switch expected := countPGs(reading.Map.Pools); {
	case h.PGsClean < h.PGs:
		h.Reason = fmt.Sprintf("%d of %d PGs are not clean: %s", h.PGs-h.PGsClean, h.PGs, strings.Join(unclean, ", "))
	case h.PGs < expected:
		// New pools, or a new manager that has not heard of all groups.
		h.Reason = fmt.Sprintf("the manager knows %d of %d PGs", h.PGs, expected)
	case reading.Disconnected.Some() > 0:
		h.Reason, h.ButDisconnected = disconnected(reading), true
	default:
		h.Clean = true
	}
	if h.PGsClean < h.PGs && reading.Disconnected.Some() > 0 {
		h.Reason += "; " + disconnected(reading)
	}
	return h
}

// disconnected says how many OSDs the monitors do not hear, and which have to be restarted.
func disconnected(reading ceph.Reading) string {
	up := 0
	for i := range reading.Map.OSDs {
		if reading.Map.OSDs[i].Up {
			up++
		}
	}
	lost := fmt.Sprintf("%d of %d OSDs that are up have no session with a monitor", reading.Disconnected.Some(), up)
	if len(reading.Disconnected.OSDs) == 0 { // it may be all over in a moment, or nobody knows which
		return lost
	}
	var names []string
	for _, id := range reading.Disconnected.OSDs {
		names = append(names, "osd."+strconv.Itoa(id))
	}
	if len(names) == 1 {
		return lost + ": restart " + names[0]
	}
	return lost + ": restart, one after the other, " + brief.List(names, 4) // groups may need all but one of them
}

// expectable are the parts of a placement group's state that the loss of one failure domain, and its return, explain:
// the group has fewer copies, agrees on who has them, and makes new ones. What is not here needs another explanation,
// such as a bad disk (inconsistent, failed_repair), a second loss (incomplete, down, recovery_unfound) or a full one
// (…_toofull).
var expectable = map[string]bool{
	"active": true, "clean": true, "undersized": true, "degraded": true, "remapped": true,
	"peering": true, "activating": true, "wait": true, "laggy": true,
	"recovering": true, "recovery_wait": true, "forced_recovery": true,
	"backfilling": true, "backfill_wait": true, "forced_backfill": true,
	"scrubbing": true, "deep": true, "snaptrim": true, "snaptrim_wait": true, "premerge": true,
}

// moving tells whether copies of a group in a state are being moved or made.
func moving(state string) bool {
	return strings.Contains(state, "remapped") || strings.Contains(state, "recover") || strings.Contains(state, "backfill")
}

// explained tells whether the loss of one failure domain explains a state.
func (t *Tracker) explained(state string, pools []ceph.Pool, fresh bool) bool {
	for part := range strings.SplitSeq(state, "+") {
		switch {
		case expectable[part]:
		case part == "stale" && !fresh, part == "unknown" && !fresh:
			// For moments so are the groups whose leader went down, and all that a new manager has not heard of.
		case part == "stale" && t.tolerates(pools), part == "peered" && t.tolerates(pools):
			// Groups of such a pool have no copy left, or too few to be active.
		default:
			return false
		}
	}
	return true
}

// tolerates tells whether the cluster has a pool that is unavailable while one failure domain is down, and may be so.
func (t *Tracker) tolerates(pools []ceph.Pool) bool {
	return slices.ContainsFunc(pools, func(p ceph.Pool) bool {
		return p.Size-1 < p.MinSize && slices.Contains(t.policy.ToleratedPools, p.Name)
	})
}
