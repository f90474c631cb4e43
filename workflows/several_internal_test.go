package workflows

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestNextStep: a letter for each claim, in the order of the keys: f free, P parked, a asked, r reserved, R told that
// the job is ready, h held, d done.
func TestNextStep(t *testing.T) {
	t.Parallel()
	claim := map[rune]ClaimState{
		'f': {}, 'P': {Ended: LeaseParked}, 'a': {Stage: claimAsked}, 'u': {Stage: claimUnsure}, 'r': {Stage: claimReserved},
		'R': {Stage: claimAsked, Claim: lease.Claim{Ready: true}}, 'h': {Stage: claimHeld},
	}
	for _, x := range []struct {
		claims  string
		reserve bool
		do      step
		of      int
	}{
		{"ff", true, stepReserve, 0},
		{"af", true, stepReserve, 0},
		{"rf", true, stepReserve, 1},
		{"ra", true, stepReserve, 1},
		{"ru", true, stepReserve, 1},
		{"rrf", true, stepReserve, 2},
		{"rr", true, stepReady, 0},
		{"Rr", true, stepReady, 0},
		{"hr", true, stepReady, 1},
		{"hR", true, stepReady, 1},
		{"hh", true, stepBegin, 0},
		// The first one went back while the second was waited for.
		{"fa", true, stepLost, 0},
		{"fr", true, stepLost, 0},
		{"rfa", true, stepLost, 1},
		// One was lost while the others took effect.
		{"hf", true, stepLost, 1},
		{"Rf", true, stepLost, 1},
		{"fh", true, stepLost, 0},
		{"ha", true, stepLost, 1},
		// The disruption goes on: nothing waits for another storage cluster.
		{"ff", false, stepHold, 0},
		{"hf", false, stepHold, 1},
		{"ha", false, stepHold, 1},
		{"Pf", false, stepHold, 1},
		{"hh", false, stepBegin, 0},
		{"Ph", false, stepBegin, 0},
		{"fh", false, stepLost, 0},
		{"fa", false, stepLost, 0},
	} {
		var claims []ClaimState
		for _, c := range x.claims {
			claims = append(claims, claim[c])
		}
		do, of := nextStep(claims, x.reserve)
		assert.Equal(t, fmt.Sprint(x.do, x.of), fmt.Sprint(do, of), "%s, reserve: %t", x.claims, x.reserve)
	}
}

// TestPatience: it doubles with each time that a claim went back, and begins anew after a claim that had its turn.
func TestPatience(t *testing.T) {
	t.Parallel()
	back := func(reserve time.Duration) *ClaimState {
		return &ClaimState{Ended: LeaseRevoked, Claim: lease.Claim{Reserve: reserve}}
	}
	assert.Equal(t, time.Minute, new(ClaimState).patience())
	assert.Equal(t, 2*time.Minute, back(time.Minute).patience())
	assert.Equal(t, 8*time.Minute, back(4*time.Minute).patience())
	assert.Equal(t, 24*time.Hour, back(20*time.Hour).patience())
	assert.Equal(t, time.Minute, (&ClaimState{Ended: LeaseReleased, Claim: lease.Claim{Reserve: time.Hour}}).patience())
	assert.Equal(t, time.Minute,
		(&ClaimState{Ended: LeaseRevoked, Claim: lease.Claim{Reserve: time.Hour, Ready: true}}).patience())
}

// TestEverybodyHasItsTurn: jobs that need the leases of one, two or three storage clusters, each with failure domains
// of its own, all come to their end, whatever the order in which they are heard; nobody is at work without all of its
// leases, and in no storage cluster are two failure domains in effect.
func TestEverybodyHasItsTurn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newLocks(t)
		for i := range rapid.IntRange(2, 6).Draw(t, "jobs") {
			j := w.job(fmt.Sprintf("drain/%d", i), rapid.IntRange(1, 40).Draw(t, "works for"))
			for _, cluster := range []string{"a", "b", "c"} {
				if rapid.Bool().Draw(t, "needs "+cluster) {
					j.needs(cluster, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "domain"))
				}
			}
		}
		w.pick = func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "who") }
		for range rapid.IntRange(0, 60).Draw(t, "disorder") {
			w.something()
			w.check()
		}
		for left := 20_000; w.working(); left-- {
			if left == 0 {
				t.Fatalf("somebody waits for ever: %s", w)
			}
			w.round()
			w.check()
		}
	})
}

