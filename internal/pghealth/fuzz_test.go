package pghealth_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// FuzzStates: whatever states a summary names and whatever a policy's expression says, data is called clean only if the
// expression matches every state that any placement group is in, and as many are counted as there are.
func FuzzStates(f *testing.F) {
	for _, name := range []string{"clean", "osd0-down", "mgr-down", "no-quorum"} {
		text, err := os.ReadFile("../ceph/testdata/answers/" + name + ".status.json")
		require.NoError(f, err)
		f.Add(text, `^active(\+(clean|deep|scrubbing|snaptrim|snaptrim_wait))+$`)
	}
	for _, states := range []string{
		`[]`, `null`, `[{"state_name":"active+clean","count":32}]`,
		`[{"state_name":"active+clean","count":-1},{"state_name":"down","count":33}]`, `[{"state_name":"","count":32}]`,
	} {
		f.Add([]byte(`{"mgrmap":{"available":true},"pgmap":{"num_pgs":32,"pgs_by_state":`+states+`}}`), ".*")
		f.Add([]byte(`{"mgrmap":{"available":true},"pgmap":{"num_pgs":32,"pgs_by_state":`+states+`}}`), "^active")
	}
	f.Fuzz(func(t *testing.T, text []byte, expression string) {
		healthy, err := regexp.Compile(expression)
		if err != nil {
			return
		}
		var status ceph.Status
		if json.Unmarshal(text, &status) != nil {
			return
		}
		c := newCluster()
		c.tracker = pghealth.New(pghealth.Policy{Healthy: healthy})
		observe := func() {
			var evidence *pghealth.Evidence
			if asks := c.tracker.Asks(); len(asks) > 0 {
				evidence = &pghealth.Evidence{Manager: c.manager, Reports: map[int]ceph.Report{}}
				for _, id := range asks {
					evidence.Reports[id] = ceph.Report{UpFrom: c.osds[id].UpFrom, Count: c.counts[id]}
				}
			}
			r := c.reading()
			r.Status = status
			h := c.tracker.Observe(pghealth.Sample{Reading: r, Evidence: evidence})
			if !h.Clean {
				return
			}
			count := 0
			for _, s := range status.PGMap.States {
				count += s.Count
				if s.Count != 0 && !healthy.MatchString(s.State) {
					t.Fatalf("clean, although %d are %q", s.Count, s.State)
				}
			}
			if !status.MgrMap.Available || count < 32 {
				t.Fatalf("clean, although %d of 32 are known, by a manager that is available: %t", count, status.MgrMap.Available)
			}
		}
		for range 5 {
			observe()
			c.period()
		}
	})
}
