package upgrade

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"18.2.7":            "18.2.7",
		"16.2.15":           "16.2.15",
		"20.3.0-1234-gabcd": "20.3.0",
		"ceph version 20.2.4 (2c44e53) tentacle (stable - RelWithDebInfo)\n": "20.2.4",
		"ceph version 18.2.7 (6b0e988) reef (stable)":                        "18.2.7",
		"18.2":                                "",
		"":                                    "",
		"sh: 1: ceph-osd: not found":          "",
		"libceph 3.2.1 is no version of Ceph": "",
		"99999999999999999999.0.0":            "",
	} {
		v, err := ParseVersion(text)
		if want == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, v.String())
	}
}

func TestReleaseNamed(t *testing.T) {
	for name, want := range map[string]int{
		"octopus": 15, "pacific": 16, "reef": 18, "squid": 19, "tentacle": 20, "": 0,
		"18": 0, "Reef": 0,
	} {
		require.Equal(t, want, ReleaseNamed(name), name)
	}
}

func TestJudge(t *testing.T) {
	v := func(text string) Version {
		out, err := ParseVersion(text)
		require.NoError(t, err)
		return out
	}
	running := func(text string) map[string]Version { return map[string]Version{"osd.3": v(text)} }
	for name, test := range map[string]struct {
		c              Cluster
		next           string
		refused, waits string
	}{
		"two releases at once": {c: Cluster{
			Mons: 18, RequiredOfOSDs: "pacific", OSDs: running("16.2.15"),
			Oldest: v("16.2.15"),
		}, next: "18.2.7"},
		"a patch": {c: Cluster{
			Mons: 18, RequiredOfOSDs: "reef", OSDs: running("18.2.4"),
			Oldest: v("18.2.4"),
		}, next: "18.2.7"},
		"the same": {c: Cluster{
			Mons: 18, RequiredOfOSDs: "reef", OSDs: running("18.2.7"),
			Oldest: v("18.2.7"),
		}, next: "18.2.7"},
		"half done": {c: Cluster{
			Mons: 20, RequiredOfOSDs: "reef", OSDs: running("18.2.7"),
			Oldest: v("18.2.7"),
		}, next: "20.2.4"},
		"of an OSD that never said its version": {
			c:    Cluster{Mons: 18, RequiredOfOSDs: "pacific", Oldest: v("16.2.15")},
			next: "18.2.7",
		},
		"monitors first": {
			c:    Cluster{Mons: 16, RequiredOfOSDs: "pacific", OSDs: running("16.2.15"), Oldest: v("16.2.15")},
			next: "18.2.7", waits: "not all monitors are of release 18 yet",
		},
		"too far": {
			c:    Cluster{Mons: 20, RequiredOfOSDs: "pacific", OSDs: running("16.2.15"), Oldest: v("16.2.15")},
			next: "20.2.4", refused: "more than 2 releases newer than pacific (16)",
		},
		"too far, monitors too": {
			c:    Cluster{Mons: 16, RequiredOfOSDs: "pacific", OSDs: running("16.2.15"), Oldest: v("16.2.15")},
			next: "20.2.4", refused: "more than 2 releases newer",
		},
		"the flag is behind": {
			c:    Cluster{Mons: 20, RequiredOfOSDs: "pacific", OSDs: running("18.2.7"), Oldest: v("18.2.7")},
			next: "20.2.4", waits: "require_osd_release is still pacific (16), and Ceph 20.2.4 takes 18 at least",
		},
		"one OSD elsewhere is behind": {
			c:    Cluster{Mons: 20, RequiredOfOSDs: "pacific", OSDs: running("18.2.7"), Oldest: v("16.2.15")},
			next: "20.2.4", refused: "more than 2 releases",
		},
		"back": {
			c:    Cluster{Mons: 20, RequiredOfOSDs: "reef", OSDs: running("20.2.4"), Oldest: v("18.2.7")},
			next: "18.2.7", refused: "osd.3 runs Ceph 20.2.4",
		},
		"back by a patch": {
			c:    Cluster{Mons: 18, RequiredOfOSDs: "reef", OSDs: running("18.2.7"), Oldest: v("18.2.4")},
			next: "18.2.4", refused: "cannot go back to 18.2.4",
		},
		"a release unheard of": {
			c: Cluster{Mons: 20, OSDs: running("20.2.4"), Oldest: v("20.2.4")}, next: "20.2.5",
			waits: "is not known",
		},
		"somebody else's upgrade": {
			c: Cluster{
				Mons: 18, RequiredOfOSDs: "pacific", OSDs: running("16.2.15"), Oldest: v("16.2.15"),
				Elsewhere: "cephadm upgrades to 18.2.7",
			},
			next: "18.2.7", waits: "cephadm upgrades",
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := Judge(test.c, v(test.next))
			require.Equal(t, test.refused != "", is.Refused != "", "%+v", is)
			require.Equal(t, test.waits != "", is.Waits != "", "%+v", is)
			require.Contains(t, is.Refused, test.refused)
			require.Contains(t, is.Waits, test.waits)
		})
	}
}

