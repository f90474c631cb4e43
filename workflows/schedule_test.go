package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/activity"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// schedule is all that is random about what people, upgrade tools, bad luck and crashes do to a cluster.
type schedule struct {
	OSDsPerNode int
	OSDSet      string  // the update domain of the CephOSD that all OSDs are of; "" if each has a Deployment
	DBs         bool    // each of those has a DB on a device of its own
	Seed        uint64  // of latencies and failures
	Latency     int     // most milliseconds that a request takes
	Failures    float64 // how many of the activities' attempts fail
	Lost        float64 // how many of the requests that change something get no answer
	Events      []event
	Hosts       bool // people rename and remove CRUSH hosts, and commands about noout are lost, too
	Hammers     []hammer
	ByOSD       int           // as in sim.Options
	Grace       time.Duration // as in sim.Options
	MonNodes    bool          // as in sim.Options
	Fencing     bool          // the policy says what fences nodes, and nodes lose their power
	Seldom      bool          // OSDs report every 5 s, as by default, and not every second
	// ByNumber: what fences nodes asks a MachineDisruptionBudget. FirstWaits is by which of its two arithmetics.
	ByNumber, FirstWaits bool
}

// hammer is a client that asks for the eviction of every OSD, all the time for a while, from the event on that it is
// listed for.
type hammer struct {
	Event          int
	Lasting, Every time.Duration
}

type event struct {
	After time.Duration
	Kind  string
	Which int // of the nodes, or of the daemons
}

func (e event) String() string { return fmt.Sprintf("%s %d after %s", e.Kind, e.Which, e.After) }

// kinds are what may happen, as often as they are listed.
var kinds = strings.Split("drain,drain,drain,kubectl drain,kubectl drain,kubectl "+
	"drain,upgrade,upgrade,uncordon,uncordon,uncordon,done,done,done,"+
	"reboot,reboot,kill,kill,evict,evict,evict,evict,abort,pause,resume,kill drain,kill keeper,cancel "+
	"drain,worker,watcher,manager,quorum,noout,"+
	"delete node,restore node,break disk,taint,untaint,manage,continue,hang,tamper,delete budget,policy,policy,delete "+
	"policy,foreign", ",")

// rollouts are what may happen beside them in every -sim.rollouts-th schedule.
var rollouts = strings.Split("rollout,rollout,rollout,rollout,rollout,rollout,bad rollout,mend rollout,pause "+
	"rollout,resume rollout,abort rollout,continue rollout,"+
	"approve rollout,approve rollout,skip osd", ",")

// cephOSDs are what may happen beside those when the OSDs are a CephOSD's.
var cephOSDs = strings.Split(
	"delete pod,canary,canary,paused,paused,window,window,parallel,between,override,damage,duplicate,foreign pod,move "+
		"db,move db,leave,leave,"+
		"delete CephOSD,delete CephOSD", ",")

// drawSchedule draws the schedule of a seed.
func drawSchedule(seed int) schedule {
	s := schedulesOfDrains.Example(seed)
	if n := *simRollouts; n > 0 && seed%n == 0 {
		s = schedulesWithRollouts.Example(seed)
	}
	if n := *simByOSD; n > 0 && seed%n == 0 {
		s.ByOSD = 1 + seed/n%2
		s.DBs = false // OSDs that never stop together must not exchange theirs, so a person who does is refused for good
	}
	if n := *simSlow; n > 0 && seed%n == 0 {
		s.Grace = 10 * time.Second
	}
	if n := *simMonNodes; n > 0 && seed%n == 0 {
		s.MonNodes = true
	}
	if n := *simHosts; n > 0 && seed%n == 0 {
		s.Hosts = true
		s.insert(hosts, 2)
	}
	if n := *simPolicies; n > 0 && seed%n == 0 {
		s.insert(policies, 3)
	}
	if n := *simFencing; n > 0 && seed%n == 0 {
		s.Fencing = true
		s.insert(fences, 4)
		s.insert(cuts, 7)
		if s.ByNumber = seed/n%2 == 1; s.ByNumber {
			s.FirstWaits = seed/n%8 == 7 // by it the number lets nobody go
			s.insert(numbers, 8)
		}
	}
	if n := *simOddities; n > 0 && seed%n == 0 {
		s.Seldom = seed/n%2 == 0
		s.insert(oddities, 5)
		s.insert(oddities, 6)
	}
	return s
}

// insert has a few more things happen, anywhere in between. stream tells them from other insertions into the same
// schedule.
func (s *schedule) insert(kinds []string, stream uint64) {
	r := rand.New(rand.NewPCG(s.Seed, stream)) //nolint:gosec // not a secret
	for range 1 + r.IntN(4) {
		e := event{After: time.Duration(r.IntN(4000)) * time.Millisecond, Kind: kinds[r.IntN(len(kinds))], Which: r.IntN(12)}
		s.Events = slices.Insert(s.Events, r.IntN(len(s.Events)+1), e)
	}
}

