package rollout_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// osdSet is two OSDs on each of two hosts in each of three zones, all out of date and serving.
func osdSet(unit func(zone, host string) string) rollout.Input {
	in := rollout.Input{DomainType: "zone"}
	for i := range 12 {
		zone, host := fmt.Sprintf("zone-%c", 'x'+i/4), fmt.Sprintf("node-%c", 'a'+i/2)
		o := rollout.OSD{
			Key: fmt.Sprintf("%s:/dev/%d", host, i%2), Name: fmt.Sprintf("osd.%d", i), Host: host,
			Domain: zone, State: rollout.OutOfDate, Serves: true,
		}
		if unit != nil {
			o.Unit = unit(zone, host)
		}
		in.OSDs = append(in.OSDs, o)
	}
	return in
}

func byHost(_, host string) string { return host }
func byZone(zone, _ string) string { return zone }

// unheard lets some OSDs lose the monitors.
func unheard(in *rollout.Input, osds ...int) {
	for i := range in.OSDs {
		in.OSDs[i].Up = in.OSDs[i].Serves
	}
	for _, i := range osds {
		in.OSDs[i].Unheard = true
	}
}

func names(s rollout.Step) []string {
	var out []string
	for _, o := range s.OSDs {
		out = append(out, o.Name)
	}
	return out
}

