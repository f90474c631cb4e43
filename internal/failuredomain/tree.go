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

// Tree is the CRUSH map turned upside down: from each OSD to the buckets above it. Make one per version of the CRUSH map;
// it is not changed afterwards and safe for concurrent use.
type Tree struct {
	typeNames map[int]string // by type id
	typeIDs   map[string]int
	buckets   map[int]*ceph.CrushBucket // shadows included
	parent    map[int]int               // of devices and buckets, shadows left out
	rooted    map[int]bool              // bucket → a root is above it, or it is one
	rules     map[int]ceph.CrushRule
}

// NewTree builds the tree of a CRUSH map. A bucket with several parents keeps the one with the greatest id, the oldest.
func NewTree(crush *ceph.CrushMap) *Tree {
	t := &Tree{
		typeNames: make(map[int]string, len(crush.Types)),
		typeIDs:   make(map[string]int, len(crush.Types)),
		buckets:   make(map[int]*ceph.CrushBucket, len(crush.Buckets)),
		parent:    make(map[int]int, len(crush.Buckets)+len(crush.Devices)),
		rooted:    make(map[int]bool, len(crush.Buckets)),
		rules:     make(map[int]ceph.CrushRule, len(crush.Rules)),
	}
	for _, x := range crush.Types {
		t.typeNames[x.ID] = x.Name
		t.typeIDs[x.Name] = x.ID
	}
	for _, rule := range crush.Rules {
		t.rules[rule.ID] = rule
	}
	ordered := slices.Clone(crush.Buckets)
	slices.SortFunc(ordered, func(a, b ceph.CrushBucket) int { return cmp.Compare(a.ID, b.ID) })
	for i := range ordered {
		bucket := &ordered[i]
		t.buckets[bucket.ID] = bucket
		if isShadow(bucket.Name) {
			continue
		}
		for _, item := range bucket.Items {
			t.parent[item.ID] = bucket.ID
		}
	}
	t.findRooted()
	return t
}

// isShadow tells whether a bucket's name is that of a shadow, the part of a bucket that has one device class: Ceph allows no
// "~" in other names.
func isShadow(name string) bool { return strings.Contains(name, "~") }

// withoutClass is the name of the bucket that a shadow is a part of.
func withoutClass(name string) string {
	name, _, _ = strings.Cut(name, "~")
	return name
}

// findRooted marks every bucket below a root: a bucket of the topmost type, or one that a rule takes, so that data can be
// placed there. Other trees hold devices that were set aside.
func (t *Tree) findRooted() {
	top := 0
	for id := range t.typeNames {
		top = max(top, id)
	}
	roots := map[string]bool{}
	for _, bucket := range t.buckets {
		if bucket.TypeID == top && !isShadow(bucket.Name) {
			roots[bucket.Name] = true
		}
	}
	for _, rule := range t.rules {
		for _, step := range rule.Steps {
			if bucket := t.buckets[step.Item]; step.Op == "take" && bucket != nil {
				roots[withoutClass(bucket.Name)] = true
			}
		}
	}
	for id, bucket := range t.buckets {
		if !isShadow(bucket.Name) && roots[bucket.Name] {
			t.markRooted(id)
		}
	}
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

// Located tells whether an OSD is somewhere under a root. One that is not holds no data, or holds some nobody knows where.
func (t *Tree) Located(osd int) bool {
	parent, ok := t.parent[osd]
	return ok && t.rooted[parent]
}

// Find returns the name of the failure domain of the given type that an OSD is in, "" if it is in none: Find(3, "zone") is
// "zone-x", Find(3, "osd") is "osd.3".
func (t *Tree) Find(osd int, typeName string) string {
	wanted, known := t.typeIDs[typeName]
	if !known {
		return ""
	}
	if wanted == 0 {
		return ceph.OSDName(osd)
	}
	// The bound keeps a broken map, a loop, from hanging us.
	at, ok := t.parent[osd]
	for range len(t.buckets) {
		if !ok {
			return ""
		}
		if bucket := t.buckets[at]; bucket.TypeID == wanted {
			return bucket.Name
		}
		at, ok = t.parent[at]
	}
	return ""
}

// Location is where an OSD is: the name of the bucket above it for each type ({"host": "node-a", "zone": "zone-x"}).
func (t *Tree) Location(osd int) map[string]string {
	location := map[string]string{}
	at, ok := t.parent[osd]
	for range len(t.buckets) {
		if !ok {
			break
		}
		bucket := t.buckets[at]
		location[t.typeNames[bucket.TypeID]] = bucket.Name
		at, ok = t.parent[at]
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

// BucketID is the id of a bucket, which is negative and stays when the bucket is renamed; 0 if there is none of this name.
func (t *Tree) BucketID(name string) int {
	for id, b := range t.buckets {
		if b.Name == name && !isShadow(name) {
			return id
		}
	}
	return 0
}

// rule finds a pool's rule.
func (t *Tree) rule(pool ceph.Pool) (ceph.CrushRule, error) {
	rule, ok := t.rules[pool.Rule]
	if !ok {
		return rule, fmt.Errorf("pool %q: its CRUSH rule %d does not exist", pool.Name, pool.Rule)
	}
	return rule, nil
}
