// Package guard is the seam between the keeper and a kind of storage. The keeper queues claims, remembers, carries out
// and tells; what the storage can bear is for a Guard to say, of which there is one for each kind. All of it is pure.
package guard

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Input is all that a guard decides by: the last look, what is remembered, and the lease.
type Input struct {
	budget.Input
	// Own is what the look says in the words of its kind alone; nil: nothing.
	Own json.RawMessage
}

// Guard is what a kind of storage says. It embeds Plain, and says what is otherwise.
type Guard interface {
	// Together tells whether two claims may be held at the same time. The order of the two says nothing.
	Together(in Input, a, b lease.Claim) bool
	// Gate answers whether a claim may be granted now, and if not, what it waits for. It is asked about claims that go
	// together with all holders. That a claim overtakes others of the queue is for the gate to refuse, too.
	Gate(in Input, c lease.Claim) storage.Answer
	// Decide says what the budgets are to say, given who holds the lease by now.
	Decide(in Input) Verdict
	// Healed answers whether a job that has done its work may give the lease back.
	Healed(in Input, c lease.Claim) storage.Answer

	// Interest names what the next look has to be about because of these claims.
	Interest(in Input, claims []lease.Claim) storage.Interest
	// Void says why a claim means nothing any more; "": it means what it did.
	Void(in Input, c lease.Claim) string
	// Terms is the claim of a holder with what the storage says of how it is to be used; granted: it has just been.
	Terms(in Input, c lease.Claim, granted bool) lease.Claim
	// Question returns the failure domain that would open, or of which the lease would be granted, if all daemons outside
	// of it gave a sign of life; false when nothing depends on that.
	Question(in Input) (storage.FailureDomain, bool)
	// Serves tells whether what a decision opens is what a claim was granted.
	Serves(in Input, d budget.Decision, c lease.Claim) bool
	// Parked answers whether a job that has not done its work has nothing left to hold the lease for.
	Parked(in Input, c lease.Claim) bool
	// Flag is what the storage calls the flag that it carries for the holders; zero: it knows none.
	Flag() flags.Kind
	// Flags says which flags the storage is to carry for the holders, and what becomes of those that are ours.
	Flags(in flags.Input) flags.Plan
	// Next is when a decision could change although nothing happens; zero: never. after is what is remembered of the last
	// decision, and ours are the records of its flags.
	Next(in Input, after budget.Remembered, ours []flags.Record) time.Time
}

// Verdict is a decision, and what else follows from what it was made of.
type Verdict struct {
	Decision budget.Decision
	// Clean: the data is known to be whole.
	Clean bool
	// Heard: after a silence it is known by now that everyone lives.
	Heard bool
	// Commit: more may go than the budgets let go now, if the look begins with a commit.
	Commit bool
	// Marks are those on the storage daemons' pods, and what is to become of them.
	Marks budget.MarkPlan
	// Emptying are nodes that nothing but other pods keeps from becoming empty.
	Emptying []string
	// Stay are nodes that must not go, and from which autoscalers are to be held back.
	Stay []string
	// Unheld: as of the look they are not held back from all of these.
	Unheld bool
	// Relocate is what becomes of the data on nodes that are leaving; nil: no data is ever moved, or nobody knows.
	Relocate []storage.Relocation
	// Remembered is what the next decision has to know of this one.
	Remembered budget.Remembered
}

// Plain answers what most kinds of storage have no answer of their own to.
type Plain struct{}

// Interest are the claims' failure domains, nodes and daemons.
func (Plain) Interest(_ Input, claims []lease.Claim) (out storage.Interest) {
	for _, c := range claims {
		out.Domains, out.Nodes = append(out.Domains, c.Domain.Name), append(out.Nodes, c.Node)
		out.Daemons = append(out.Daemons, c.Daemons...)
	}
	return out
}

// Void says that every claim means what it did.
func (Plain) Void(Input, lease.Claim) string { return "" }

// Terms has nothing to add.
func (Plain) Terms(_ Input, c lease.Claim, _ bool) lease.Claim { return c }

// Question asks nothing.
func (Plain) Question(Input) (storage.FailureDomain, bool) { return storage.FailureDomain{}, false }

// Serves tells whether the claim's failure domain is one of those that are open.
func (Plain) Serves(_ Input, d budget.Decision, c lease.Claim) bool {
	return d.Mode == budget.ModeOpen && (d.Open == c.Domain || slices.Contains(d.With, c.Domain.Name))
}

// Parked leaves every job its lease.
func (Plain) Parked(Input, lease.Claim) bool { return false }

// Flag is none.
func (Plain) Flag() flags.Kind { return flags.Kind{} }

// Flags wants none, and keeps the records of those that there are.
func (Plain) Flags(in flags.Input) flags.Plan { return flags.Plan{Records: in.Records} }

// Next knows of nothing that time alone changes.
func (Plain) Next(Input, budget.Remembered, []flags.Record) time.Time { return time.Time{} }