func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		unit   func(zone, host string) string
		change func(*rollout.Input)
		do     rollout.Do
		osds   []string
		domain string
		broken bool
		canary bool
	}{
		"by OSD":  {do: rollout.DoReplace, osds: []string{"osd.0"}, domain: "zone-x"},
		"by Host": {unit: byHost, do: rollout.DoReplace, osds: []string{"osd.0", "osd.1"}, domain: "zone-x"},
		"by Zone": {
			unit: byZone, do: rollout.DoReplace, osds: []string{"osd.0", "osd.1", "osd.2", "osd.3"},
			domain: "zone-x",
		},
		"by Zone, three at once": {
			unit: byZone, change: func(in *rollout.Input) { in.MaxParallel = 3 },
			do: rollout.DoReplace, osds: []string{"osd.0", "osd.1", "osd.2"}, domain: "zone-x",
		},
		"a unit that spans failure domains is replaced one failure domain after the other": {
			unit: func(string, string) string { return "region-1" },
			do:   rollout.DoReplace, osds: []string{"osd.0", "osd.1", "osd.2", "osd.3"}, domain: "zone-x",
		},
		"what is done stays done": {
			unit: byHost, change: func(in *rollout.Input) { in.OSDs[0].State = rollout.UpToDate },
			do: rollout.DoReplace, osds: []string{"osd.1"}, domain: "zone-x",
		},
		"the canary goes alone": {
			unit: byZone, change: func(in *rollout.Input) { in.Canary = true },
			do: rollout.DoReplace, osds: []string{"osd.0"}, domain: "zone-x", canary: true,
		},
		"missing pods come back before anything else": {
			change: func(in *rollout.Input) {
				in.OSDs[5].State, in.OSDs[5].Serves = rollout.Missing, false
				in.OSDs[7].Serves = false
			},
			do: rollout.DoCreate, osds: []string{"osd.5"},
		},
		"broken first, in their own failure domain": {
			unit: byZone, change: func(in *rollout.Input) { in.OSDs[9].Serves, in.OSDs[10].Serves = false, false },
			do: rollout.DoReplace, osds: []string{"osd.9", "osd.10"}, domain: "zone-z", broken: true,
		},
		"of two broken failure domains the one with more": {
			change: func(in *rollout.Input) {
				in.OSDs[0].Serves, in.OSDs[9].Serves, in.OSDs[10].Serves = false, false, false
			},
			do: rollout.DoReplace, osds: []string{"osd.9", "osd.10"}, domain: "zone-z", broken: true,
		},
		"one whose pod fails and that serves comes first, and is not broken": {
			unit: byZone, change: func(in *rollout.Input) { in.OSDs[9].Serves, in.OSDs[9].Up = false, true },
			do: rollout.DoReplace, osds: []string{"osd.9"}, domain: "zone-z",
		},
		"and after one that is down": {
			change: func(in *rollout.Input) {
				in.OSDs[0].Serves, in.OSDs[0].Up = false, true
				in.OSDs[9].Serves = false
			},
			do: rollout.DoReplace, osds: []string{"osd.9"}, domain: "zone-z", broken: true,
		},
		"and alone, when a canary is wanted": {
			unit: byZone, change: func(in *rollout.Input) {
				in.Canary = true
				for i := range 3 {
					in.OSDs[i].Serves, in.OSDs[i].Up = false, true
				}
			},
			do: rollout.DoReplace, osds: []string{"osd.0"}, domain: "zone-x", canary: true,
		},
		"those that nobody hears come first": {
			unit: byHost, change: func(in *rollout.Input) { unheard(in, 8, 10) },
			do: rollout.DoReplace, osds: []string{"osd.8", "osd.10"}, domain: "zone-z",
		},
		"and together, although a canary is wanted": {
			unit: byHost, change: func(in *rollout.Input) { in.Canary = true; unheard(in, 8, 10) },
			do: rollout.DoReplace, osds: []string{"osd.8", "osd.10"}, domain: "zone-z", canary: true,
		},
		"but no more than go at once": {
			change: func(in *rollout.Input) { in.MaxParallel = 1; unheard(in, 8, 10) },
			do:     rollout.DoReplace, osds: []string{"osd.8"}, domain: "zone-z",
		},
		"of those that nobody hears the domain with more": {
			change: func(in *rollout.Input) { unheard(in, 0, 8, 10) },
			do:     rollout.DoReplace, osds: []string{"osd.8", "osd.10"}, domain: "zone-z",
		},
		"after one that is down": {
			change: func(in *rollout.Input) { in.OSDs[0].Serves = false; unheard(in, 8) },
			do:     rollout.DoReplace, osds: []string{"osd.0"}, domain: "zone-x", broken: true,
		},
		"not before what was replaced is back": {
			change: func(in *rollout.Input) { unheard(in, 8); in.OSDs[0].State, in.OSDs[0].Serves = rollout.UpToDate, false },
			do:     rollout.DoAwait, osds: []string{"osd.0"}, domain: "zone-x",
		},
		"one that nobody hears, and that is as its template says": {
			change: func(in *rollout.Input) { unheard(in, 8); in.OSDs[8].State = rollout.UpToDate },
			do:     rollout.DoReplace, osds: []string{"osd.0"}, domain: "zone-x",
		},
		"one that was replaced and is not up is awaited": {
			change: func(in *rollout.Input) { in.OSDs[0].State, in.OSDs[0].Serves = rollout.Unready, false },
			do:     rollout.DoAwait, osds: []string{"osd.0"}, domain: "zone-x",
		},
		"one that was replaced and is up is awaited until somebody takes note": {
			change: func(in *rollout.Input) { in.OSDs[0].State = rollout.Ready },
			do:     rollout.DoAwait, osds: []string{"osd.0"}, domain: "zone-x",
		},
		"one that crashed after it was replaced is awaited": {
			change: func(in *rollout.Input) { in.OSDs[0].State, in.OSDs[0].Serves = rollout.UpToDate, false },
			do:     rollout.DoAwait, osds: []string{"osd.0"}, domain: "zone-x",
		},
		"unless a person said not to wait for it": {
			change: func(in *rollout.Input) {
				in.OSDs[0].State, in.OSDs[0].Serves, in.OSDs[0].Excused = rollout.UpToDate, false, true
			},
			do: rollout.DoReplace, osds: []string{"osd.1"}, domain: "zone-x",
		},
		"a broken template that was mended: the broken batch before what waits": {
			change: func(in *rollout.Input) {
				in.OSDs[4].Serves = false // was replaced by a template that does not work, which is no longer the template
				in.OSDs[5].State, in.OSDs[5].Serves = rollout.Unready, false
			},
			do: rollout.DoReplace, osds: []string{"osd.4"}, domain: "zone-y", broken: true,
		},
		"a node that somebody else took away is waited for": {
			change: func(in *rollout.Input) { in.OSDs[0].Serves, in.OSDs[0].Away = false, "node-a is cordoned" },
			do:     rollout.DoAwait, osds: []string{"osd.0"}, domain: "zone-x",
		},
		"skipped": {
			change: func(in *rollout.Input) { in.Skip, in.OSDs[0].Serves = []string{"osd.0", "node-a:/dev/1"}, false },
			do:     rollout.DoReplace, osds: []string{"osd.2"}, domain: "zone-x",
		},
		"nothing left": {
			change: func(in *rollout.Input) {
				for i := range in.OSDs {
					in.OSDs[i].State = rollout.UpToDate
				}
			},
			do: rollout.DoNothing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := osdSet(c.unit)
			if c.change != nil {
				c.change(&in)
			}
			s := rollout.Next(in)
			require.Equal(t, c.do, s.Do, s.Why)
			require.Equal(t, c.osds, names(s), s.Why)
			require.Equal(t, c.broken, s.Broken)
			require.Equal(t, c.canary, s.Canary)
			if c.domain != "" {
				require.Equal(t, storage.FailureDomain{Type: "zone", Name: c.domain}, s.Domain)
			}
			require.NotEmpty(t, s.Why)
		})
	}
}

func TestBatches(t *testing.T) {
	for name, c := range map[string]struct {
		unit    func(zone, host string) string
		batches int
	}{"OSD": {nil, 12}, "Host": {byHost, 6}, "Zone": {byZone, 3}} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, rollout.Batches(osdSet(c.unit)), c.batches)
			in := osdSet(c.unit)
			in.Canary = true
			extra := 1
			if c.batches == 12 {
				extra = 0
			}
			require.Len(t, rollout.Batches(in), c.batches+extra)
		})
	}
}

