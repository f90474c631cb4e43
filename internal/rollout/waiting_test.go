package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestWaitingBatches: mons go before OSDs and one by one, the first of all goes alone, no batch leaves its failure
// domain, and everybody has a turn, whoever waits. A mon that is in no failure domain goes under a claim of its own.
func TestWaitingBatches(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := rollout.Input{DomainType: "zone"}
		for i := range 1 + r.IntN(12) {
			in.OSDs = append(in.OSDs, waits(fmt.Sprintf("osd.%d", i), r.IntN(4)))
		}
		for i := range r.IntN(4) {
			mon := waits(fmt.Sprintf("mon.%c", 'a'+i), r.IntN(4))
			mon.Unit = ""
			if r.IntN(2) == 0 {
				mon.Domain, mon.ForGood = "", r.IntN(3) == 0
			}
			in.OSDs = append(in.OSDs, mon)
		}
		if r.IntN(3) == 0 {
			in.First = "zone-1"
		}
		had, osds := map[string]bool{}, false
		for i, s := range rollout.WaitingBatches(in, false) {
			require.Equal(t, rollout.DoReplace, s.Do, "seed %d", seed)
			require.True(t, i > 0 || len(s.OSDs) == 1, "seed %d: the first goes alone: %+v", seed, s)
			for _, o := range s.OSDs {
				require.False(t, had[o.Key], "seed %d: %s twice", seed, o.Key)
				had[o.Key] = true
				switch {
				case !rollout.IsMon(o.Name) || o.Domain != "":
					require.Equal(t, storage.FailureDomain{Type: "zone", Name: o.Domain}, s.Domain)
				case o.ForGood:
					require.Zero(t, s.Domain, "seed %d: nobody misses it", seed)
				default:
					require.Equal(t, lease.Mon(strings.TrimPrefix(o.Name, "mon.")), s.Domain, "seed %d", seed)
				}
				if rollout.IsMon(o.Name) {
					require.False(t, osds, "seed %d: %s after an OSD", seed, o.Name)
					require.Len(t, s.OSDs, 1, "seed %d: mons one by one", seed)
				} else {
					osds = true
				}
			}
		}
		require.Len(t, had, len(in.OSDs), "seed %d", seed)
	}
}

// Until OSDs that have lost the monitors have started anew, nothing opens outside of their failure domain: neither
// other OSDs nor mons have their turn before.
func TestWhatWaitsBeginsWithOSDsThatNobodyHears(t *testing.T) {
	in := rollout.Input{DomainType: "zone", OSDs: []rollout.OSD{
		waits("mon.a", 0), waits("osd.0", 0), waits("osd.1", 1), waits("osd.2", 1), waits("osd.3", 1),
	}}
	for _, i := range []int{3, 4} {
		in.OSDs[i].Unheard = true
	}
	var told []string
	for _, s := range rollout.WaitingBatches(in, false) {
		told = append(told, fmt.Sprint(names(s), s.Unheard))
	}
	require.Equal(t, []string{
		"[osd.2] true", "[osd.3] true", "[mon.a] false", "[osd.0] false", "[osd.1] false",
	}, told)
}

func waits(name string, zone int) rollout.OSD {
	domain := fmt.Sprintf("zone-%d", zone)
	return rollout.OSD{Key: name, Name: name, Domain: domain, Unit: domain, State: rollout.OutOfDate, Serves: true}
}
