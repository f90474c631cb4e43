package cephcluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file asks the manager whether daemons may stop. With a dead manager that would take the whole mon timeout, and
// closing must not wait for an answer that only opening needs.

// How long the manager is waited for: at most, and when it probably is dead. An answer is soon when a dead manager can
// be told from one that is busy by that.
const (
	okToStopWithin = time.Second
	deadWithin     = 300 * time.Millisecond
	silenceLasts   = 5 * time.Second
	soon           = 100 * time.Millisecond
)

// patience is how long the manager is waited for, by what it did lately.
type patience struct {
	mu     sync.Mutex
	prompt bool      // the last answer came soon
	silent time.Time // when an answer was last missing
}

// left is how long to wait for an answer from now on. One that somebody asked for has all the time, since nobody may
// ask again for long, unless the manager was silent a moment ago; what is asked on suspicion only, because something
// just failed, has little if answers came soon so far.
func (p *patience) left(now time.Time, asked bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.silent) < silenceLasts || p.prompt && !asked {
		return deadWithin
	}
	return okToStopWithin
}

// learn notes how a question ended.
func (p *patience) learn(began, now time.Time, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prompt = answered && now.Sub(began) < soon
	p.silent = now
	if answered {
		p.silent = time.Time{}
	}
}

// mayOpen lists the failure domains that a decision could open: those that were asked for, and a few more, since a
// decision takes one at a time: those that lost something since the proof, those of leaving nodes, and those in which
// something is down for long. Nothing opens for the last, unless there is no proof that holds.
func mayOpen(v storage.View, asked []string) []string {
	const most = 8
	out := slices.Clone(asked)
	left := most
	add := func(domain string) {
		if left > 0 && !slices.Contains(out, domain) {
			out = append(out, domain)
			left--
		}
	}
	for _, d := range v.Domains {
		if d.Touched && len(d.Troubled) > 0 || slices.ContainsFunc(d.Troubled, storage.Daemon.Unsettled) {
			add(d.Name)
		}
	}
	for _, n := range v.Nodes {
		if n.Leaving() {
			add(n.NextDomain())
		}
	}
	for _, d := range v.Domains {
		if len(d.Troubled) > 0 {
			add(d.Name)
		}
	}
	return out
}

// questionsAtOnce are how many answers the manager is asked for at the same time. It works them off one after the
// other, but the way there and back counts once.
const questionsAtOnce = 8

// askOKToStop adds, for each failure domain that was asked for, whether all of it that still runs may stop, and the
// same for each node that was asked for and is in several failure domains. All have as long together as the manager is
// waited for, and after the first that finds no answer nothing more is asked: closing must not wait once for each
// domain.
func (c *cluster) askOKToStop(
	ctx context.Context, v *storage.View, tree *failuredomain.Tree, m *ceph.OSDMap, asked, nodes []string,
) {
	began, caller := time.Now(), ctx
	ctx, cancel := context.WithTimeout(ctx, c.manager.left(began, len(asked)+len(nodes) > 0))
	defer cancel()
	var silent atomic.Pointer[error]
	pools := c.toleratedPools(m)
	ask := func(in func(domain string) bool) *storage.Answer {
		var up []int
		for i := range m.OSDs {
			if o := &m.OSDs[i]; bool(o.Up) && in(tree.Find(o.ID, v.FailureDomainType)) {
				up = append(up, o.ID)
			}
		}
		// Where nothing runs any more nothing can stop. Not to say so would keep a drain that has lost its lease, since the
		// pools' failure domain changed, say, from getting it back before the data has healed elsewhere.
		if len(up) == 0 {
			return &storage.Answer{OK: true}
		}
		why := silent.Load()
		if why == nil {
			a, err := c.client.OKToStop(ctx, up, pools...)
			if caller.Err() == nil { // else it is not the manager who had no time
				c.manager.learn(began, time.Now(), err == nil)
			}
			if err == nil {
				return &a
			}
			why = &err
			silent.Store(why)
		}
		return &storage.Answer{Silence: true, Reason: fmt.Sprintf("the manager does not say whether they may stop: %v", *why)}
	}
	var g errgroup.Group
	g.SetLimit(questionsAtOnce)
	for _, name := range mayOpen(*v, asked) {
		for i := range v.Domains {
			if d := &v.Domains[i]; d.Name == name {
				g.Go(func() error { d.OKToStop = ask(func(domain string) bool { return domain == name }); return nil })
			}
		}
	}
	for _, name := range nodes {
		for i := range v.Nodes {
			if n := &v.Nodes[i]; n.Name == name && len(n.Domains) > 1 {
				g.Go(func() error {
					n.OKToStop = ask(func(domain string) bool { return slices.Contains(n.Domains, domain) })
					return nil
				})
			}
		}
	}
	_ = g.Wait() // an answer that is missing is said in its place
}

// toleratedPools are the ids of the pools that may become unavailable while one failure domain is down. Ceph knows
// nothing of that: asked about a domain with a copy of theirs it says no for ever.
func (c *cluster) toleratedPools(m *ceph.OSDMap) []int {
	var ids []int
	for _, p := range m.Pools {
		if slices.Contains(c.policy.Spec.Ceph.ToleratedPools, p.Name) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}