// TestAmongOthersWithoutEnd: a job that needs two leases comes to its turn although in both storage clusters others are
// at work and wait all the time. It yields ever more seldom, and not before others have waited for a minute.
func TestAmongOthersWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newLocks(t)
	both := w.job("drain/both", 1)
	both.needs("a", "x")
	both.needs("b", "x")
	for i := range 3 {
		for _, cluster := range []string{"a", "b"} {
			j := w.job(fmt.Sprintf("drain/%s%d", cluster, i), 20+7*i) // ten minutes and more
			j.needs(cluster, []string{"u", "v", "w"}[i])
			j.endless = true
		}
	}
	for rounds := 0; !both.done; rounds++ {
		require.Less(t, rounds, 2*60*24, "it should have its turn within a day")
		w.round()
		w.check()
	}
	t.Log("claims that went back:", w.back, "after", w.now.Sub(time.Unix(0, 0)))
	require.Positive(t, w.back, "nobody had to give anything back, so this shows nothing")
	require.Less(t, w.back, 12)
}

// locks are some keepers and jobs that talk with each other.
type locks struct {
	fatal   func(format string, args ...any)
	now     time.Time
	keepers map[string]*lock
	jobs    []*lockJob
	pick    func(n int) int
	back    int // claims that went back
}

type lock struct {
	state lease.State
	told  map[string]LeaseNotice
}

type lockJob struct {
	id       string
	clusters []string
	domains  []string
	claims   []ClaimState
	inbox    []LeaseNotice
	asks     int64
	works    int // rounds
	left     int // of those, since it began; 0: it has not
	endless  bool
	done     bool
}

const roundTime = 30 * time.Second

func newLocks(t interface{ Fatalf(string, ...any) }) *locks {
	return &locks{fatal: t.Fatalf, now: time.Unix(0, 0), keepers: map[string]*lock{}}
}

func (w *locks) job(id string, works int) *lockJob {
	j := &lockJob{id: id, works: works}
	w.jobs = append(w.jobs, j)
	for _, cluster := range []string{"a", "b", "c"} {
		if w.keepers[cluster] == nil {
			w.keepers[cluster] = &lock{told: map[string]LeaseNotice{}}
		}
	}
	return j
}

func (j *lockJob) needs(cluster, domain string) {
	j.clusters, j.domains = append(j.clusters, cluster), append(j.domains, domain)
	j.claims = append(j.claims, ClaimState{Cluster: storage.ClusterKey{Name: cluster}})
}

func (w *locks) working() bool {
	return slices.ContainsFunc(w.jobs, func(j *lockJob) bool { return !j.done && !j.endless })
}

func (w *locks) String() (s string) {
	for _, j := range w.jobs {
		if !j.done {
			s += fmt.Sprintf("%s works %d: %+v\n", j.id, j.left, j.claims)
		}
	}
	return s
}

// something is one thing that happens, by chance.
func (w *locks) something() {
	switch w.pick(4) {
	case 0:
		w.pass([]string{"a", "b", "c"}[w.pick(3)])
	case 1:
		w.hear(w.jobs[w.pick(len(w.jobs))])
	case 2:
		w.act(w.jobs[w.pick(len(w.jobs))])
	default:
		w.now = w.now.Add(roundTime)
	}
}

// round lets everybody do what there is to do.
func (w *locks) round() {
	w.now = w.now.Add(roundTime)
	for range 4 {
		for _, cluster := range []string{"a", "b", "c"} {
			w.pass(cluster)
		}
		for _, j := range w.jobs {
			for len(j.inbox) > 0 {
				w.hear(j)
			}
			w.act(j)
		}
	}
	for _, j := range w.jobs {
		w.work(j)
	}
}

