package failuredomain

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// Intolerant names, with the reason, the pools whose data would become unavailable with the loss of one failure domain
// of the given type, which Smallest found. Pools in tolerated are left out: somebody decided that this is fine.
func (t *Tree) Intolerant(pools []ceph.Pool, typeName string, tolerated []string) []string {
	var reasons []string
	known := map[[2]int]int{} // by rule and size, which many pools have in common
	for _, pool := range pools {
		if slices.Contains(tolerated, pool.Name) {
			continue
		}
		key := [2]int{pool.Rule, pool.Size}
		lost, seen := known[key]
		if !seen {
			var err error
			if lost, err = t.mostCopies(pool, typeName); err != nil {
				reasons = append(reasons, fmt.Sprintf("pool %q: %v", pool.Name, err))
				continue
			}
			known[key] = lost
		}
		if pool.Size-lost >= pool.MinSize { // min_size of the copies must remain
			continue
		}
		reason := fmt.Sprintf("pool %q (size %d, min_size %d) would become unavailable with any %s", pool.Name, pool.Size,
			pool.MinSize, typeName)
		if lost > 1 {
			reason += fmt.Sprintf(", which may hold %d copies of the same data", lost)
		}
		reasons = append(reasons, reason)
	}
	return reasons
}

// mostCopies is how many copies of the same data one failure domain of a type may hold. It is one at least: a pool that
// can place nothing now may be able to tomorrow.
func (t *Tree) mostCopies(pool ceph.Pool, typeName string) (int, error) {
	rule, err := t.rule(pool)
	if err != nil {
		return 0, err
	}
	blocks, err := t.blocks(rule)
	if err != nil {
		return 0, err
	}
	typeID, known := t.typeIDs[typeName]
	if !known {
		return 0, fmt.Errorf("the CRUSH map does not define the type %q", typeName)
	}
	most := 1
	for _, n := range t.copiesIn(blocks, pool.Size, typeID) {
		most = max(most, n)
	}
	return most, nil
}
