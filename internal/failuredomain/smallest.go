package failuredomain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// Smallest is the failure domain that is taken down at a time. It is the smallest that any pool relies on, where there
// is a smallest: every pool bears the loss of one of these, but maybe not of anything bigger.
type Smallest struct {
	Type string // "zone"
	// Because says which pool and rule it comes from, for people.
	Because string
	// Compromise: no pool relies on this type. Pools rely on types of which neither is within the other, as racks and the
	// PDUs that feed some of each, and this is the largest type that is within all of them.
	Compromise bool
}

// Smallest goes through the rules of all pools. Without pools it is the host, which is what Ceph's default rule would
// use for the first one. An error means that a pool's rule cannot be understood, and nothing may be taken down.
//
// Which of two types is the smaller is a matter of the tree, never of the types' numbers: see within.
func (t *Tree) Smallest(pools []ceph.Pool) (Smallest, error) {
	if len(pools) == 0 {
		return Smallest{Type: t.HostType(), Because: "there are no pools: Ceph's default"}, nil
	}
	relied := map[int]string{} // type → the first pool that relies on it
	var types []int
	for _, pool := range pools {
		rule, err := t.rule(pool)
		if err != nil {
			return Smallest{}, err
		}
		ids, err := t.spreadsOver(rule)
		if err != nil {
			return Smallest{}, fmt.Errorf("pool %q: %w", pool.Name, err)
		}
		for _, id := range ids {
			if _, seen := relied[id]; !seen {
				relied[id] = fmt.Sprintf("pool %q with CRUSH rule %q", pool.Name, rule.Name)
				types = append(types, id)
			}
		}
	}
	layers := t.layers()
	if id, ok := layers.smallest(types); ok {
		return Smallest{Type: t.typeNames[id], Because: relied[id]}, nil
	}
	id := layers.largestWithin(types, t.typeIDs[t.HostType()])
	return Smallest{Type: t.typeNames[id], Compromise: true, Because: layers.whyNone(types, relied, t.nameOf)}, nil
}

// spreadsOver returns the types that a rule spreads copies over.
//
// A rule is one or more blocks of take, choose…, emit. Each choose step spreads copies over buckets of its type, so the
// smallest of them all is what one failure may take. A step that chooses exactly one bucket inside each of those
// chosen before spreads nothing: "3 zones, 1 host in each" has one copy per zone, and may lose a zone.
func (t *Tree) spreadsOver(rule ceph.CrushRule) ([]int, error) {
	blocks, err := t.blocks(rule)
	if err != nil {
		return nil, err
	}
	var types []int
	for _, block := range blocks {
		for i, step := range block.chooses {
			if (i == 0 || step.num != 1) && !slices.Contains(types, step.typeID) {
				types = append(types, step.typeID)
			}
		}
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("CRUSH rule %q chooses nothing", rule.Name)
	}
	return types, nil
}

// layers is how the located OSDs are divided by each type of bucket. OSDs that are in one bucket alone, the same one,
// are everywhere together, so that bucket stands for them. An OSD in several buckets stands for itself.
type layers struct {
	names   map[int]string        // by type id
	domains map[int]map[int][]int // type → OSD or what stands for it → its buckets of that type; not of OSDs
	osds    int
	depth   map[int]int // type → the greatest depth at which it is in the tree, which decides between equals
}

func (t *Tree) layers() layers {
	l := layers{names: t.typeNames, domains: map[int]map[int][]int{}, depth: map[int]int{}}
	done := map[int]bool{}
	for osd, parents := range t.parents {
		if osd < 0 || !t.Located(osd) {
			continue
		}
		l.osds++
		place := osd
		if len(parents) == 1 {
			place = parents[0]
		}
		if done[place] {
			continue
		}
		done[place] = true
		above := t.above(osd)
		for i, id := range above {
			typeID := t.buckets[id].TypeID
			if l.domains[typeID] == nil {
				l.domains[typeID] = map[int][]int{}
			}
			l.domains[typeID][place] = append(l.domains[typeID][place], id)
			l.depth[typeID] = max(l.depth[typeID], len(above)-i)
		}
		l.depth[0] = max(l.depth[0], len(above)+1)
	}
	return l
}

