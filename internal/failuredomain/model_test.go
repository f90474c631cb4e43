package failuredomain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
)

// This file compares what is said of pools with a slow model that places PGs: it goes through a rule step by step as
// CRUSH does, and wherever CRUSH asks chance, it takes every answer.

// hole is the place of a copy that an indep step did not find.
const hole = 1 << 20

// placer places the PGs of one pool.
type placer struct {
	m    *ceph.CrushMap
	size int
}

func (p placer) bucket(id int) *ceph.CrushBucket {
	for i := range p.m.Buckets {
		if p.m.Buckets[i].ID == id {
			return &p.m.Buckets[i]
		}
	}
	return nil
}

func (p placer) typeOf(item int) string {
	id := 0
	if b := p.bucket(item); b != nil {
		id = b.TypeID
	}
	for _, t := range p.m.Types {
		if t.ID == id {
			return t.Name
		}
	}
	return "?"
}

// chooseFrom are the items of a type that a walk down from a bucket can end at.
func (p placer) chooseFrom(bucket int, typeName string) []int {
	found := map[int]bool{}
	if b := p.bucket(bucket); b != nil {
		for _, item := range b.Items {
			if p.typeOf(item.ID) == typeName {
				found[item.ID] = true
				continue
			}
			for _, below := range p.chooseFrom(item.ID, typeName) {
				found[below] = true
			}
		}
	}
	var out []int
	for item := range found {
		out = append(out, item)
	}
	slices.Sort(out)
	return out
}

// osds are all OSDs in a bucket.
func (p placer) osds(item int) []int {
	if item >= 0 {
		return []int{item}
	}
	return p.chooseFrom(item, "osd")
}

// moment is where CRUSH is in a rule: what the last step chose, and what was emitted.
type moment struct{ working, result []int }

// mostMoments bounds what the model does; a case with more ways to go is left out.
const mostMoments = 6000

// places are all the ways in which a rule can place a PG: OSDs and holes, at most as many as the pool's size.
func (p placer) places(rule ceph.CrushRule) (all [][]int, ok bool) {
	now := []moment{{}}
	for _, step := range rule.Steps {
		var next []moment
		seen := map[string]bool{}
		for _, s := range now {
			for _, to := range p.step(s, step) {
				if key := fmt.Sprint(to); !seen[key] {
					seen[key] = true
					next = append(next, to)
				}
			}
			if len(next) > mostMoments {
				return nil, false
			}
		}
		now = next
	}
	for _, s := range now {
		all = append(all, s.result)
	}
	return all, true
}

func (p placer) step(s moment, step ceph.CrushStep) []moment {
	switch {
	case step.Op == "take":
		return []moment{{[]int{step.Item}, s.result}}
	case step.Op == "emit":
		result := slices.Concat(s.result, s.working)
		return []moment{{nil, result[:min(len(result), p.size)]}}
	case !strings.HasPrefix(step.Op, "choose"):
		return []moment{s}
	}
	num := step.Num
	if num <= 0 {
		num += p.size
	}
	chosen := [][]int{{}}
	for _, from := range s.working {
		if from >= 0 || num <= 0 { // an OSD, or a hole
			continue
		}
		var more [][]int
		for _, before := range chosen {
			for _, here := range p.choose(from, step, min(num, p.size-len(before))) {
				more = append(more, slices.Concat(before, here))
			}
			if len(more) > mostMoments {
				break // places sees as many, and gives up
			}
		}
		chosen = more
	}
	var out []moment
	for _, c := range chosen {
		out = append(out, moment{c, s.result})
	}
	return out
}

