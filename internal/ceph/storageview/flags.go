package storageview

import (
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/brief"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// blinding are the flags with which Ceph's map does not follow what happens: an OSD that dies stays up, one that starts
// stays down, or no OSD serves anybody whatever the map says. Of such a map nothing follows.
var blinding = []string{"nodown", "noup", "pause", "pauserd", "pausewr"}

// slowing are the flags that keep data from becoming whole. What they do shows in the PGs, so that people only have to
// know.
var slowing = []string{"norecover", "nobackfill", "norebalance", "noin"}

// checkFlags finds flags that make a death invisible.
func checkFlags(m *ceph.OSDMap, problems *problems) {
	for _, flag := range blinding {
		for _, where := range m.Flagged(flag) {
			problems.add("with the flag "+flag+" Ceph does not tell which OSDs serve; it is set on ", where)
		}
	}
}

// FlagNote is how a note of a flag begins.
const FlagNote = "the flag "

// notes say what people should know that is no reason to stay closed.
func notes(m *ceph.OSDMap) []string {
	var out []string
	for _, flag := range slowing {
		if where := m.Flagged(flag); len(where) > 0 {
			out = append(out, FlagNote+flag+" may keep data from becoming whole; it is set on "+brief.List(where,
				maxExamples))
		}
	}
	slices.Sort(out)
	return out
}
