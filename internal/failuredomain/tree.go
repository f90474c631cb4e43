// Package failuredomain finds out from Ceph's CRUSH map what a storage cluster is built to lose: the smallest failure
// domain that any pool relies on, which OSD is in which, and which pools could not bear the loss of one. It is pure.
package failuredomain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// OSDType is the CRUSH type of the leaves. It is the smallest failure domain of all.
const OSDType = "osd"

// Tree is the CRUSH map turned upside down: from each OSD to the buckets above it. Make one per version of the CRUSH
// map; it is not changed afterwards and safe for concurrent use.
type Tree struct {
	typeNames map[int]string // by type id
	typeIDs   map[string]int
	buckets   map[int]*ceph.CrushBucket // shadows included
	parents   map[int][]int             // of devices and buckets, shadows left out; several where somebody linked a bucket
	upwards   map[int][]int             // from a bucket: itself and all that it is in, the nearest first
	rooted    map[int]bool              // bucket → a root is above it, or it is one
	rules     map[int]ceph.CrushRule
}

// NewTree builds the tree of a CRUSH map.
func NewTree(crush *ceph.CrushMap) *Tree {
	t := &Tree{
		typeNames: make(map[int]string, len(crush.Types)),
		typeIDs:   make(map[string]int, len(crush.Types)),
		buckets:   make(map[int]*ceph.CrushBucket, len(crush.Buckets)),
		parents:   make(map[int][]int, len(crush.Buckets)+len(crush.Devices)),
		upwards:   make(map[int][]int, len(crush.Buckets)),
		rooted:    make(map[int]bool, len(crush.Buckets)),
		rules:     make(map[int]ceph.CrushRule, len(crush.Rules)),
	}
	for _, x := range crush.Types {
		t.typeNames[x.ID] = x.Name
		t.typeIDs[x.Name] = x.ID
	}
	t.typeNames[0], t.typeIDs[OSDType] = OSDType, 0 // old maps call them devices
	for _, rule := range crush.Rules {
		t.rules[rule.ID] = rule
	}
	ordered := slices.Clone(crush.Buckets)
	slices.SortFunc(ordered, func(a, b ceph.CrushBucket) int { return cmp.Compare(b.ID, a.ID) })
	for i := range ordered {
		bucket := &ordered[i]
		t.buckets[bucket.ID] = bucket
		if isShadow(bucket.Name) {
			continue
		}
		for _, item := range bucket.Items {
			if !slices.Contains(t.parents[item.ID], bucket.ID) {
				t.parents[item.ID] = append(t.parents[item.ID], bucket.ID)
			}
		}
	}
	for id := range t.buckets {
		t.upwards[id] = t.walkUp(id)
	}
	t.findRooted()
	return t
}

// isShadow tells whether a bucket's name is that of a shadow, the part of a bucket that has one device class: Ceph
// allows no "~" in other names.
func isShadow(name string) bool { return strings.Contains(name, "~") }

// withoutClass is the name of the bucket that a shadow is a part of.
func withoutClass(name string) string {
	name, _, _ = strings.Cut(name, "~")
	return name
}

// findRooted marks every bucket below a root: one that a rule takes, so that data can be placed there, or one at the
// top of everything. Other trees hold devices that were set aside.
func (t *Tree) findRooted() {
	taken := map[int]bool{}
	for _, rule := range t.rules {
		for _, step := range rule.Steps {
			if bucket := t.buckets[step.Item]; step.Op == "take" && bucket != nil {
				taken[bucket.ID] = true
				if whole := t.named(withoutClass(bucket.Name)); whole != nil {
					taken[whole.ID] = true
				}
			}
		}
	}
	top := t.topTypes(taken)
	for id, bucket := range t.buckets {
		if !isShadow(bucket.Name) && (taken[id] || top[bucket.TypeID]) {
			t.markRooted(id)
		}
	}
}

// topTypes are the types of roots: no bucket of such a type is in another one, and a rule takes one of them or
// something in one of them. Without such a rule the first will do.
func (t *Tree) topTypes(taken map[int]bool) map[int]bool {
	top := map[int]bool{}
	for _, bucket := range t.buckets {
		if !isShadow(bucket.Name) {
			top[bucket.TypeID] = true
		}
	}
	for id, bucket := range t.buckets {
		if len(t.parents[id]) > 0 && !isShadow(bucket.Name) {
			delete(top, bucket.TypeID)
		}
	}
	used := map[int]bool{}
	for id := range taken {
		for _, above := range t.upwards[id] {
			if typeID := t.buckets[above].TypeID; top[typeID] && !isShadow(t.buckets[above].Name) {
				used[typeID] = true
			}
		}
	}
	if len(used) > 0 {
		return used
	}
	return top
}

// named finds the bucket of a name; nil: there is none.
func (t *Tree) named(name string) *ceph.CrushBucket {
	for _, bucket := range t.buckets {
		if bucket.Name == name {
			return bucket
		}
	}
	return nil
}