// choose are all the ways in which a step can choose num times in one bucket. CRUSH may give up at each of them.
func (p placer) choose(from int, step ceph.CrushStep, num int) [][]int {
	type way struct{ buckets, out []int }
	ways := []way{{}}
	for range num {
		more := slices.Clone(ways)
		if strings.HasSuffix(step.Op, "indep") {
			more = nil
			for _, w := range ways {
				more = append(more, way{w.buckets, slices.Concat(w.out, []int{hole})})
			}
		}
		for _, w := range ways {
			for _, item := range p.chooseFrom(from, step.Type) {
				if slices.Contains(w.buckets, item) {
					continue
				}
				ends := []int{item}
				if strings.HasPrefix(step.Op, "chooseleaf") {
					ends = p.osds(item)
				}
				for _, end := range ends {
					if !slices.Contains(w.out, end) {
						more = append(more, way{slices.Concat(w.buckets, []int{item}), slices.Concat(w.out, []int{end})})
					}
				}
			}
		}
		ways = more
		if len(ways) > mostMoments {
			break
		}
	}
	var out [][]int
	seen := map[string]bool{}
	for _, w := range ways {
		if key := fmt.Sprint(w.out); !seen[key] {
			seen[key] = true
			out = append(out, w.out)
		}
	}
	return out
}

// domains are the OSDs of each failure domain of a type.
func (p placer) domains(typeName string) map[string][]int {
	out := map[string][]int{}
	if typeName == failuredomain.OSDType {
		for _, b := range p.m.Buckets {
			for _, osd := range p.osds(b.ID) {
				out[ceph.OSDName(osd)] = []int{osd}
			}
		}
		return out
	}
	for _, b := range p.m.Buckets {
		if p.typeOf(b.ID) == typeName && !strings.Contains(b.Name, "~") {
			out[b.Name] = p.osds(b.ID)
		}
	}
	return out
}

// count is how many copies of a PG are on these OSDs.
func count(place, osds []int) int {
	n := 0
	for _, osd := range place {
		if slices.Contains(osds, osd) {
			n++
		}
	}
	return n
}

// whole: no copy is missing. Only of such a PG Ceph says that it is clean, and nothing opens before all are.
func (p placer) whole(place []int) bool {
	return len(place) == p.size && !slices.ContainsFunc(place, func(item int) bool { return item < 0 || item == hole })
}

// drawn is a cluster that rapid has drawn.
type drawn struct {
	crush  *ceph.CrushMap
	pools  []ceph.Pool
	linked bool // buckets are in several others
}

func (d drawn) rule(p ceph.Pool) ceph.CrushRule { return d.crush.Rules[p.Rule] }

func (d drawn) String() string {
	var b strings.Builder
	p := placer{m: d.crush}
	for _, x := range d.crush.Buckets {
		fmt.Fprintf(&b, "%s %s (%d):", p.typeOf(x.ID), x.Name, x.ID)
		for _, item := range x.Items {
			fmt.Fprintf(&b, " %d", item.ID)
		}
		b.WriteString("\n")
	}
	for _, pool := range d.pools {
		fmt.Fprintf(&b, "pool %s size %d min_size %d: %v\n", pool.Name, pool.Size, pool.MinSize, d.rule(pool).Steps)
	}
	return b.String()
}