func TestJudgeMon(t *testing.T) {
	for name, test := range map[string]struct {
		c              Cluster
		next           Version
		refused, waits string
	}{
		"a patch":         {c: Cluster{Mons: 18, RequiredOfOSDs: "reef"}, next: Version{18, 2, 7}},
		"back by a patch": {c: Cluster{Mons: 18, RequiredOfOSDs: "reef"}, next: Version{18, 2, 1}},
		"two releases":    {c: Cluster{Mons: 16, RequiredOfOSDs: "pacific"}, next: Version{18, 2, 7}},
		"OSDs are behind": {c: Cluster{Mons: 18, RequiredOfOSDs: "pacific"}, next: Version{18, 2, 7}},
		"OSDs first": {
			c: Cluster{Mons: 18, RequiredOfOSDs: "pacific"}, next: Version{20, 2, 4}, waits: "OSDs first",
		},
		"one is left out": {
			c: Cluster{Mons: 16, RequiredOfOSDs: "pacific"}, next: Version{20, 2, 4}, refused: "take one in between",
		},
		"back": {
			c: Cluster{Mons: 20, RequiredOfOSDs: "reef"}, next: Version{18, 2, 7}, refused: "none can go back to Ceph 18.2.7",
		},
		"back, in the middle of an upgrade": {
			c:    Cluster{Mons: 16, RequiredOfOSDs: "pacific", MonsAre: map[string]Version{"a": {18, 2, 7}}},
			next: Version{16, 2, 15}, refused: "mon.a runs Ceph 18.2.7, and its store cannot go back to 16.2.15",
		},
		"back, and this one has not gone yet": {
			c:    Cluster{Mons: 16, RequiredOfOSDs: "pacific", MonsAre: map[string]Version{"b": {16, 2, 15}}},
			next: Version{16, 2, 15},
		},
		"mons are not known": {
			c: Cluster{RequiredOfOSDs: "reef"}, next: Version{18, 2, 7}, waits: "which release the monitors",
		},
		"OSDs are not known": {c: Cluster{Mons: 18}, next: Version{18, 2, 7}, waits: "which release every OSD has"},
		"part of an upgrade": {
			c:    Cluster{Mons: 18, RequiredOfOSDs: "reef", Elsewhere: "the upgrade of the mons is under way"},
			next: Version{18, 2, 7},
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := JudgeMon(test.c, test.next)
			require.Equal(t, test.refused != "", is.Refused != "", "%+v", is)
			require.Equal(t, test.waits != "", is.Waits != "", "%+v", is)
			require.Contains(t, is.Refused, test.refused)
			require.Contains(t, is.Waits, test.waits)
		})
	}
}

// TestCephsRulesHold: whatever people do between batches, no OSD and no monitor is ever started against a rule of
// Ceph's, and who keeps to the rules gets to the end.
func TestCephsRulesHold(t *testing.T) {
	names := map[int]string{16: "pacific", 17: "quincy", 18: "reef", 19: "squid", 20: "tentacle"}
	rapid.Check(t, func(t *rapid.T) {
		osds := map[string]Version{}
		for i := range 3 {
			osds[fmt.Sprintf("osd.%d", i)] = Version{16, 2, 0}
		}
		oldest := func() Version {
			least := Version{99, 0, 0}
			for _, v := range osds {
				if v.Compare(least) < 0 {
					least = v
				}
			}
			return least
		}
		mons, required := 16, 16
		ask := func(osd string, next Version) Verdict {
			c := Cluster{Mons: mons, RequiredOfOSDs: names[required], OSDs: map[string]Version{osd: osds[osd]}, Oldest: oldest()}
			is := Judge(c, next)
			if is == (Verdict{}) {
				require.LessOrEqual(t, next.Release, mons, "newer than the monitors")
				require.LessOrEqual(t, next.Release, required+2, "a release was skipped")
				require.GreaterOrEqual(t, next.Compare(osds[osd]), 0, "it went back")
				osds[osd] = next
			}
			return is
		}
		askMons := func(next Version) Verdict {
			is := JudgeMon(Cluster{Mons: mons, RequiredOfOSDs: names[required]}, next)
			if is == (Verdict{}) {
				require.GreaterOrEqual(t, next.Release, mons, "a monitor went back")
				require.LessOrEqual(t, next.Release, min(mons, required)+2, "a release was skipped")
				mons = next.Release
			}
			return is
		}
		version := rapid.Custom(func(t *rapid.T) Version {
			return Version{rapid.IntRange(16, 20).Draw(t, "release"), 2, rapid.IntRange(0, 2).Draw(t, "patch")}
		})
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "who") {
			case 0:
				askMons(version.Draw(t, "of the mons"))
			case 1: // Ceph refuses more
				required = max(required, min(oldest().Release, mons))
			default:
				ask(rapid.SampledFrom(sorted(osds)).Draw(t, "osd"), version.Draw(t, "version"))
			}
		}
		// By the book: the next release that may be, monitors first.
		for end := 0; oldest().Release < 20; end++ {
			require.Less(t, end, 10, "it stands still at %v, mons %d, required %d", osds, mons, required)
			next := Version{min(required+2, 20), 2, 2}
			if mons < next.Release {
				require.Equal(t, Verdict{}, askMons(next))
			}
			for _, osd := range sorted(osds) {
				if osds[osd].Compare(next) < 0 {
					require.Equal(t, Verdict{}, ask(osd, next))
				}
			}
			required = max(required, min(oldest().Release, mons))
		}
	})
}