// Types lists the types of the CRUSH map: those that OSDs are in, the innermost first, and then the others by name.
func (t *Tree) Types() []string {
	l := t.layers()
	l.depth[0] = max(l.depth[0], 1) // without any OSD, too
	ids := slices.SortedFunc(maps.Keys(t.typeNames), l.deeper)
	var names []string
	for _, id := range ids {
		names = append(names, t.typeNames[id])
	}
	return names
}

// empty: there are no OSDs in buckets of that type.
func (l layers) empty(typeID int) bool {
	if typeID == 0 {
		return l.osds == 0
	}
	return len(l.domains[typeID]) == 0
}

// within tells whether the loss of one bucket of type a is never the loss of more than one of type b: every OSD that is
// in a bucket of type b is in exactly one of type a, and no bucket of type a has OSDs from two of type b. b is not the
// OSD.
func (l layers) within(a, b int) bool {
	of := map[int]int{} // bucket of type a → the one of type b that it has OSDs of
	for place, bs := range l.domains[b] {
		if len(bs) != 1 {
			return false
		}
		if a == 0 {
			continue
		}
		as := l.domains[a][place]
		if len(as) != 1 {
			return false
		}
		if first, seen := of[as[0]]; seen && first != bs[0] {
			return false
		}
		of[as[0]] = bs[0]
	}
	return true
}

// smallest finds the one of these types that is within all the others. A type without OSDs is within none, and has none
// within it, unless there is no other.
func (l layers) smallest(types []int) (int, bool) {
	used := slices.DeleteFunc(slices.Clone(types), l.empty)
	if len(used) == 0 {
		return slices.MinFunc(types, l.deeper), true // no rule finds any OSD, and none will be in a failure domain
	}
	if slices.Contains(used, 0) {
		return 0, true // nothing is smaller, whatever the tree
	}
	var found []int
	for _, a := range used {
		if !slices.ContainsFunc(used, func(b int) bool { return !l.within(a, b) }) {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return 0, false
	}
	return slices.MinFunc(found, l.deeper), true
}

// largestWithin finds the type that is within all of these, and divides the OSDs least. It is the OSD where no bucket
// is. Where several divide them alike it is the host, as that is what people drain.
func (l layers) largestWithin(types []int, host int) int {
	used := slices.DeleteFunc(slices.Clone(types), l.empty)
	best := 0
	for _, a := range slices.Sorted(maps.Keys(l.domains)) {
		if slices.ContainsFunc(used, func(b int) bool { return !l.within(a, b) }) {
			continue
		}
		n := cmp.Compare(l.count(a), l.count(best))
		if n < 0 || n == 0 && best != host && (a == host || l.deeper(a, best) < 0) {
			best = a
		}
	}
	return best
}

func (l layers) count(typeID int) int {
	if typeID == 0 {
		return l.osds
	}
	seen := map[int]bool{}
	for _, ids := range l.domains[typeID] {
		for _, id := range ids {
			seen[id] = true
		}
	}
	return len(seen)
}

// deeper puts the type that is further down in the tree first. It decides where two types divide the OSDs alike (racks
// with one host each): the next host in such a rack is one more host, and no new rack.
func (l layers) deeper(a, b int) int {
	return cmp.Or(cmp.Compare(l.depth[b], l.depth[a]), cmp.Compare(l.names[a], l.names[b]))
}

// whyNone says, of types of which none is the smallest, which pools rely on them and what is in the way.
func (l layers) whyNone(types []int, relied map[int]string, name func(int) string) string {
	var parts []string
	for _, id := range types {
		parts = append(parts, fmt.Sprintf("%s relies on type %s", relied[id], l.names[id]))
	}
	for _, id := range types {
		for _, place := range slices.Sorted(maps.Keys(l.domains[id])) {
			if len(l.domains[id][place]) > 1 {
				return fmt.Sprintf("%s, but %s is in several buckets of type %s at once", strings.Join(parts, ", "),
					name(place), l.names[id])
			}
		}
	}
	return strings.Join(parts, ", ") + ", and none of these types is within all the others in the CRUSH tree"
}