// drawCluster draws a small cluster: a tree of types with random numbers, uneven, with a device class, now and then
// with a second root whose PDUs cut across the first.
func drawCluster(t *rapid.T) drawn {
	levels := []string{"host", "rack", "zone", "datacenter"}
	numbers := rapid.Permutation([]int{1, 2, 3, 5, 8, 9, 11, 40}).Draw(t, "numbers")
	d := drawn{crush: &ceph.CrushMap{Types: []ceph.CrushType{{ID: 0, Name: "osd"}}}}
	typeID := map[string]int{"osd": 0}
	for i, name := range append(slices.Clone(levels), "root", "pdu") {
		typeID[name] = numbers[i]
		d.crush.Types = append(d.crush.Types, ceph.CrushType{ID: numbers[i], Name: name})
	}
	osds := rapid.IntRange(2, 7).Draw(t, "osds")
	items := make([]int, osds)
	for i := range items {
		items[i] = i
	}
	next := -1
	add := func(kind string, items []int) int {
		bucket(d.crush, next, fmt.Sprintf("%s%d", kind, -next), typeID[kind], items...)
		next--
		return next + 1
	}
	hosts := items
	for _, kind := range levels {
		if rapid.IntRange(0, 3).Draw(t, "no "+kind) == 0 {
			continue
		}
		var above []int
		for len(items) > 0 {
			n := rapid.IntRange(1, min(len(items), 3)).Draw(t, "in "+kind)
			if rapid.IntRange(0, 9).Draw(t, "straight up") == 0 {
				above = append(above, items[:n]...)
			} else {
				above = append(above, add(kind, items[:n]))
			}
			items = items[n:]
		}
		if items = above; kind == "host" {
			hosts = above
		}
	}
	takes := []int{add("root", items)}
	whole := slices.Clone(d.crush.Buckets)
	if rapid.IntRange(0, 2).Draw(t, "cut across") == 0 {
		d.linked = true
		var pdus []int
		for rest := rapid.Permutation(hosts).Draw(t, "order"); len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 3)).Draw(t, "in pdu")
			fed := rest[:n]
			if twice := rapid.SampledFrom(hosts).Draw(t, "fed twice"); len(pdus) > 0 && !slices.Contains(fed, twice) &&
				rapid.IntRange(0, 5).Draw(t, "second feed") == 0 {
				fed = append(slices.Clone(fed), twice)
			}
			pdus = append(pdus, add("pdu", fed))
			rest = rest[n:]
		}
		takes = append(takes, add("root", pdus))
	}
	takes = append(takes, addClass(d.crush, whole, &next))
	if rapid.IntRange(0, 4).Draw(t, "take any") == 0 {
		takes = append(takes, rapid.SampledFrom(d.crush.Buckets).Draw(t, "any").ID)
	}
	types := append(slices.Clone(levels), "osd", "osd")
	if d.linked {
		types = append(types, "pdu", "pdu")
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "pools") {
		d.crush.Rules = append(d.crush.Rules,
			ceph.CrushRule{ID: i, Name: fmt.Sprintf("rule%d", i), Steps: drawSteps(t, takes, types)})
		size := rapid.IntRange(1, 4).Draw(t, "size")
		d.pools = append(d.pools, ceph.Pool{
			ID: i + 1, Name: fmt.Sprintf("pool%d", i), Rule: i, Size: size,
			MinSize: rapid.IntRange(1, size).Draw(t, "min_size"),
		})
	}
	return d
}

// addClass adds the shadows of all buckets with the even OSDs alone, and returns that of the root, which is the last.
func addClass(m *ceph.CrushMap, buckets []ceph.CrushBucket, next *int) int {
	shadow := map[int]int{}
	for _, b := range buckets {
		var items []int
		for _, item := range b.Items {
			if item.ID < 0 {
				items = append(items, shadow[item.ID])
			} else if item.ID%2 == 0 {
				items = append(items, item.ID)
			}
		}
		bucket(m, *next, b.Name+"~ssd", b.TypeID, items...)
		shadow[b.ID] = *next
		*next--
	}
	return *next + 1
}

func drawSteps(t *rapid.T, takes []int, types []string) []ceph.CrushStep {
	var steps []ceph.CrushStep
	blocks := 1
	if rapid.IntRange(0, 4).Draw(t, "two blocks") == 0 {
		blocks = 2
	}
	for range blocks {
		tune := rapid.SampledFrom([]ceph.CrushStep{{Op: "noop"}, {Op: "set_chooseleaf_tries", Num: 5}, {Opcode: 12}}).Draw(t,
			"tune")
		steps = append(steps, tune, ceph.CrushStep{Op: "take", Item: rapid.SampledFrom(takes).Draw(t, "take")})
		n := rapid.SampledFrom([]int{1, 1, 2, 2, 3}).Draw(t, "steps")
		for i := range n {
			step := ceph.CrushStep{
				Num:  rapid.SampledFrom([]int{0, 0, 1, 2, 3, -1, -2}).Draw(t, "num"),
				Type: rapid.SampledFrom(types).Draw(t, "type"),
			}
			ops := []string{"choose_firstn", "choose_indep"}
			if i == n-1 {
				ops = []string{"chooseleaf_firstn", "chooseleaf_indep"}
			}
			step.Op = rapid.SampledFrom(ops).Draw(t, "op")
			steps = append(steps, step)
		}
		steps = append(steps, ceph.CrushStep{Op: "emit"})
	}
	return steps
}