// hosts are what may happen beside everything else in every -sim.hosts-th schedule.
var hosts = []string{"rename host", "rename host", "replace host"}

// policies are what may happen beside everything else in every -sim.policies-th schedule.
var policies = []string{"second policy", "policy elsewhere", "policy elsewhere", "policy elsewhere"}

// oddities are what may happen beside everything else in every -sim.oddities-th schedule.
var oddities = strings.Split("flag,flag,flag,nobody at rest,somebody at rest,copy mark,copy mark,unready,unready,"+
	"unready,scale,scale,disconnect,disconnect,disconnect,reconnect", ",")

// fences are what may happen beside everything else in every -sim.fencing-th schedule.
var fences = strings.Split("lose power,lose power,lose power,lose power,lose power,power returns,power returns,"+
	"delete Machine,delete Machine,take hold,release fence,abort fence,pause fence,resume fence,kill fence,"+
	"continue fence,no fencing", ",")

// cuts are what may happen beside those, and numbers where a MachineDisruptionBudget has a say.
var (
	cuts    = strings.Split("cut off,cut off,cut off,cut off,network returns", ",")
	numbers = strings.Split("cut off,cut off,cut off,lose power,edit number,delete number", ",")
)

var (
	schedulesOfDrains     = schedules(false)
	schedulesWithRollouts = schedules(true)
)

func schedules(withRollouts bool) *rapid.Generator[schedule] {
	return rapid.Custom(func(t *rapid.T) schedule {
		s := schedule{
			OSDsPerNode: rapid.IntRange(1, 2).Draw(t, "OSDs per node"),
			Seed:        rapid.Uint64().Draw(t, "seed"),
			Latency:     rapid.SampledFrom([]int{0, 20, 20, 200, 1000}).Draw(t, "latency"),
			Failures:    rapid.SampledFrom([]float64{0, 0, 0.05, 0.2}).Draw(t, "failures"),
			Lost:        rapid.SampledFrom([]float64{0, 0, 0.03, 0.1}).Draw(t, "lost"),
		}
		kinds := kinds
		if withRollouts {
			kinds = slices.Concat(kinds, rollouts)
			if s.OSDSet = rapid.SampledFrom([]string{"", "OSD", "Host", "Zone"}).Draw(t, "set"); s.OSDSet != "" {
				kinds = slices.Concat(kinds, cephOSDs)
			}
			s.DBs = rapid.Bool().Draw(t, "DBs")
		}
		for range rapid.IntRange(3, 20).Draw(t, "events") {
			s.Events = append(s.Events, event{
				After: time.Duration(rapid.SampledFrom([]int{0, 10, 50, 200, 500, 1000, 2000, 3000, 10000, 60000}).Draw(t,
					"after")) * time.Millisecond,
				Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Which: rapid.IntRange(0, 11).Draw(t, "which"),
			})
		}
		// Drawn last, so that the seeds of before mean what they meant.
		for range rapid.IntRange(-2, 2).Draw(t, "hammers") {
			s.Hammers = append(s.Hammers, hammer{
				Event:   rapid.IntRange(0, len(s.Events)-1).Draw(t, "hammer at"),
				Lasting: time.Duration(rapid.SampledFrom([]int{1, 10, 60}).Draw(t, "lasting")) * time.Second,
				Every:   time.Duration(rapid.SampledFrom([]int{3, 20, 100}).Draw(t, "every")) * time.Millisecond,
			})
		}
		return s
	})
}

// outcome is how a schedule went.
type outcome struct {
	violations, stuck []string
	story             []string
	fences            int // of nodes
	byNumber          int // of those, how many a MachineDisruptionBudget allowed
	watches           int // of the storage cluster, each of which ends with news
}

func (o outcome) failed() bool { return len(o.violations)+len(o.stuck) > 0 }

// chance is a source of random numbers for many goroutines.
type chance struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (c *chance) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

func (c *chance) is(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p > 0 && c.r.Float64() < p
}

// chances are one chance for each kind of request: of several that are under way at one time, none takes the luck of
// another one, whichever comes first.
type chances struct {
	seed uint64
	mu   sync.Mutex
	all  map[string]*chance
}

func (c *chances) of(what string) *chance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]*chance{}
	}
	if c.all[what] == nil {
		h := fnv.New64a()
		h.Write([]byte(what))
		c.all[what] = &chance{r: rand.New(rand.NewPCG(c.seed, h.Sum64()))} //nolint:gosec // not a secret
	}
	return c.all[what]
}

