package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file judges: facts in, explanation out. No clock, nobody is asked.

// Names of obstacles that have no reason of the policy's status.
const (
	obstacleDrained      = "AlreadyDrained"
	obstacleTemporal     = "TemporalAway"
	obstacleNoWorker     = "NoWorker"
	obstacleNoKeeper     = "KeeperNotRunning"
	obstacleTrouble      = "KeeperInTrouble"
	obstacleNoManager    = "NoManager"
	obstacleQueue        = "OthersBefore"
	obstacleConflict     = "BudgetConflict"
	obstaclePods         = "PodsRefuse"
	obstacleUnknown      = "NotKnown"
	obstacleNooutExpired = "NooutExpired"
	obstacleFlag         = "CephFlag"
	obstacleNote         = "StorageNote"
	obstacleNoWatcher    = "WatcherNotRunning"
	obstacleCompromise   = "PoolsDisagree"
	obstacleClosed       = "ClosedForAMoment"
)

// noUseWaiting: time alone does not help, or there is nobody to wait with.
var noUseWaiting = []string{
	obstacleDrained, obstacleTemporal, obstacleNoWorker, obstacleNoKeeper, obstacleConflict,
	obstaclePods, budget.ReasonSecondPolicy,
}

// A look is for one kind of thing that may be in the way.
type look func(Facts) []Obstacle

// inTheWay are looked for in this order: first what makes all else unknown, then what has to be mended before time
// alone helps, then what others are doing, and what only passes with time comes last.
var inTheWay = []look{
	lookKeeper, // nobody there who could grant anything
	lookSecond, // another policy is in charge
	ifRefused(lookNotInCharge),
	ifRefused(lookStorage),
	ifRefused(lookLonghorn),
	ifRefused(lookProblems),
	ifRefused(lookIntolerant),
	lookConflict, // evictions would fail
	ifRefused(lookHolders),
	ifRefused(lookQueue),
	ifRefused(lookDownElsewhere),
	lookMons, // a lease does not help a mon that has to stay
	ifRefused(lookDisconnected),
	ifRefused(lookClean),
	ifRefused(lookSilent),
	lookPods,
	lookRunning,
}

// ifRefused looks for what may be why the keeper would not grant the lease. If it would, then whatever is found is not
// in the way.
func ifRefused(l look) look {
	return func(f Facts) []Obstacle {
		if f.Lease.OK {
			return nil
		}
		return l(f)
	}
}

// Explain judges. A keeper's own decision has the last word: if it would not grant the lease although nothing else was
// found to be in the way, then its reason is.
func Explain(f Facts) Explanation {
	e := Explanation{
		At: f.At, Node: f.Input.Node, State: f.Node, Policy: f.Policy, Domain: f.Domain, Daemons: f.Daemons,
		InTheWay: []Obstacle{},
	}
	if f.Unguarded != "" {
		e.MayDrain = true
		e.Beware = []Obstacle{{
			Name: "NoStorage", What: f.Input.Node + " " + f.Unguarded,
			Change: "nothing: lockkeeper has no say in it",
		}}
		return e
	}
	if f.Now != nil && f.Now.View.Unavailable == "" {
		e.Storage = describeStorage(f.Now)
	}
	for _, l := range inTheWay {
		e.InTheWay = append(e.InTheWay, l(f)...)
	}
	if len(e.InTheWay) == 0 && !f.Lease.OK {
		what := "the keeper would not grant the lease: " + f.Lease.Reason
		if f.LeaseUnknown != "" {
			what = "whether the keeper would grant the lease is not known: " + f.LeaseUnknown
		}
		e.InTheWay = append(e.InTheWay,
			Obstacle{Name: obstacleUnknown, What: what, Change: "see docs/runbooks/why-is-it-closed.md"})
	}
	e.MayDrain = len(e.InTheWay) == 0
	e.WouldWait = !e.MayDrain &&
		!slices.ContainsFunc(e.InTheWay, func(o Obstacle) bool { return slices.Contains(noUseWaiting, o.Name) })
	for _, l := range worthKnowing {
		e.Beware = append(e.Beware, l(f)...)
	}
	return e
}

func lookKeeper(f Facts) []Obstacle {
	if f.Now != nil {
		return nil
	}
	o := Obstacle{Name: obstacleNoKeeper, What: fmt.Sprint(f.keeperProblem), Change: "the watcher starts a keeper for " +
		"every policy within a minute: is `lockkeeper watch` running? `lockkeeper doctor` tells"}
	switch {
	case errors.Is(f.keeperProblem, ErrAway):
		o.Name, o.Change = obstacleTemporal,
			"Temporal has to answer; until then the last budgets stay, and nobody is granted anything"
	case errors.Is(f.keeperProblem, ErrNoWorker):
		o.Name, o.Change = obstacleNoWorker,
			"start lockkeeper-worker; until then the last budgets stay, and nobody is granted anything"
	}
	o.What += f.lastWord()
	return []Obstacle{o}
}

// lastWord is what can be said without the keeper, and what cannot.
func (f Facts) lastWord() string {
	said := "; what it sees, and whether it would grant the lease, is not known without it"
	switch s := f.Reported; {
	case s.MayDrain == "":
	case kube.Disowned(s):
		said += "; the policy's status: " + s.Message
	case s.AsOf != nil:
		said += fmt.Sprintf("; the policy's status said %q as of %s", s.MayDrain, when(s.AsOf.Time, f.At))
	default:
		said += fmt.Sprintf("; the policy's status last said %q", s.MayDrain)
	}
	return said
}

func lookSecond(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Decision.Reason != budget.ReasonSecondPolicy {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonSecondPolicy, Since: f.Now.Since, What: f.Now.Decision.Message,
		Change: "ask with --policy for the one that was first, or delete one of the two",
	}}
}

func lookConflict(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Conflict == "" {
		return nil
	}
	return []Obstacle{{
		Name: obstacleConflict, What: f.Now.Conflict,
		Change: "delete the other budget, or take its pods out of its selector",
	}}
}

func lookPods(f Facts) []Obstacle {
	var out []Obstacle
	for _, r := range f.Outlook.Refused {
		out = append(out, Obstacle{
			Name: obstaclePods, What: r,
			Change: "delete them yourself, or drain with --force or --delete-emptydir-data as it says",
		})
	}
	return out
}

func lookRunning(f Facts) []Obstacle {
	if f.Running == nil {
		return nil
	}
	return []Obstacle{{
		Name: obstacleDrained, Since: f.Running.Started, What: f.Running.Describe(f.At),
		Change: "follow it: `lockkeeper status " + f.Input.Node + " -w`",
	}}
}

// since is when the keeper's present decision began, if it is for one of these reasons; otherwise that is not known.
func (f Facts) since(reasons ...string) time.Time {
	if slices.Contains(reasons, f.Now.Decision.Reason) {
		return f.Now.Since
	}
	return time.Time{}
}
