// Package precedence decides which of several policies looks after a storage cluster when they mean the same one: the
// oldest. Two keepers would each open a failure domain.
//
// A storage cluster is known by its own ID (Ceph's fsid), which only the storage cluster itself can tell. So each
// keeper writes a claim into the status of its policy, in this order:
//
//  1. It learns the ID, and writes a claim to it that is held. Nothing is open yet.
//  2. It lists all policies. Only when that list has its own claim, and nobody else's held claim to the same ID, may it
//     open anything.
//  3. When the list has a held claim of an older policy, it closes and takes back all that it did. Then it writes that
//     its claim is no longer held. Until then the older policy, which sees it, opens nothing.
//
// The API server puts the writes and the lists in one order. Of two keepers that each wrote and then listed, at least
// one sees the other.
package precedence

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Claim is what a policy's status says of the storage cluster that the policy means.
type Claim struct {
	// ID is the storage cluster's own; "": not known.
	ID string `json:"id,omitempty"`
	// Held: something may be open, granted or set there for this policy.
	Held bool `json:"held,omitempty"`
}

// Policy is one of the policies that there are, as they were listed.
type Policy struct {
	Key     storage.ClusterKey
	Created time.Time
	Claim   Claim
	// Unguarded: its keeper makes no budgets.
	Unguarded bool
}

// Compare orders policies: the first is in charge if they mean the same storage cluster. Everybody comes to the same
// answer, since policies of the same second go by namespace and name.
func Compare(a, b Policy) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Key.Namespace, b.Key.Namespace),
		cmp.Compare(a.Key.Name, b.Key.Name))
}

// Standing is where a policy stands among all that there are. The zero Standing is in charge.
type Standing struct {
	// First says which older policy is in charge: this one has to stand aside.
	First string
	// Waits says why this policy may not open anything yet.
	Waits string
	// Key is the policy that First or Waits speaks of; zero: none but this one.
	Key storage.ClusterKey
}

// Judge tells where a policy stands. me is as it was listed together with all; all may include it. seen is the ID that
// the storage cluster told after the list was read; "": it told none, and the last one counts.
func Judge(me Policy, seen string, all []Policy) Standing {
	id := cmp.Or(seen, me.Claim.ID)
	if id == "" {
		return Standing{Waits: "the storage cluster has not told its ID, so another policy may mean the same " +
			"one"}
	}
	rivals := slices.DeleteFunc(slices.Clone(all),
		func(o Policy) bool { return o.Key == me.Key || o.Claim != Claim{ID: id, Held: true} })
	slices.SortFunc(rivals, Compare)
	switch {
	case len(rivals) > 0 && Compare(rivals[0], me) < 0:
		return Standing{Key: rivals[0].Key, First: First(rivals[0], fmt.Sprintf("both reach the one with the ID %s", id))}
	case me.Claim != Claim{ID: id, Held: true}:
		return Standing{Waits: fmt.Sprintf(
			"the claim to the storage cluster with the ID %s is not in the policy's status yet", id)}
	case len(rivals) > 0:
		return Standing{Key: rivals[0].Key, Waits: fmt.Sprintf("MaintenancePolicy %s, which is younger, looks after the "+
			"same storage cluster (ID %s) and has not taken back yet what it did. "+
			"If its keeper does not run, delete that policy", rivals[0].Key, id)}
	}
	return Standing{}
}

// First says that a policy is in charge because it was first, and why the two mean the same storage cluster.
func First(p Policy, why string) string {
	return fmt.Sprintf("MaintenancePolicy %s was first (%s), and looks after the same storage cluster: %s; this one "+
		"manages nothing. Delete one of the two",
		p.Key, p.Created.UTC().Format("2006-01-02 15:04:05"), why)
}
