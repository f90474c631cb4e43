// Package longhornguard is the guard of a Longhorn installation: which nodes may be emptied, at the same time or one
// after the other, so that no volume loses its last healthy replica and no two nodes with replicas of one volume go
// together. What there is to judge by is decided by package longhorn where all volumes are known; this package turns
// it into leases and budgets.
package longhornguard

import (
	"encoding/json"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Look is what a look tells of a Longhorn installation.
type Look struct {
	longhorn.Summary
	// Admitted says of the nodes that jobs empty, and then of those that wait, whether they may.
	Admitted []longhorn.Admission `json:"admitted,omitempty"`
	// Settings are those of Longhorn that decide.
	Settings longhorn.Settings `json:"settings,omitzero"`
	// Single is how many volumes have one replica only, SingleExample the first of them.
	Single        int    `json:"single,omitempty"`
	SingleExample string `json:"singleExample,omitempty"`
	// Moves: replicas are moved away from nodes that are to be removed; nil: who looked did not know of that.
	Moves *bool `json:"moves,omitempty"`
	// Managers are the nodes on which instance managers should run, with what they have: by name.
	Managers map[string]Managers `json:"managers,omitempty"`
	// Unheld are the nodes that must not go, and from which autoscalers are not held back.
	Unheld []string `json:"unheld,omitempty"`
}

// Managers are the instance managers of a node.
type Managers struct {
	// Running: all of them run, and their pods are ready.
	Running bool `json:"ok,omitempty"`
}

// seen is what the last look told; ok is false when it told nothing of Longhorn.
func seen(in guard.Input) (l Look, ok bool) {
	if len(in.Own) == 0 {
		return l, false
	}
	return l, json.Unmarshal(in.Own, &l) == nil
}

// node is what a look tells of a node.
func (l Look) node(name string) (longhorn.NodeSummary, bool) {
	for _, n := range l.Nodes {
		if n.Node == name {
			return n, true
		}
	}
	return longhorn.NodeSummary{}, false
}

// admission is the answer about a node.
func (l Look) admission(name string) (longhorn.Admission, bool) {
	for _, a := range l.Admitted {
		if a.Node == name {
			return a, true
		}
	}
	return longhorn.Admission{}, false
}

// open lists the nodes that may go now, by name.
func (l Look) open() (names []string) {
	for _, n := range l.Nodes {
		if n.State == longhorn.Open {
			names = append(names, n.Node)
		}
	}
	return names
}

// leaving tells whether a node is, and has to wait.
func (l Look) leaving() bool {
	return slices.ContainsFunc(l.Nodes, func(n longhorn.NodeSummary) bool {
		return n.Leaving != longhorn.NotLeaving && n.Leaving != longhorn.Gone
	})
}

// stay lists the nodes from which autoscalers are to be held back, by name.
func (l Look) stay() (names []string) {
	for _, n := range l.Nodes {
		if n.Stay {
			names = append(names, n.Node)
		}
	}
	return names
}

// relocate is what becomes of the replicas on nodes that are leaving.
func (l Look) relocate() []storage.Relocation {
	if l.Moves == nil {
		return nil
	}
	out := []storage.Relocation{}
	for _, n := range l.Nodes {
		if n.Evict != longhorn.NotEvicted {
			out = append(out, storage.Relocation{Node: n.Node, Away: n.Evict == longhorn.Evicted})
		}
	}
	return out
}

// evicted lists the nodes whose replicas are moved to others, by name.
func (l Look) evicted() (names []string) {
	for _, n := range l.Nodes {
		if n.Evict == longhorn.Evicted {
			names = append(names, n.Node)
		}
	}
	return names
}

// away lists the nodes that stay, and whose instance managers do not run: what is on them protects nothing.
func (l Look) away() (names []string) {
	for _, n := range l.Nodes {
		if n.Leaving == longhorn.NotLeaving && l.isAway(n.Node) {
			names = append(names, n.Node)
		}
	}
	return names
}

// allAway lists the nodes whose instance managers do not run, whether or not they are leaving.
func (l Look) allAway() (names []string) {
	for _, n := range l.Nodes {
		if n.Leaving != longhorn.Gone && l.isAway(n.Node) {
			names = append(names, n.Node)
		}
	}
	return names
}

// isAway tells whether a node should run instance managers and does not.
func (l Look) isAway(name string) bool {
	m, has := l.Managers[name]
	return has && !m.Running
}

// Seen is what a look told, for who shows it; ok is false when it told nothing of Longhorn.
func Seen(own json.RawMessage) (l Look, ok bool) { return seen(guard.Input{Own: own}) }

// AdmissionOf is what a look told of a node that a job empties, or would.
func AdmissionOf(own json.RawMessage, node string) (longhorn.Admission, bool) {
	l, _ := seen(guard.Input{Own: own})
	return l.admission(node)
}