func (t *Tree) markRooted(id int) {
	if t.rooted[id] || t.buckets[id] == nil {
		return
	}
	t.rooted[id] = true
	for _, item := range t.buckets[id].Items {
		t.markRooted(item.ID)
	}
}

// Located tells whether an OSD is somewhere under a root. One that is not holds no data, or holds some nobody knows
// where.
func (t *Tree) Located(osd int) bool {
	return slices.ContainsFunc(t.parents[osd], func(parent int) bool { return t.rooted[parent] })
}

// walkUp is what upwards has of a bucket.
func (t *Tree) walkUp(bucket int) []int {
	out := []int{bucket}
	for i := 0; i < len(out); i++ {
		for _, parent := range t.parents[out[i]] {
			if !slices.Contains(out, parent) { // a broken map may have loops
				out = append(out, parent)
			}
		}
	}
	return out
}

// above lists the buckets that an OSD is in, the nearest first. The caller must not change it.
func (t *Tree) above(osd int) []int {
	parents := t.parents[osd]
	if len(parents) == 1 {
		return t.upwards[parents[0]]
	}
	var out []int
	for _, parent := range parents {
		for _, id := range t.upwards[parent] {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// domains are the buckets of a type that an OSD is in. It is its own failure domain of type 0.
func (t *Tree) domains(osd, typeID int) []int {
	if typeID == 0 {
		return []int{osd}
	}
	var out []int
	for _, id := range t.above(osd) {
		if t.buckets[id].TypeID == typeID {
			out = append(out, id)
		}
	}
	return out
}

// Find returns the name of the failure domain of the given type that an OSD is in: Find(3, "zone") is "zone-x", Find(3,
// "osd") is "osd.3". "": it is in none, or in several.
func (t *Tree) Find(osd int, typeName string) string {
	wanted, known := t.typeIDs[typeName]
	if known && wanted == 0 {
		return ceph.OSDName(osd)
	}
	found := ""
	for _, id := range t.above(osd) {
		switch {
		case !known, t.buckets[id].TypeID != wanted:
		case found != "":
			return ""
		default:
			found = t.buckets[id].Name
		}
	}
	return found
}

// FindAll returns the names of all failure domains of a type that an OSD is in, the nearest first. There are several
// where buckets of one type are in each other, or where somebody linked a bucket into a second one (ceph osd crush
// link).
func (t *Tree) FindAll(osd int, typeName string) []string {
	wanted, known := t.typeIDs[typeName]
	if !known {
		return nil
	}
	if wanted == 0 {
		return []string{ceph.OSDName(osd)}
	}
	var names []string
	for _, id := range t.domains(osd, wanted) {
		names = append(names, t.buckets[id].Name)
	}
	return names
}

// Location is where an OSD is: the name of the bucket above it for each type ({"host": "node-a", "zone": "zone-x"}). A
// type of which it is in several buckets is left out.
func (t *Tree) Location(osd int) map[string]string {
	location := map[string]string{}
	several := map[string]bool{}
	for _, id := range t.above(osd) {
		typeName := t.typeNames[t.buckets[id].TypeID]
		_, seen := location[typeName]
		several[typeName] = several[typeName] || seen
		location[typeName] = t.buckets[id].Name
	}
	for typeName, more := range several {
		if more {
			delete(location, typeName)
		}
	}
	return location
}

// Empty tells whether the CRUSH map has no bucket at all, as no cluster that was ever set up has.
func (t *Tree) Empty() bool { return len(t.buckets) == 0 }

// BucketName is the name of a bucket; "" if there is none with this id.
func (t *Tree) BucketName(id int) string {
	if b := t.buckets[id]; b != nil && !isShadow(b.Name) {
		return b.Name
	}
	return ""
}

// BucketID is the id of a bucket, which is negative and stays when the bucket is renamed; 0 if there is none of this
// name.
func (t *Tree) BucketID(name string) int {
	for id, b := range t.buckets {
		if b.Name == name && !isShadow(name) {
			return id
		}
	}
	return 0
}

// HostType is the name of the type that stands for a machine: "host", or where that was renamed what the OSDs are in.
func (t *Tree) HostType() string {
	if _, ok := t.typeIDs["host"]; ok {
		return "host"
	}
	counts := map[int]int{}
	for item, parents := range t.parents {
		for _, parent := range parents {
			if item >= 0 {
				counts[t.buckets[parent].TypeID]++
			}
		}
	}
	best := -1
	for id, n := range counts {
		if best < 0 || n > counts[best] || n == counts[best] && id < best {
			best = id
		}
	}
	if name, ok := t.typeNames[best]; ok {
		return name
	}
	return "host"
}

// nameOf is the name of a bucket or an OSD.
func (t *Tree) nameOf(item int) string {
	if item >= 0 {
		return ceph.OSDName(item)
	}
	return t.buckets[item].Name
}

// rule finds a pool's rule.
func (t *Tree) rule(pool ceph.Pool) (ceph.CrushRule, error) {
	rule, ok := t.rules[pool.Rule]
	if !ok {
		return rule, fmt.Errorf("pool %q: its CRUSH rule %d does not exist", pool.Name, pool.Rule)
	}
	return rule, nil
}
