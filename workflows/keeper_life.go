package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// This file asks for signs of life, and hears the answers.

// ask asks a question, unless that is being asked.
func (k *keeper) ask(ctx workflow.Context, q question) {
	d := q.outside
	switch {
	case !q.asks && !q.goesOn:
		k.stopAsking()
		return
	case !q.asks:
		return
	}
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
	k.life = begin(watching(ctx, "ask every daemon outside "+d.String()+" for a sign of life"), keeping.AskLife, in)
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
		k.lived(a, k.asksAsOf)
	}
	k.life = nil
}