// options of the world that a schedule is played in.
func (s schedule) options(c *chance) sim.Options {
	opts := sim.Options{OSDsPerNode: s.OSDsPerNode, ByOSD: s.ByOSD, Grace: s.Grace, MonNodes: s.MonNodes}
	if s.Seldom {
		opts.ReportPeriod = 5 * time.Second
	}
	if s.OSDSet != "" {
		opts.CephOSD, opts.DBs = map[string]any{"updateDomain": s.OSDSet, "progressDeadline": "1m"}, s.DBs
		opts.JudgeCanary = !without()["judge canary"]
	}
	// No request takes no time at all: a keeper that had ended within an instant could never be told anything.
	opts.Latency = func() time.Duration { return time.Millisecond }
	if s.Latency > 0 {
		opts.Reaction = 2*time.Second + time.Duration(10*s.Latency)*time.Millisecond
		opts.Latency = func() time.Duration { return time.Duration(1+c.intN(s.Latency)) * time.Millisecond }
	}
	if s.Lost > 0 {
		opts.Reaction += 5 * time.Second
		opts.Fail = func(_ context.Context, op string) sim.Failure {
			switch {
			case !changes[op] && (!s.Hosts || !nooutCommands[op]) || !c.is(s.Lost):
				return sim.Failure{}
			case c.is(0.3):
				return sim.Failure{Err: errLost}
			case c.is(0.5):
				return sim.Failure{Err: errLost, Done: true}
			default:
				return sim.Failure{Err: errLost, Done: true, Late: time.Duration(c.intN(3000)) * time.Millisecond}
			}
		}
	}
	if s.Failures > 0 {
		opts.Reaction += 5 * time.Second
	}
	return opts
}

var errLost = errors.New("the connection was lost")

var nooutCommands = map[string]bool{"ceph osd set-group": true, "ceph osd unset-group": true}

// changes are the requests that change something.
var changes = map[string]bool{
	"create budget": true, "update budget": true, "delete budget": true, "cordon": true, "evict": true,
	"report status": true, "patch status": true, "update policy": true, "write the MachineDisruptionBudget": true,
	"create pod": true, "delete pod": true, "annotate pod": true, "annotate Deployment": true, "report rollout": true,
}

// standstill is how long a schedule may take, of the time in which this process runs; a second or two is usual. A
// workflow that never lets go of its task stops the time of its world, and everybody in it, for ever.
const standstill = 5 * time.Minute

// watchStandstill counts in steps: a process that was stopped for an hour and goes on has lost one of them.
func (s schedule) watchStandstill() (stop func()) {
	const step = 5 * time.Second
	ended := make(chan struct{})
	go func() {
		for range standstill / step {
			select {
			case <-ended:
				return
			case <-time.After(step):
			}
		}
		debug.SetTraceback("all")
		panic(fmt.Sprintf("schedule %d stands still (make sim N=1 SEED=%d)", s.Seed, s.Seed))
	}()
	return func() { close(ended) }
}

// play plays a schedule and tells what went wrong.
func (s schedule) play(t *testing.T) (o outcome) {
	defer s.watchStandstill()()
	defer func() {
		if r := recover(); r != nil {
			o.stuck = append(o.stuck, fmt.Sprintf("panic: %v", r))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		c := &chance{r: rand.New(rand.NewPCG(s.Seed, 1))} //nolint:gosec // not a secret
		stage := newScene(t, s.options(c))
		stage.fault = func(_ int, info activity.Info) fault {
			switch {
			case info.Attempt > 3 || !c.is(s.Failures):
				return noFault
			case c.is(0.4):
				return notDone
			case c.is(0.6):
				return doneAlso
			default:
				return twice
			}
		}
		stage.run(func(stage *scene) {
			o.stuck = (&disorder{
				scene: stage, osdSet: s.OSDSet, without: without(), hammers: s.Hammers, fencing: s.Fencing,
				byNumber: s.ByNumber, firstWaits: s.FirstWaits, scattered: s.ByOSD > 0 && s.OSDsPerNode > 1,
			}).play(s.Events)
		})
		o.violations, o.story, o.fences = stage.Violations(), stage.Story(), stage.machines.AllFences()
		o.byNumber = stage.machines.ByNumber()
	})
	return o
}

// shorter finds a schedule with fewer events, and less that is random, that still goes wrong.
func (s schedule) shorter(t *testing.T, o outcome, until time.Time) (schedule, outcome) {
	try := func(next schedule) bool {
		for range 2 { // goroutines that are ready at the same instant run in any order
			if time.Now().After(until) {
				return false
			}
			if x := next.play(t); x.failed() && (len(x.violations) > 0) == (len(o.violations) > 0) {
				s, o = next, x
				return true
			}
		}
		return false
	}
	calm := s
	calm.Failures, calm.Lost = 0, 0
	try(calm)
	calm = s
	calm.Hammers = nil
	try(calm)
	for size := max(len(s.Events)/2, 1); ; size /= 2 {
		for i := 0; i+size <= len(s.Events); {
			next := s
			next.Events = append(append([]event{}, s.Events[:i]...), s.Events[i+size:]...)
			if !try(next) {
				i += size
			}
		}
		if size <= 1 {
			return s, o
		}
	}
}
