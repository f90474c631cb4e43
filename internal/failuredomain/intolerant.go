package failuredomain

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// Intolerant names, with the reason, the pools whose data would become unavailable with the loss of one failure domain of
// the given type, which Smallest found. Pools in tolerated are left out: somebody decided that this is fine.
func (t *Tree) Intolerant(pools []ceph.Pool, typeName string, tolerated []string) []string {
	var reasons []string
	for _, pool := range pools {
		if slices.Contains(tolerated, pool.Name) {
			continue
		}
		// Copies, or shards of an erasure code: either way min_size of them must remain.
		lost := t.copiesInOne(pool, typeName)
		if pool.Size-lost >= pool.MinSize {
			continue
		}
		reason := fmt.Sprintf("pool %q (size %d, min_size %d) would become unavailable with any %s", pool.Name, pool.Size, pool.MinSize, typeName)
		if lost > 1 {
			reason += fmt.Sprintf(", which may hold %d copies of the same data", lost)
		}
		reasons = append(reasons, reason)
	}
	return reasons
}

// copiesInOne is how many copies of the same data one failure domain may hold. It is one, as no pool spreads over anything
// smaller; but a rule of several blocks ("one copy on SSDs, the others on HDDs") chooses in each of them without regard to
// the others, and may meet the same host in each.
func (t *Tree) copiesInOne(pool ceph.Pool, typeName string) int {
	rule, err := t.rule(pool)
	if err != nil {
		return 1
	}
	all := blocks(rule)
	if len(all) < 2 {
		return 1
	}
	taken := map[string]int{} // failure domain → blocks that may choose in it
	most := 1
	for _, block := range all {
		for name := range t.domainsBelow(block.take, typeName) {
			taken[name]++
			most = max(most, taken[name])
		}
	}
	return most
}

// domainsBelow names the failure domains with a device below a bucket, which may be a shadow.
func (t *Tree) domainsBelow(bucket int, typeName string) map[string]bool {
	names := map[string]bool{}
	seen := map[int]bool{}
	var visit func(id int)
	visit = func(id int) {
		if seen[id] {
			return
		}
		seen[id] = true
		if id >= 0 {
			if name := t.Find(id, typeName); name != "" {
				names[name] = true
			}
			return
		}
		if b := t.buckets[id]; b != nil {
			for _, item := range b.Items {
				visit(item.ID)
			}
		}
	}
	visit(bucket)
	return names
}
