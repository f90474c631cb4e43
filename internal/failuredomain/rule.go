package failuredomain

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// block is the part of a rule from a take to its emit. What a block does not emit places nothing.
type block struct {
	take    int // a bucket's id, or a device's
	chooses []choose
}

// choose is one step that chooses.
type choose struct {
	typeID int
	num    int  // 0: as many as the pool wants; −n: that many less n
	leaf   bool // it goes on from each bucket to one OSD in it
	indep  bool // what it does not find leaves a hole, and the next does not move up
}

// count is how many a step chooses in each bucket, for a pool of that size.
func (c choose) count(size int) int {
	if c.num > 0 {
		return min(c.num, size)
	}
	return max(size+c.num, 0)
}

// The codes in include/crush of Ceph that only tune how to choose. Ceph's dump gives most of them without a name.
const firstSetOpcode, lastSetOpcode = 8, 15

// blocks takes a rule apart. An error means that the rule has something in it that we cannot tell the effect of.
func (t *Tree) blocks(rule ceph.CrushRule) ([]block, error) {
	var all []block
	var current *block
	for _, step := range rule.Steps {
		switch {
		case step.Op == "take":
			if step.Item < 0 && t.buckets[step.Item] == nil {
				return nil, fmt.Errorf("CRUSH rule %q takes the bucket %d, which does not exist", rule.Name, step.Item)
			}
			current = &block{take: step.Item}
		case step.Op == "emit":
			if current != nil {
				all = append(all, *current)
			}
			current = nil
		case strings.HasPrefix(step.Op, "choose"):
			c, err := t.choose(rule, step)
			if err != nil {
				return nil, err
			}
			if current != nil {
				current.chooses = append(current.chooses, c)
			}
		case strings.HasPrefix(step.Op, "set_"), step.Op == "noop":
		case step.Op == "" && step.Opcode >= firstSetOpcode && step.Opcode <= lastSetOpcode:
		default:
			return nil, fmt.Errorf("CRUSH rule %q has a step that lockkeeper does not know (%q, code %d)", rule.Name,
				step.Op, step.Opcode)
		}
	}
	return all, nil
}

func (t *Tree) choose(rule ceph.CrushRule, step ceph.CrushStep) (choose, error) {
	id, known := t.typeIDs[step.Type]
	if !known {
		return choose{}, fmt.Errorf("CRUSH rule %q chooses the type %q, which the CRUSH map does not define",
			rule.Name, step.Type)
	}
	return choose{
		typeID: id, num: step.Num,
		leaf:  strings.HasPrefix(step.Op, "chooseleaf"),
		indep: strings.HasSuffix(step.Op, "indep"),
	}, nil
}
