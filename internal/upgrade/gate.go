package upgrade

import (
	"fmt"
	"maps"
	"slices"
)

// mostReleases is how many releases Ceph lets an OSD skip ahead of what require_osd_release says.
const mostReleases = 2

// Cluster is what a storage cluster says of its versions.
type Cluster struct {
	// Mons is the oldest release that a monitor may have: the monitors' own rises above it when all of them are newer.
	Mons int
	// RequiredOfOSDs names the release that every OSD has at least, "pacific", and that a person raises.
	RequiredOfOSDs string
	// OSDs are the versions of those that are to be replaced, by name: "osd.3". One that never said its version is
	// missing.
	OSDs map[string]Version
	// MonsAre are the versions of the monitors that are to be replaced, by name: "b".
	MonsAre map[string]Version
	// Oldest is the oldest version of any OSD; zero: not known.
	Oldest Version
	// Elsewhere says what else is being upgraded, and by whom; "": nothing.
	Elsewhere string
}

// Verdict is whether OSDs may be started with a version. Of its two reasons one at most is set.
type Verdict struct {
	// Refused: that version is wrong for them, whatever happens elsewhere.
	Refused string
	// Waits: something has to happen first.
	Waits string
}

// Judge tells whether the OSDs of a batch may be started with a version.
func Judge(c Cluster, next Version) Verdict {
	for _, osd := range sorted(c.OSDs) {
		if is := c.OSDs[osd]; next.Compare(is) < 0 {
			return Verdict{Refused: fmt.Sprintf("%s runs Ceph %s, and an OSD cannot go back to %s", osd, is, next)}
		}
	}
	required := ReleaseNamed(c.RequiredOfOSDs)
	switch {
	case required == 0:
		return Verdict{Waits: c.unknownOSDs()}
	case next.Release-required > mostReleases && next.Release-c.Oldest.Release <= mostReleases:
		return Verdict{Waits: fmt.Sprintf("require_osd_release is still %s (%d), and Ceph %s takes %d at least; every OSD "+
			"has it: `ceph osd require-osd-release`",
			c.RequiredOfOSDs, required, next, next.Release-mostReleases)}
	case next.Release-required > mostReleases:
		return Verdict{Refused: fmt.Sprintf("Ceph %s is more than %d releases newer than %s (%d), which the OSDs are "+
			"required to have: take one in between first",
			next, mostReleases, c.RequiredOfOSDs, required)}
	case next.Release > c.Mons:
		return Verdict{Waits: fmt.Sprintf(
			"not all monitors are of release %d yet (%d may still be among them), and they go first", next.Release, c.Mons)}
	case c.Elsewhere != "":
		return Verdict{Waits: c.Elsewhere}
	}
	return Verdict{}
}

// JudgeMon tells whether a monitor may be started with a version. Somebody else's upgrade is no reason against it: it
// is part of one. A monitor would start beside OSDs of any age, but nobody tests more than two releases.
func JudgeMon(c Cluster, next Version) Verdict {
	for _, mon := range sorted(c.MonsAre) { // c.Mons rises only with the last of them
		if is := c.MonsAre[mon]; next.Release < is.Release {
			return Verdict{Refused: fmt.Sprintf("mon.%s runs Ceph %s, and its store cannot go back to %s", mon, is, next)}
		}
	}
	required := ReleaseNamed(c.RequiredOfOSDs)
	switch {
	case c.Mons == 0:
		return Verdict{Waits: "which release the monitors have at least is not known"}
	case next.Release < c.Mons:
		return Verdict{Refused: fmt.Sprintf("all monitors are of release %d at least, and none can go back to Ceph %s",
			c.Mons, next)}
	case next.Release-c.Mons > mostReleases:
		return Verdict{Refused: fmt.Sprintf("Ceph %s is more than %d releases newer than %d, which a monitor may still be "+
			"of: take one in between first", next, mostReleases, c.Mons)}
	case required == 0:
		return Verdict{Waits: c.unknownOSDs()}
	case next.Release-required > mostReleases:
		return Verdict{Waits: fmt.Sprintf("require_osd_release is still %s (%d), more than %d releases behind monitors of "+
			"Ceph %s: OSDs first, and then `ceph osd require-osd-release`", c.RequiredOfOSDs, required, mostReleases, next)}
	}
	return Verdict{}
}

func (c Cluster) unknownOSDs() string {
	return fmt.Sprintf("which release every OSD has is not known: require_osd_release is %q", c.RequiredOfOSDs)
}

func sorted(m map[string]Version) []string { return slices.Sorted(maps.Keys(m)) }
