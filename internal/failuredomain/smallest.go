package failuredomain

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// Smallest is the smallest failure domain that any pool relies on, which is what may be taken down at a time: every
// pool bears the loss of one of these, but maybe not of anything bigger.
type Smallest struct {
	Type string // "zone"
	// Because says which pool and rule it comes from, for people.
	Because string
}

// Smallest goes through the rules of all pools. Without pools it is the host, which is what Ceph's default rule would use for
// the first one. An error means that a pool's rule cannot be understood, and nothing may be taken down.
func (t *Tree) Smallest(pools []ceph.Pool) (Smallest, error) {
	if len(pools) == 0 {
		return Smallest{Type: t.HostType(), Because: "there are no pools: Ceph's default"}, nil
	}
	var found Smallest
	smallest := -1
	for _, pool := range pools {
		rule, err := t.rule(pool)
		if err != nil {
			return Smallest{}, err
		}
		id, err := t.smallestOfRule(rule)
		if err != nil {
			return Smallest{}, fmt.Errorf("pool %q: %w", pool.Name, err)
		}
		if smallest < 0 || id < smallest {
			smallest = id
			found = Smallest{Type: t.typeNames[id], Because: fmt.Sprintf("pool %q with CRUSH rule %q", pool.Name, rule.Name)}
		}
	}
	return found, nil
}

// HostType is the name of the type just above the OSDs: "host", unless somebody renamed it.
func (t *Tree) HostType() string {
	if name, ok := t.typeNames[1]; ok {
		return name
	}
	return "host"
}

// smallestOfRule returns the id of the smallest type that a rule spreads copies over.
//
// A rule is one or more blocks of take, choose…, emit. Each choose step spreads copies over buckets of its type, so the
// smallest of them all is what one failure may take. A step that chooses exactly one bucket inside each of those
// chosen before spreads nothing: "3 zones, 1 host in each" has one copy per zone, and may lose a zone.
func (t *Tree) smallestOfRule(rule ceph.CrushRule) (int, error) {
	smallest := -1
	for _, block := range blocks(rule) {
		for i, step := range block.chooses {
			id, known := t.typeIDs[step.Type]
			if !known {
				return 0, fmt.Errorf("CRUSH rule %q chooses the type %q, which the CRUSH map does not define", rule.Name, step.Type)
			}
			if i > 0 && step.Num == 1 {
				continue
			}
			if smallest < 0 || id < smallest {
				smallest = id
			}
		}
	}
	if smallest < 0 {
		return 0, fmt.Errorf("CRUSH rule %q chooses nothing", rule.Name)
	}
	return smallest, nil
}

// block is the part of a rule from a take to its emit.
type block struct {
	take    int // a bucket's id
	chooses []ceph.CrushStep
}

func blocks(rule ceph.CrushRule) []block {
	var all []block
	for _, step := range rule.Steps {
		switch {
		case step.Op == "take":
			all = append(all, block{take: step.Item})
		case isChoose(step.Op) && len(all) > 0:
			current := &all[len(all)-1]
			current.chooses = append(current.chooses, step)
		}
	}
	return all
}

// isChoose tells the steps that choose from those that tune how: choose_firstn, chooseleaf_indep, choose_msr, not
// set_chooseleaf_tries.
func isChoose(op string) bool { return strings.HasPrefix(op, "choose") }
