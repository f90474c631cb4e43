package fencing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is about who is to be asked before a node is fenced: several storage clusters may share Machines.

// Witness is what one MaintenancePolicy has to do with a node that may have to be fenced.
type Witness struct {
	Cluster storage.ClusterKey
	// Hosts: its storage cluster has OSDs on the node. One that has not may hold the Machine for something else.
	Hosts bool
	// Gone: it was deleted a moment ago. Leaves is why it will not be in charge for long; "": it will.
	Gone   bool
	Leaves string
	// Fences: it names what fences nodes, and that is served. Patient is the node by that.
	Fences  bool
	Patient Patient
}

// Hearing is what all of them say.
type Hearing struct {
	Patient Patient
	// Clusters are those whose keepers have to release the node's Machine, in the order of their keys.
	Clusters []storage.ClusterKey
	// Passing is why another policy may be in charge in a moment, where none is; "": nothing tells of that.
	Passing string
}

// Hear puts together what policies say of a node. asked: their keepers were asked already, and whoever holds the
// Machine stays among them.
func Hear(witnesses []Witness, asked bool) (h Hearing) {
	for _, w := range witnesses {
		held := w.Patient.Machine.Held
		switch {
		case w.Gone:
			h.Passing = fmt.Sprintf("MaintenancePolicy %s was deleted a moment ago", w.Cluster)
			continue
		case !w.Fences: // it holds nothing, and says so itself
			continue
		case w.Leaves != "" && !asked:
			if held || w.Hosts {
				h.Passing = fmt.Sprintf("MaintenancePolicy %s is on its way out: %s", w.Cluster, w.Leaves)
			}
			continue
		case held:
			w.Patient.Holders = 1
		case w.Leaves != "" || !w.Hosts: // one that was asked and leaves counts as long as its hold is there
			continue
		}
		h.Clusters = append(h.Clusters, w.Cluster)
		h.Patient = join(h.Patient, w.Patient)
	}
	if asked || len(h.Clusters) > 0 {
		h.Passing = ""
	}
	slices.SortFunc(h.Clusters, func(a, b storage.ClusterKey) int { return strings.Compare(a.String(), b.String()) })
	return h
}

// join is what several policies say of one node: it is unhealthy if any of them finds it so, and held if any holds it.
func join(a, b Patient) Patient {
	if a.Machine.UID == "" {
		a.Machine, a.Deleting = b.Machine, b.Deleting
	}
	a.Machine.Held = a.Machine.Held || b.Machine.Held
	a.Holders += b.Holders
	if !b.Unhealthy.IsZero() && (a.Unhealthy.IsZero() || b.Unhealthy.Before(a.Unhealthy)) {
		a.Unhealthy, a.Condition = b.Unhealthy, b.Condition
	}
	if !b.Next.IsZero() && (a.Next.IsZero() || b.Next.Before(a.Next)) {
		a.Next = b.Next
	}
	a.DisksGo = a.DisksGo || b.DisksGo
	a.Found, a.Ready, a.BootID, a.UID = b.Found, b.Ready, b.BootID, b.UID
	return a
}
