package workflows

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file asks for signs of life. A storage daemon that hangs is up in the storage cluster's map, and the PGs are
// clean by its last word, so before anything opens every daemon elsewhere has to report once more.

// lifeLasts is how long after the answer something may open because of it: a pass that closes and one that opens, when
// requests are slow. It is of no use to another opening.
const lifeLasts = 10 * time.Second

// seekLife adds to the input what is known of who lives, and asks if something is to open and nothing is known.
func (k *keeper) seekLife(ctx workflow.Context, in *budget.Input) {
	if in.View.Unavailable != "" {
		k.stopAsking()
		k.state.Lived, k.state.Life = time.Time{}, k.silence() // what follows begins anew anyway
		in.Life = k.state.Life
		return
	}
	d, wanted := budget.Question(*in)
	silent := k.silence() != nil
	switch {
	case !wanted && !silent:
		k.stopAsking()
		k.state.Life = nil
	case !wanted:
		k.ask(ctx, k.state.Life.Outside) // until they report, or the storage cluster calls them down
	case k.lives().Covers(d) && workflow.Now(ctx).Sub(k.state.Answered) <= lifeLasts:
	case k.state.LivedAsOf >= k.state.Doubts.Data && workflow.Now(ctx).Sub(k.state.Lived) <= k.state.LivedFor:
		k.stopAsking()
		k.state.Life, k.state.Answered, k.state.LifeAsOf = &storage.Life{Outside: d}, workflow.Now(ctx), k.state.LivedAsOf
	default:
		if !silent {
			k.state.Life = nil
		}
		k.ask(ctx, d)
	}
	in.Life = k.state.Life
}

// ask asks whether everybody outside a failure domain lives, unless that is being asked.
func (k *keeper) ask(ctx workflow.Context, d storage.FailureDomain) {
	if k.life != nil && k.asks == d && k.asksAsOf >= k.state.Doubts.Data {
		return
	}
	k.stopAsking()
	in := activities.LifeInput{Cluster: k.cluster, Asking: activities.Asking{Outside: d}}
	if k.state.Life != nil && k.state.Life.Outside == d {
		in.Known = k.state.Life
	}
	ctx, k.stopLife = workflow.WithCancel(ctx)
	k.asks, k.asksAsOf = d, k.state.Doubts.Last
	k.life = begin(watching(ctx, "ask every OSD outside "+d.String()+" for a sign of life"), keeping.AskLife, in)
}

func (k *keeper) stopAsking() {
	if k.life != nil {
		k.stopLife()
		k.life = nil
	}
}

// hearLife takes in the answer.
func (k *keeper) hearLife(ctx workflow.Context) {
	var a activities.LifeAnswer
	if err := k.life.Get(ctx, &a); err == nil {
		k.state.Life, k.state.Answered, k.state.LifeAsOf = &a.Life, a.At, k.asksAsOf
	}
	k.life = nil
}

// noteLived takes in that the proof of PG health is one of life, too. It counts for as long as it takes until the next
// report of the same daemon is heard of: what opens right afterwards needs no question of its own.
func (k *keeper) noteLived(w activities.Watched) {
	if w.ReportPeriod > 0 && w.Health.Fresh {
		k.state.ReportPeriod = w.ReportPeriod
		k.state.Lived, k.state.LivedFor = w.At.Add(-w.Lived), cmp.Or(w.LivedFor, w.ReportPeriod+w.ReportPeriod/4)
		k.state.LivedAsOf = k.watchAsOf
	}
}

// lives is the last answer to the question who lives, if it counts: who lived before a doubt about the data may be what
// the doubt is about.
func (k *keeper) lives() *storage.Life {
	if k.state.LifeAsOf < k.state.Doubts.Data {
		return k.silence()
	}
	return k.state.Life
}

// silence is the last answer, if it names somebody who is silent. That holds until he gives a sign of life, whatever
// else happened meanwhile; nil otherwise.
func (k *keeper) silence() *storage.Life {
	if k.state.Life == nil || k.state.Life.Silent == 0 {
		return nil
	}
	return k.state.Life
}

// opened is the failure domain that the budgets leave open, as far as is known, and the label values that they leave
// out for it. Where lockkeeper has no budgets, what was decided is what is in force.
func (k *keeper) opened() (storage.FailureDomain, []string) {
	d := k.state.Applied
	if !k.observed.Settings.ManagePodBudgets {
		d = &k.state.Decision
	}
	if d == nil || d.Mode != budget.ModeOpen {
		return storage.FailureDomain{}, nil
	}
	return d.Open, d.Budget.Except
}
