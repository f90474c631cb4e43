package precedence_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var began = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func policy(namespace string, age time.Duration, id string, held bool) precedence.Policy {
	return precedence.Policy{
		Key: storage.ClusterKey{Namespace: namespace, Name: "ceph"}, Created: began.Add(-age),
		Claim: precedence.Claim{ID: id, Held: held},
	}
}

func TestJudge(t *testing.T) {
	me := func(id string, held bool) precedence.Policy { return policy("me", time.Hour, id, held) }
	for name, c := range map[string]struct {
		me           precedence.Policy
		seen         string
		other        precedence.Policy
		first, waits string
	}{
		"alone": {me("f", true), "f", me("f", true), "", ""},
		"alone, before the claim": {
			me("", false), "f", me("", false), "",
			"the claim to the storage cluster with the ID f is not in the policy's status yet",
		},
		"alone, after it stood aside": {
			me("f", false), "f", me("f", false), "",
			"is not in the policy's status yet",
		},
		"alone, with a claim to another": {
			me("g", true), "f", me("g", true), "",
			"is not in the policy's status yet",
		},
		"never told": {me("", false), "", policy("a", 0, "f", true), "", "has not told its ID"},
		"silent now": {
			me("f", true), "", policy("a", 2*time.Hour, "f", true),
			"MaintenancePolicy a/ceph was first (2026-03-01 01:00:00)", "",
		},
		"older": {
			me("f", true), "f", policy("a", 2*time.Hour, "f", true),
			"both reach the one with the ID f", "",
		},
		"older, before the claim": {
			me("", false), "f", policy("a", 2*time.Hour, "f", true),
			"MaintenancePolicy a/ceph was first", "",
		},
		"older, aside itself":               {me("f", true), "f", policy("a", 2*time.Hour, "f", false), "", ""},
		"older, of another storage cluster": {me("f", true), "f", policy("a", 2*time.Hour, "g", true), "", ""},
		"older, of what I meant before": {
			me("g", true), "f", policy("a", 2*time.Hour, "g", true), "",
			"ID f is not in the policy's status yet",
		},
		"younger, not aside yet": {
			me("f", true), "f", policy("z", time.Minute, "f", true), "",
			"MaintenancePolicy z/ceph, which is younger",
		},
		"younger, aside": {me("f", true), "f", policy("z", time.Minute, "f", false), "", ""},
		"of the same second, a namespace before": {
			me("f", true), "f", policy("a", time.Hour, "f", true),
			"MaintenancePolicy a/ceph was first", "",
		},
		"of the same second, a namespace after": {
			me("f", true), "f", policy("z", time.Hour, "f", true), "",
			"MaintenancePolicy z/ceph, which is younger",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := precedence.Judge(c.me, c.seen, []precedence.Policy{c.other, c.me})
			assert.Equal(t, c.first == "", got.First == "", got.First)
			assert.Equal(t, c.waits == "", got.Waits == "", got.Waits)
			assert.Contains(t, got.First, c.first)
			assert.Contains(t, got.Waits, c.waits)
			if c.first != "" || got.Key != (storage.ClusterKey{}) {
				assert.Equal(t, c.other.Key, got.Key)
			}
		})
	}
}

// keeper is one keeper as far as precedence concerns it: what the API server has of its policy, and what the keeper did
// last.
type keeper struct {
	precedence.Policy
	exists bool
	means  string // the storage cluster that answers under the policy's connection
	open   string // the storage cluster in which something is open, or set, for this policy
	seen   string // of the last look
	listed []precedence.Policy
	me     precedence.Policy // as it was listed
}

// TestNeverTwo: keepers that list, look, write claims, open, stand aside and are killed between any two steps, while
// policies are made, edited and deleted. What is open in one storage cluster is always one policy's, and in the end the
// oldest policy has it.
func TestNeverTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*keeper
		for i := range rapid.IntRange(2, 4).Draw(t, "policies") {
			age := time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * time.Second
			all = append(all, &keeper{
				Policy: policy(fmt.Sprintf("ns-%d", i), age, "", false), exists: true,
				means: rapid.SampledFrom([]string{"f", "g"}).Draw(t, "means"),
			})
		}
		list := func() (out []precedence.Policy) {
			for _, k := range all {
				if k.exists {
					out = append(out, k.Policy)
				}
			}
			return out
		}
		check := func() {
			for i, a := range all {
				for _, b := range all[i+1:] {
					if a.open != "" && a.open == b.open {
						t.Fatalf("%s and %s both have something open in %s", a.Key, b.Key, a.open)
					}
				}
			}
		}
		look := func(k *keeper) {
			k.listed = list()
			k.me, k.seen = k.Policy, k.means
		}
		// act is what a keeper does after a look: what it does first, it may do last.
		act := func(k *keeper) {
			if !k.exists || k.listed == nil {
				return
			}
			s := precedence.Judge(k.me, k.seen, k.listed)
			moved := k.Claim.Held && k.Claim.ID != k.seen
			switch {
			case s.First != "" || moved:
				if k.open != "" {
					k.open = "" // taken back
				} else {
					k.Claim = precedence.Claim{ID: k.seen}
				}
			case s.Waits != "":
				k.open = "" // closed
				k.Claim = precedence.Claim{ID: k.seen, Held: true}
			default:
				k.open = k.seen
			}
			k.listed = nil
		}
		// A keeper's look counts for as long as nobody tells it to look again. Between the look and the act others go on.
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			k := rapid.SampledFrom(all).Draw(t, "who")
			switch rapid.SampledFrom([]string{"look", "look", "act", "act", "edit", "delete", "create"}).Draw(t, "does") {
			case "look":
				if k.exists {
					look(k)
				}
			case "act":
				act(k)
			case "edit":
				k.means = rapid.SampledFrom([]string{"f", "g"}).Draw(t, "means")
			case "delete":
				if k.open == "" { // the finalizer holds it until then
					k.exists, k.Claim, k.listed = false, precedence.Claim{}, nil
				}
			case "create":
				if !k.exists {
					k.exists, k.Created = true, began.Add(time.Second)
				}
			}
			check()
		}
		for range 20 { // everybody is told of every change
			for _, k := range all {
				if k.exists {
					look(k)
					act(k)
					check()
				}
			}
		}
		for _, id := range []string{"f", "g"} {
			var of []*keeper
			for _, k := range all {
				if k.exists && k.means == id {
					of = append(of, k)
				}
			}
			slices.SortFunc(of, func(a, b *keeper) int { return precedence.Compare(a.Policy, b.Policy) })
			for i, k := range of {
				if want := map[bool]string{true: id}[i == 0]; k.open != want {
					t.Fatalf("%s has %q open, and should have %q", k.Key, k.open, want)
				}
			}
		}
	})
}
