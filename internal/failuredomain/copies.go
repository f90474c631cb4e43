package failuredomain

import "slices"

// copies tells for each failure domain of a type how many copies of the same data a rule may put there at most. Copies
// are replicas, or shards of an erasure code.
//
// It follows what CRUSH does. Each choose step chooses, in each bucket that the step before has chosen, so many
// different buckets of its type, and never looks at what was chosen elsewhere; "chooseleaf" goes on to one OSD in each.
// So the most that one failure domain can get is the sum over the buckets where it gets most, as many of them as the
// step chooses: "2 datacenters, 2 hosts in each" may put 2 copies into a datacenter, and one into a host. Blocks know
// nothing of each other, so what they may put there adds up. Which OSD CRUSH chooses is chance: weights play no part
// here.
type copies struct {
	tree   *Tree
	size   int
	typeID int
	block  block
	known  map[[2]int]map[int]int // of a bucket and a step
}

// copiesIn returns the most copies for each failure domain, which is named by its bucket, or its OSD.
func (t *Tree) copiesIn(blocks []block, size, typeID int) map[int]int {
	total := map[int]int{}
	left := size
	for _, b := range blocks {
		c := &copies{tree: t, size: size, typeID: typeID, block: b, known: map[[2]int]map[int]int{}}
		for domain, n := range c.below(b.take, 0) {
			total[domain] = min(total[domain]+min(n, left), size)
		}
		// An indep step takes all its places, found or not, so that later blocks have only the others. A firstn step that
		// finds too few leaves its places to them. So may the second of several steps, where the first left a hole.
		if len(b.chooses) == 1 && b.chooses[0].indep {
			left = max(left-b.chooses[0].count(size), 0)
		}
	}
	return total
}

// below is what the steps from the given one on may put into each failure domain, when they begin at an item.
func (c *copies) below(item, step int) map[int]int {
	if step == len(c.block.chooses) {
		return c.placed(item)
	}
	if item >= 0 {
		return nil // CRUSH chooses nothing below an OSD
	}
	key := [2]int{item, step}
	if known, ok := c.known[key]; ok {
		return known
	}
	c.known[key] = nil // a broken map may have loops
	chooses := c.block.chooses[step]
	each := map[int][]int{}
	for _, chosen := range c.tree.choosable(item, chooses.typeID) {
		for domain, n := range c.at(chosen, step) {
			each[domain] = append(each[domain], n)
		}
	}
	out := make(map[int]int, len(each))
	for domain, all := range each {
		slices.Sort(all)
		slices.Reverse(all)
		sum := 0
		for _, n := range all[:min(chooses.count(c.size), len(all))] {
			sum += n
		}
		if sum > 0 {
			out[domain] = min(sum, c.size)
		}
	}
	c.known[key] = out
	return out
}

// at is what comes of a bucket that a step has chosen.
func (c *copies) at(chosen, step int) map[int]int {
	if !c.block.chooses[step].leaf {
		return c.below(chosen, step+1)
	}
	if step+1 < len(c.block.chooses) {
		return nil // the next step finds OSDs, and chooses nothing below them
	}
	out := map[int]int{}
	last := 0
	for _, osd := range c.tree.osdsBelow(chosen) {
		if parents := c.tree.parents[osd]; c.typeID != 0 && len(parents) == 1 {
			if parents[0] == last {
				continue // it is where the one before is
			}
			last = parents[0]
		}
		for _, domain := range c.tree.domains(osd, c.typeID) {
			out[domain] = 1
		}
	}
	return out
}

// placed is one copy on an OSD. A bucket that a rule emits is no place for a copy.
func (c *copies) placed(item int) map[int]int {
	if item < 0 {
		return nil
	}
	out := map[int]int{}
	for _, domain := range c.tree.domains(item, c.typeID) {
		out[domain] = 1
	}
	return out
}

// choosable lists the buckets of a type that CRUSH can choose from a bucket: the first of that type on each way down.
func (t *Tree) choosable(from, typeID int) []int {
	var out []int
	seen := map[int]bool{from: true}
	var visit func(bucket int)
	visit = func(bucket int) {
		b := t.buckets[bucket]
		if b == nil {
			return
		}
		for _, item := range b.Items {
			if item.ID < 0 || len(t.parents[item.ID]) > 1 { // what has one parent is met once
				if seen[item.ID] {
					continue
				}
				seen[item.ID] = true
			}
			if t.typeOf(item.ID) == typeID {
				out = append(out, item.ID)
			} else if item.ID < 0 {
				visit(item.ID)
			}
		}
	}
	visit(from)
	return out
}

// osdsBelow lists the OSDs in a bucket, or the OSD itself.
func (t *Tree) osdsBelow(item int) []int {
	if item >= 0 {
		return []int{item}
	}
	return t.choosable(item, 0)
}

// typeOf is the type of an item, −1 of a bucket that does not exist.
func (t *Tree) typeOf(item int) int {
	if item >= 0 {
		return 0
	}
	if b := t.buckets[item]; b != nil {
		return b.TypeID
	}
	return -1
}