// checkOften draws ten times as many clusters as usual: they are small, and what matters is rare.
func checkOften(t *testing.T, property func(*rapid.T)) {
	for range 10 {
		rapid.Check(t, property)
	}
}

// TestWhatOpensIsBorne: whatever the tree and the rules, to lose all OSDs of any failure domain of the type that is
// found leaves min_size copies of every PG that was whole, or the pool is named.
func TestWhatOpensIsBorne(t *testing.T) {
	opened, refused := 0, 0
	checkOften(t, func(t *rapid.T) {
		d := drawCluster(t)
		tree := failuredomain.NewTree(d.crush)
		smallest, err := tree.Smallest(d.pools)
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		if named := tree.Intolerant(d.pools, smallest.Type, nil); len(named) > 0 {
			refused++
			return
		}
		opened++
		for _, pool := range d.pools {
			p := placer{m: d.crush, size: pool.Size}
			places, ok := p.places(d.rule(pool))
			if !ok {
				return
			}
			for name, osds := range p.domains(smallest.Type) {
				for _, place := range places {
					if left := len(place) - count(place, osds); p.whole(place) && left < pool.MinSize {
						t.Fatalf("%s %s may go, but of pool %s that leaves %d of %v\n%s", smallest.Type, name, pool.Name, left, place, d)
					}
				}
			}
		}
	})
	require.Greater(t, opened, 100)
	require.Greater(t, refused, 100)
}

// TestCopiesAreCounted: a pool is named for a type exactly if its rule can put so many copies into one failure domain
// of that type that too few are left. There are three cases in which more care is taken than that:
//   - A place in which copies are missing counts, too. No PG that is placed so is clean, but another PG may need them
//     all.
//   - A pool counts as if it had a copy in every failure domain, though its rule may find no OSD today: one more OSD
//     changes that.
//   - After another step, an indep step takes all its places in each bucket, also those for which the bucket has
//     nothing. What that takes from the other buckets, and from the blocks after it, is not counted. It matters where a
//     PG is never clean (a host with one OSD, of which a rule wants two), and for blocks of several steps before
//     others.
//
// Where buckets are linked into several others only the safe direction holds: the sum over buckets that share an OSD
// counts it for each.
func TestCopiesAreCounted(t *testing.T) {
	checkOften(t, func(t *rapid.T) {
		d := drawCluster(t)
		tree := failuredomain.NewTree(d.crush)
		pool := d.pools[0]
		p := placer{m: d.crush, size: pool.Size}
		places, ok := p.places(d.rule(pool))
		if !ok {
			return
		}
		for _, typ := range d.crush.Types {
			lost := 1
			for _, osds := range p.domains(typ.Name) {
				for _, place := range places {
					lost = max(lost, count(place, osds))
				}
			}
			for pool.MinSize = range pool.Size + 1 {
				bears := pool.Size-lost >= pool.MinSize
				says := len(tree.Intolerant([]ceph.Pool{pool}, typ.Name, nil)) == 0
				if says != bears && (says || !d.linked && !p.takesInVain(d.rule(pool))) {
					t.Fatalf("a %s may hold %d copies of pool %s; with min_size %d that is borne: %t, but the answer is %t\n%s",
						typ.Name, lost, pool.Name, pool.MinSize, bears, says, d)
				}
			}
		}
	})
}

// takesInVain: an indep step after another one takes places that others could have had.
func (p placer) takesInVain(rule ceph.CrushRule) bool {
	var before *ceph.CrushStep
	ended := false // a block with such a step
	after := false
	for i := range rule.Steps {
		step := &rule.Steps[i]
		switch {
		case step.Op == "take":
			if ended {
				return true
			}
			before, after = nil, false
		case step.Op == "emit":
			ended = ended || after
		case strings.HasPrefix(step.Op, "choose"):
			if before != nil && strings.HasSuffix(step.Op, "indep") {
				after = true
				if p.tooFew(before.Type, *step) {
					return true
				}
			}
			before = step
		}
	}
	return false
}