// A person who asks for the plan of the largest cluster does not wait for minutes.
func BenchmarkBatchesOfTenThousand(b *testing.B) {
	in := rollout.Input{DomainType: "zone"}
	for i := range 10_000 {
		in.OSDs = append(in.OSDs, rollout.OSD{
			Key: fmt.Sprintf("node-%d:/dev/%d", i/10, i%10), Name: fmt.Sprintf("osd.%d", i), Host: fmt.Sprintf("node-%d", i/10),
			Domain: fmt.Sprintf("zone-%d", i%3), State: rollout.OutOfDate, Serves: true,
		})
	}
	for b.Loop() {
		require.Len(b, rollout.Batches(in), len(in.OSDs))
	}
}

// What is awaited because its node is away is replaced when that is back, and not forgotten.
func TestBatchesAfterAwaiting(t *testing.T) {
	in := osdSet(byHost)
	in.OSDs[2].Serves, in.OSDs[2].Away = false, "node-b is cordoned"
	steps := rollout.Batches(in)
	require.Equal(t, rollout.DoAwait, steps[0].Do)
	replaced := 0
	for _, s := range steps[1:] {
		require.Equal(t, rollout.DoReplace, s.Do)
		replaced += len(s.OSDs)
	}
	require.Equal(t, len(in.OSDs), replaced)
}

// TestSafeAtEveryStep plays rollouts in which OSDs fail, return and are replaced in any order, and looks at every step.
func TestSafeAtEveryStep(t *testing.T) {
	units := []func(string, string) string{nil, byHost, byZone}
	rapid.Check(t, func(t *rapid.T) {
		in := osdSet(units[rapid.IntRange(0, 2).Draw(t, "unit")])
		in.MaxParallel = rapid.IntRange(0, 5).Draw(t, "maxParallel")
		in.Canary = rapid.Bool().Draw(t, "canary")
		// Most of the time only a few things are wrong, or nothing that works would ever be replaced.
		calm := rapid.Bool().Draw(t, "calm")
		states := []rollout.State{rollout.UpToDate, rollout.OutOfDate}
		if rapid.IntRange(0, 3).Draw(t, "restless") == 0 {
			states = append(states, rollout.Ready, rollout.Unready, rollout.Missing)
		}
		for i := range in.OSDs {
			o := &in.OSDs[i]
			o.State = rapid.SampledFrom(states).Draw(t, "state")
			o.Serves = o.State != rollout.Missing && (calm || rapid.Bool().Draw(t, "serves"))
			o.Excused = rapid.Bool().Draw(t, "excused")
			if rapid.IntRange(0, 5).Draw(t, "away") == 0 {
				o.Away = "its node is cordoned"
			}
			if rapid.IntRange(0, 5).Draw(t, "skip") == 0 {
				in.Skip = append(in.Skip, o.Key)
			}
		}
		s := rollout.Next(in)
		again := rollout.Next(in)
		require.Equal(t, s, again, "the same input, the same decision")
		checkStep(t, in, s)
		c := rollout.Count(in)
		require.Equal(t, c.Total, c.UpToDate+c.OutOfDate+c.Ready+c.Unready+c.Missing)
		require.Equal(t, s.Do == rollout.DoNothing, c.Settled(), "%+v", c)
		checkEnds(t, in)
	})
}

func checkStep(t *rapid.T, in rollout.Input, s rollout.Step) {
	if s.Do != rollout.DoReplace {
		return
	}
	require.NotEmpty(t, s.OSDs)
	if in.MaxParallel > 0 {
		require.LessOrEqual(t, len(s.OSDs), in.MaxParallel)
	}
	for _, o := range s.OSDs {
		require.Equal(t, s.Domain.Name, o.Domain, "a batch never leaves its failure domain")
		require.Equal(t, s.Broken, !o.Serves, "what works is not mixed with what does not")
		require.Equal(t, rollout.OutOfDate, o.State)
		require.NotContains(t, in.Skip, o.Key)
		if !s.Broken {
			require.Equal(t, s.OSDs[0].Unit, o.Unit, "what works goes unit by unit")
		}
	}
	if s.Broken {
		return
	}
	for _, o := range in.OSDs {
		if slices.Contains(in.Skip, o.Key) || o.Excused && o.State == rollout.UpToDate {
			continue
		}
		require.True(t, o.Serves, "%s does not serve, and something that works would be touched: %s", o.Name, s.Why)
		require.NotContains(t, []rollout.State{rollout.Missing, rollout.Ready, rollout.Unready}, o.State)
	}
}

// checkEnds: whatever the state, if from now on everything that is replaced, created or awaited serves, the rollout
// ends, and its progress never goes back.
func checkEnds(t *rapid.T, in rollout.Input) {
	last := -1
	for range 100 {
		done, _ := rollout.Count(in).Progress()
		require.GreaterOrEqual(t, done, last, "progress went back")
		last = done
		s := rollout.Next(in)
		if s.Do == rollout.DoNothing {
			return
		}
		in.Canary = in.Canary && !s.Canary
		for _, done := range s.OSDs {
			for i := range in.OSDs {
				o := &in.OSDs[i]
				if o.Key != done.Key {
					continue
				}
				if o.Away = ""; s.Do == rollout.DoAwait && o.State == rollout.OutOfDate {
					o.Serves = true
					continue
				}
				o.State, o.Serves = rollout.UpToDate, true
			}
		}
	}
	t.Fatal("it does not end")
}
