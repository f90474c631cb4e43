package longhorn

import (
	"cmp"
	"slices"
)

// keepCover keeps as few more nodes as it finds so that every volume has a healthy replica on a node that is kept, and
// returns those that it keeps. Nodes that the decision before kept stay, unless a cover without them is smaller: a node
// whose budget came and went with every volume could never be emptied. What a node can keep that is not to be removed
// anyway, it keeps: so that no other one has to stay for it.
func (s *surveyed) keepCover() []string {
	if s.world.Settings.DrainPolicy == AlwaysAllow {
		return nil
	}
	names := s.keepByPinned()
	open := s.open()
	var before []*node
	for _, name := range s.world.Kept {
		if n := s.byName[name]; n != nil && n.reason == "" {
			before = append(before, n)
		}
	}
	fresh := greedy(open, nil)
	cover := fresh
	if sticky := prune(open, greedy(open, before)); len(sticky) <= len(fresh) {
		cover = sticky
	}
	for _, n := range cover {
		n.keep(Cover, n.example(open))
		names = append(names, n.name)
	}
	slices.Sort(names)
	return names
}

// open are the volumes that nothing keeps yet, and something could.
func (s *surveyed) open() (open []*volume) {
	for _, v := range s.volumes {
		v.covered = len(v.keepers) == 0 || slices.ContainsFunc(v.keepers, func(n *node) bool { return n.reason != "" })
		if !v.covered {
			open = append(open, v)
		}
	}
	return open
}

// keepByPinned keeps nodes that are not to be removed anyway, for all volumes that they can keep.
func (s *surveyed) keepByPinned() (names []string) {
	var could []*volume
	for _, v := range s.open() {
		pinned := slices.DeleteFunc(slices.Clone(v.keepers), func(n *node) bool { return !n.pinned })
		if len(pinned) > 0 {
			could = append(could, &volume{name: v.name, keepers: pinned})
		}
	}
	for _, n := range greedy(could, nil) {
		n.keep(Cover, n.example(could))
		names = append(names, n.name)
	}
	return names
}

// greedy completes a cover: again and again it takes the node that keeps most of the volumes that are left.
func greedy(volumes []*volume, chosen []*node) []*node {
	left := map[*node]int{} // how many of the volumes that are left it keeps
	done := map[*volume]bool{}
	of := map[*node][]*volume{}
	for _, v := range volumes {
		for _, n := range v.keepers {
			left[n]++
			of[n] = append(of[n], v)
		}
	}
	take := func(n *node) {
		for _, v := range of[n] {
			if done[v] {
				continue
			}
			done[v] = true
			for _, k := range v.keepers {
				left[k]--
			}
		}
	}
	var cover []*node
	for _, n := range chosen {
		if left[n] > 0 {
			take(n)
			cover = append(cover, n)
		}
	}
	candidates := make([]*node, 0, len(left))
	for n := range left {
		candidates = append(candidates, n)
	}
	slices.SortFunc(candidates, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	for len(done) < len(volumes) {
		best := candidates[0]
		for _, n := range candidates[1:] {
			if left[n] > left[best] {
				best = n
			}
		}
		take(best)
		cover = append(cover, best)
	}
	return prune(volumes, cover)
}

// prune leaves out nodes without which the others still keep every volume, the last first.
func prune(volumes []*volume, cover []*node) []*node {
	chosen := map[*node]bool{}
	for _, n := range cover {
		chosen[n] = true
	}
	keepers := map[*volume]int{}
	of := map[*node][]*volume{}
	for _, v := range volumes {
		for _, n := range v.keepers {
			if chosen[n] {
				keepers[v]++
				of[n] = append(of[n], v)
			}
		}
	}
	for _, n := range slices.Backward(cover) {
		if slices.ContainsFunc(of[n], func(v *volume) bool { return keepers[v] == 1 }) {
			continue
		}
		chosen[n] = false
		for _, v := range of[n] {
			keepers[v]--
		}
	}
	return slices.DeleteFunc(slices.Clone(cover), func(n *node) bool { return !chosen[n] })
}

// example is one of the volumes for whose sake a node is kept.
func (n *node) example(volumes []*volume) string {
	for _, v := range volumes {
		if slices.Contains(v.keepers, n) {
			return v.name
		}
	}
	return ""
}