// tooFew: a bucket of a type has less to choose than a step wants.
func (p placer) tooFew(typeName string, step ceph.CrushStep) bool {
	num := step.Num
	if num <= 0 {
		num += p.size
	}
	return slices.ContainsFunc(p.m.Buckets, func(b ceph.CrushBucket) bool {
		return p.typeOf(b.ID) == typeName && len(p.chooseFrom(b.ID, step.Type)) < min(num, p.size)
	})
}

// TestSmallestIsWithinAll: the type that is found lies within each type that a rule chooses; there is a compromise only
// if no such type lies within all the others; and the numbers of the types play no part.
func TestSmallestIsWithinAll(t *testing.T) {
	compromises := 0
	checkOften(t, func(t *rapid.T) {
		d := drawCluster(t)
		smallest, err := failuredomain.NewTree(d.crush).Smallest(d.pools)
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		p := placer{m: d.crush}
		relied := d.relied()
		used := slices.DeleteFunc(slices.Clone(relied),
			func(name string) bool { return len(slices.Concat(values(p.domains(name))...)) == 0 })
		lowest := slices.Contains(used, failuredomain.OSDType) || slices.ContainsFunc(used, func(a string) bool {
			return !slices.ContainsFunc(used, func(b string) bool { return !p.within(a, b) })
		})
		switch {
		case len(used) == 0:
			if !slices.Contains(relied, smallest.Type) {
				t.Fatalf("%+v\n%s", smallest, d)
			}
		case smallest.Compromise == lowest:
			t.Fatalf("%+v, but one that the rules choose is within all the others: %t\n%s", smallest, lowest, d)
		case smallest.Compromise:
			compromises++
			for _, name := range used {
				if !strings.Contains(smallest.Because, "type "+name) {
					t.Fatalf("%q does not name %s\n%s", smallest.Because, name, d)
				}
			}
		}
		for _, b := range used {
			if smallest.Type != failuredomain.OSDType && !p.within(smallest.Type, b) {
				t.Fatalf("%+v is not within %s\n%s", smallest, b, d)
			}
		}
		numbers := map[int]int{0: 0}
		for i, n := range rapid.Permutation([]int{1, 2, 3, 4, 5, 6}).Draw(t, "other numbers") {
			numbers[d.crush.Types[i+1].ID] = n
			d.crush.Types[i+1].ID = n
		}
		for i := range d.crush.Buckets {
			d.crush.Buckets[i].TypeID = numbers[d.crush.Buckets[i].TypeID]
		}
		if other, err := failuredomain.NewTree(d.crush).Smallest(d.pools); err != nil || other != smallest {
			t.Fatalf("with other numbers %+v is %+v (%v)\n%s", smallest, other, err, d)
		}
	})
	require.Positive(t, compromises)
}

// relied are the types that the rules spread copies over.
func (d drawn) relied() []string {
	var out []string
	for _, pool := range d.pools {
		first := true
		for _, step := range d.rule(pool).Steps {
			switch {
			case step.Op == "take":
				first = true
			case strings.HasPrefix(step.Op, "choose"):
				if (first || step.Num != 1) && !slices.Contains(out, step.Type) {
					out = append(out, step.Type)
				}
				first = false
			}
		}
	}
	return out
}

// within: who loses one a has lost OSDs of at most one b, and every OSD that is in a b is in one a.
func (p placer) within(a, b string) bool {
	as, bs := p.domains(a), p.domains(b)
	inA, inB := slices.Concat(values(as)...), slices.Concat(values(bs)...)
	for _, osd := range inB {
		if count(inA, []int{osd}) != 1 || count(inB, []int{osd}) != 1 {
			return false
		}
	}
	for _, x := range as {
		touched := 0
		for _, y := range bs {
			if slices.ContainsFunc(x, func(osd int) bool { return slices.Contains(y, osd) }) {
				touched++
			}
		}
		if touched > 1 {
			return false
		}
	}
	return true
}

func values(m map[string][]int) [][]int {
	var out [][]int
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
