package workflows_test

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
)

// This file is what may happen at a call of MigrateMons: to its worker, to Temporal, to the API server, to the manager,
// to the mon that leads the others, and to the node of the newcomer.

// monMishap is what happens at a call: at an attempt of an activity, or at one request.
type monMishap struct {
	mishap
	// strike happens at a request, and says what becomes of that; nil: the mishap is one of an attempt.
	strike func(c *monStage) mons.Failure
	// any: at one of all requests, and not only of those that change something.
	any bool
	// others: the mons may be others afterwards, since one of them was lost.
	others bool
}

// monStage is where a monCourse is played.
type monStage struct {
	*scene
	w   *mons.World
	api *apiServer
}

// apiServer is that of the simulated storage cluster, which the keeper asks. That of the mons is their world's.
type apiServer struct{ away atomic.Bool }

func (a *apiServer) fail(_ context.Context, op string) sim.Failure {
	if a.away.Load() && !strings.HasPrefix(op, "ceph ") {
		return sim.Failure{Err: errLost}
	}
	return sim.Failure{}
}

// answerLost and neverDone are what becomes of a request when its answer is lost, and when it never arrives.
var (
	answerLost = mons.Failure{Err: errLost, Done: true}
	neverDone  = mons.Failure{Err: errLost}
	goesOn     = mons.Failure{}
)

// How long what dies is away. The manager is for longer than anybody waits for an answer.
const (
	workerAway   = 5 * time.Second
	apiAway      = 8 * time.Second
	temporalAway = 20 * time.Second
	managerAway  = time.Minute
	leaderAway   = 10 * time.Second
	nodeAway     = 7 * time.Minute // pods are made anew elsewhere meanwhile
)

// during has something be away for a while.
func (c *monStage) during(d time.Duration, do func(away bool)) {
	do(true)
	time.AfterFunc(d, func() {
		if !c.isOver() {
			do(false)
		}
	})
}

func (c *monStage) workerDies() { c.during(workerAway, c.crashWorker) }

func (c *monStage) temporalGoes() { c.during(temporalAway, c.partTemporal) }

func (c *monStage) apiGoes() {
	for _, x := range c.sights {
		x.Unguarded(apiAway + 30*time.Second)
	}
	c.during(apiAway, func(away bool) { c.api.away.Store(away); c.w.Away(away) })
}

func (c *monStage) managerDies() { c.during(managerAway, c.StopManager) }

// rightAfter has something happen when a request is carried out and before its answer is there.
func rightAfter(do func()) { time.AfterFunc(time.Microsecond, do) }

// requestMishaps are those at a request.
var requestMishaps = map[string]monMishap{
	"the worker dies before a request": {strike: func(c *monStage) mons.Failure { c.workerDies(); return neverDone }},
	"the worker dies after a request":  {strike: func(c *monStage) mons.Failure { c.workerDies(); return answerLost }},
	"Temporal goes before a request":   {strike: func(c *monStage) mons.Failure { c.temporalGoes(); return neverDone }},
	"Temporal goes after a request":    {strike: func(c *monStage) mons.Failure { c.temporalGoes(); return answerLost }},
	"the API server goes before a request": {any: true, strike: func(c *monStage) mons.Failure {
		c.apiGoes()
		return goesOn // to where nobody answers
	}},
	"the API server goes after a request": {strike: func(c *monStage) mons.Failure {
		rightAfter(c.apiGoes)
		return answerLost
	}},
	"the manager dies": {strike: func(c *monStage) mons.Failure { c.managerDies(); return goesOn }},
	"the leader dies before a request, and is back": {any: true, strike: func(c *monStage) mons.Failure {
		c.w.KillLeader(leaderAway)
		return goesOn
	}},
	"the leader dies after a request, and is back": {strike: func(c *monStage) mons.Failure {
		rightAfter(func() { c.w.KillLeader(leaderAway) })
		return goesOn
	}},
	"the leader dies for good": {others: true, strike: func(c *monStage) mons.Failure {
		if !c.w.KillLeaderForGood() { // it would cost the quorum
			c.w.KillLeader(leaderAway)
		}
		return goesOn
	}},
	"the newcomer's node loses its kubelet": {others: true, strike: func(c *monStage) mons.Failure {
		c.silence(false)
		return goesOn
	}},
	"the newcomer's node loses its power": {others: true, strike: func(c *monStage) mons.Failure {
		c.silence(true)
		return goesOn
	}},
}

// silence has nobody hear of the newcomer's node for a while.
func (c *monStage) silence(power bool) {
	if c.w.SilenceNode(c.w.SuccessorNode(), power) {
		time.AfterFunc(nodeAway, c.w.NodesReturn)
	}
}

func monMishaps() map[string]monMishap {
	all := map[string]monMishap{}
	for name, m := range requestMishaps {
		m.survives = true
		all[name] = m
	}
	for name, m := range mishaps {
		all[name] = monMishap{mishap: m}
	}
	set := func(name string, survives bool, do func(s *scene, _ string)) {
		all[name] = monMishap{mishap: mishap{do: do, survives: survives}}
	}
	set("aborted", false, func(s *scene, _ string) { s.signal(monsID, jobs.SignalAbort, nil) })
	set("cancelled", false, func(s *scene, _ string) { s.cancel(monsID) })
	set("terminated", false, func(s *scene, _ string) { s.kill(monsID) })
	set("continues as new", true, func(s *scene, _ string) { s.continueJob(monsID) })
	set("paused", true, func(s *scene, _ string) {
		s.signal(monsID, jobs.SignalPause, nil)
		go func() { time.Sleep(10 * time.Second); s.signal(monsID, jobs.SignalResume, nil) }()
	})
	// What an attempt has done nobody hears of, and it is done again when the answer has not come for long enough.
	set("Temporal hears nothing for a moment", true, func(s *scene, _ string) { s.deafen(heartbeatTimeout / 2) })
	set("Temporal hears nothing for long", true, func(s *scene, _ string) { s.deafen(2 * heartbeatTimeout) })
	return all
}