// pass is a keeper's.
func (w *locks) pass(cluster string) {
	k := w.keepers[cluster]
	for _, c := range k.state.Overdue(w.now, lease.SameDomain) {
		k.state = k.state.Release(c.WorkflowID, c.RunID)
		w.tell(k, c, LeaseNotice{State: LeaseRevoked})
		w.back++
	}
	k.state, _ = k.state.Grant(lease.Rules{
		Together: lease.SameDomain, Gate: func(lease.Claim) storage.Answer { return storage.Answer{OK: true} },
	}, w.now)
	for _, c := range k.state.Holders {
		state := LeaseGranted
		if c.Reserved() {
			state = LeaseReserved
		}
		w.tell(k, c, LeaseNotice{State: state, Token: c.Token})
	}
	for _, c := range k.state.Queue {
		w.tell(k, c, LeaseNotice{State: LeaseWaiting})
	}
}

func (w *locks) tell(k *lock, c lease.Claim, n LeaseNotice) {
	if n.RunID, n.Ask = c.RunID, c.Ask; k.told[c.RunID] == n {
		return
	}
	k.told[c.RunID] = n
	for _, j := range w.jobs {
		if j.id == c.WorkflowID {
			j.inbox = append(j.inbox, n)
		}
	}
}

// hear takes in what a job was told next.
func (w *locks) hear(j *lockJob) {
	if len(j.inbox) == 0 {
		return
	}
	n := j.inbox[0]
	j.inbox = j.inbox[1:]
	for i := range j.claims {
		c := &j.claims[i]
		if c.take(n) && n.State == LeaseWaiting && c.Claim.Ready && !c.held() { // as acquire has it
			w.giveBack(j)
		}
	}
}

// act is what underLease does, but for the waiting.
func (w *locks) act(j *lockJob) {
	if j.done || j.left > 0 {
		return
	}
	do, i := nextStep(j.claims, true)
	switch {
	case len(j.claims) == 0, do == stepBegin:
		j.left = j.works
	case do == stepLost:
		w.giveBack(j)
	case do == stepReserve && j.claims[i].Stage == claimFree:
		c := &j.claims[i]
		want := lease.Claim{
			WorkflowID: j.id, RunID: j.id, Domain: storage.FailureDomain{Type: "zone", Name: j.domains[i]},
			Priority: lease.PriorityDrain, Reserve: c.patience(),
		}
		if len(j.claims) == 1 {
			want.Reserve = 0
		}
		j.asks++
		want.Ask = j.asks
		c.begin(want)
		w.ask(j, i)
	case do == stepReady && j.claims[i].Stage == claimReserved:
		j.claims[i].Claim.Ready, j.claims[i].Stage = true, claimAsked
		w.ask(j, i)
	}
}

func (w *locks) ask(j *lockJob, i int) {
	k, c := w.keepers[j.clusters[i]], j.claims[i].Claim
	c.Requested = w.now
	k.state = k.state.Request(c)
	delete(k.told, j.id)
}

func (w *locks) giveBack(j *lockJob) {
	for i := range j.claims {
		if c := &j.claims[i]; c.Stage != claimFree {
			c.end(LeaseReleased)
			w.keepers[j.clusters[i]].state = w.keepers[j.clusters[i]].state.Release(j.id, j.id)
		}
	}
}

func (w *locks) work(j *lockJob) {
	if j.left == 0 {
		return
	}
	if j.left--; j.left > 0 {
		return
	}
	w.giveBack(j)
	j.done = !j.endless
}

// check is what holds at every moment.
func (w *locks) check() {
	for name, k := range w.keepers {
		for _, h := range k.state.InEffect().Holders {
			if h.Domain != k.state.InEffect().Domain() {
				w.fatal("in %s two failure domains are in effect: %+v", name, k.state)
			}
		}
	}
	for _, j := range w.jobs {
		for i, cluster := range j.clusters {
			c, holds, _ := w.keepers[cluster].state.Find(j.id, j.id)
			if inEffect := holds && !c.Reserved(); j.left > 0 && !inEffect {
				w.fatal("%s is at work without the lease of %s: %+v", j.id, cluster, j.claims[i])
			}
			// Nothing is open before all are held, in reserve at least.
			if holds && !c.Reserved() && j.left == 0 && len(j.claims) > 1 && !j.claims[i].Claim.Ready {
				w.fatal("%s is open for %s, which was not ready", cluster, j.id)
			}
		}
	}
}
