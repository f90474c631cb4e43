package lease_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestModel does random things to a lease and compares it, after each, with what little may be said without knowing how
// it works: a list of who wants it, in the order of asking, and who got which token. Which claims go together is drawn,
// too: only those of one domain, or also those of some others, as where what nodes share decides.
func TestModel(t *testing.T) {
	for range 30 { // a holder beside whom only some others may hold it takes many steps to come about
		rapid.Check(t, func(t *rapid.T) {
			m := newModel(t)
			t.Repeat(map[string]func(*rapid.T){
				"request": m.request,
				"release": m.release,
				"finish":  m.finish,
				"return":  m.giveBack,
				"grant":   m.grant,
				"ready":   m.ready,
				"overdue": m.overdue,
				"gate":    func(t *rapid.T) { m.refused[m.domain(t)] = rapid.Bool().Draw(t, "refused") },
				"":        m.check,
			})
		})
	}
}

func newModel(t *rapid.T) *model {
	return &model{
		T: t, now: epoch, tokens: map[string]int64{}, next: map[string]lease.Claim{}, refused: map[string]bool{},
		reserved: map[string]bool{},
		apart:    rapid.SliceOfDistinct(rapid.SampledFrom([]string{"xy", "yz", "xz"}), rapid.ID).Draw(t, "apart"),
	}
}

type model struct {
	*rapid.T
	// apart are pairs of domains that do not go together. Who goes together with two others says nothing of these two.
	apart   []string
	state   lease.State
	wanted  []lease.Claim    // everybody who asked and did not give up, in the order of asking
	tokens  map[string]int64 // of those who hold it
	next    map[string]lease.Claim
	token   int64           // the last one given
	refused map[string]bool // domains that the gate refuses
	// reserved are those of the claims in wanted that nothing may open for.
	reserved map[string]bool
	now      time.Time
}

func (m *model) domain(t *rapid.T) string {
	return rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "domain")
}

func (m *model) job(t *rapid.T) (workflowID, runID string) {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "job"),
		rapid.SampledFrom([]string{"run1", "run2"}).Draw(t, "run")
}

func key(workflowID, runID string) string { return workflowID + "@" + runID }

func (m *model) find(workflowID, runID string) int {
	return slices.IndexFunc(m.wanted, func(c lease.Claim) bool { return c.WorkflowID == workflowID && c.RunID == runID })
}

func (m *model) request(t *rapid.T) {
	id, run := m.job(t)
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "seconds")) * time.Second)
	c := lease.Claim{
		WorkflowID: id, RunID: run, Domain: zone(m.domain(t)), Requested: m.now,
		Priority:  lease.Priority(10 * rapid.IntRange(1, 6).Draw(t, "priority")),
		Observing: rapid.Bool().Draw(t, "observing"),
		Token:     99, Granted: m.now, Finishing: true, WaitsFor: "whatever the caller wrote there",
	}
	if rapid.IntRange(0, 2).Draw(t, "reserve") == 0 {
		c.Reserve = lease.FirstReserve
	}
	m.state = m.state.Request(c)
	if m.find(id, run) < 0 {
		m.wanted = append(m.wanted, c)
		m.reserved[key(id, run)] = c.Reserved()
	}
}

// ready has a job say that it has all that it needs. Nothing comes of it before the next grant.
func (m *model) ready(t *rapid.T) {
	id, run := m.job(t)
	if m.find(id, run) < 0 {
		return
	}
	before, holds, _ := m.state.Find(id, run)
	m.state = m.state.Request(lease.Claim{WorkflowID: id, RunID: run, Domain: before.Domain, Ask: before.Ask, Ready: true})
	after, holdsNow, _ := m.state.Find(id, run)
	if before.Ready = before.Ready || holds && before.Reserved(); !reflect.DeepEqual(before, after) || holds != holdsNow {
		t.Fatalf("was %+v, is %+v", before, after)
	}
}

// overdue takes back what was held in reserve for too long: only while others wait and nobody is at work.
func (m *model) overdue(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
	next := m.state.NextOverdue(m.together)
	back := m.state.Overdue(m.now, m.together)
	if due := !next.IsZero() && !m.now.Before(next); due != (len(back) > 0) {
		t.Fatalf("at %s %v go back, the next at %s", m.now, back, next)
	}
	for _, c := range back {
		if !m.reserved[key(c.WorkflowID, c.RunID)] {
			t.Fatalf("%s was at work, and its claim goes back", c.WorkflowID)
		}
		m.state = m.state.Release(c.WorkflowID, c.RunID)
		m.gone(c.WorkflowID, c.RunID)
	}
}

func (m *model) gone(id, run string) {
	if i := m.find(id, run); i >= 0 {
		m.wanted = slices.Delete(m.wanted, i, i+1)
		delete(m.tokens, key(id, run))
		delete(m.next, key(id, run))
	}
}

func (m *model) release(t *rapid.T) {
	id, run := m.job(t)
	m.state = m.state.Release(id, run)
	m.gone(id, run)
}

func (m *model) finish(t *rapid.T) {
	id, run := m.job(t)
	var next *lease.Claim
	if rapid.Bool().Draw(t, "next") {
		had, _, _ := m.state.Find(id, run)
		next = &lease.Claim{
			WorkflowID: id, RunID: run, Ask: had.Ask + 1, Domain: zone(m.domain(t)),
			Priority: lease.Priority(10 * rapid.IntRange(1, 6).Draw(t, "priority")),
		}
		if _, holds := m.tokens[key(id, run)]; holds {
			m.next[key(id, run)] = *next
		}
	}
	m.state = m.state.Finish(id, run, rapid.Bool().Draw(t, "gone"), next)
}

// giveBack takes a claim back. What its job said that it wants next comes after everybody who has asked until now.
func (m *model) giveBack(t *rapid.T) {
	id, run := m.job(t)
	next, handsOn := m.next[key(id, run)]
	state, handedOn := m.state.Return(id, run, m.now)
	m.state = state
	if handedOn != handsOn {
		t.Fatalf("handed on: %v", handedOn)
	}
	m.gone(id, run)
	if handsOn {
		m.wanted = append(m.wanted, next)
		m.reserved[key(id, run)] = false
		if c, holds, ok := m.state.Find(id, run); !ok || holds || c.Domain != next.Domain || c.Next != nil {
			t.Fatalf("it should wait for %s now: %+v", next.Domain, c)
		}
	}
}

func (m *model) gate(c lease.Claim) storage.Answer {
	return storage.Answer{OK: !m.refused[c.Domain.Name], Reason: "refused"}
}

func (m *model) together(a, b lease.Claim) bool {
	x, y := min(a.Domain.Name, b.Domain.Name), max(a.Domain.Name, b.Domain.Name)
	return x == y || !slices.Contains(m.apart, x+y)
}

// besides tells whether a claim may be held beside all of these.
func (m *model) besides(c lease.Claim, holders []lease.Claim) bool {
	return !slices.ContainsFunc(holders, func(h lease.Claim) bool { return !m.together(c, h) })
}

func (m *model) grant(t *rapid.T) {
	queue, holders := m.state.Queue, m.state.Holders
	next, granted := m.state.Grant(lease.Rules{Together: m.together, Gate: m.gate}, m.now)
	m.state = next
	for _, c := range granted {
		if slices.ContainsFunc(holders, func(h lease.Claim) bool {
			return h.RunID == c.RunID && h.WorkflowID == c.WorkflowID
		}) {
			m.reserved[key(c.WorkflowID, c.RunID)] = false // its job is ready
		}
		if c.Token <= m.token {
			t.Fatalf("%s got token %d after %d", c.WorkflowID, c.Token, m.token)
		}
		m.token, m.tokens[key(c.WorkflowID, c.RunID)] = c.Token, c.Token
		if m.refused[c.Domain.Name] {
			t.Fatalf("%s holds %s, which the gate refuses", c.WorkflowID, c.Domain)
		}
		if !m.besides(c, holders) {
			t.Fatalf("%s got %s beside %v", c.WorkflowID, c.Domain, holders)
		}
	}
	if len(holders) == 0 {
		m.mustBeFirst(t, queue, granted)
	}
	for _, c := range m.state.Queue {
		if c.WaitsFor == "" {
			t.Fatalf("%s does not say what it waits for", c.WorkflowID)
		}
		if len(m.state.Holders) > 0 && m.besides(c, m.state.Holders) && !m.refused[c.Domain.Name] &&
			!m.somebodyMoreUrgent(c) {
			t.Fatalf("%s could share %s", c.WorkflowID, c.Domain)
		}
	}
}

// mustBeFirst: when nobody held the lease, it goes to the first one that the gate lets through.
func (m *model) mustBeFirst(t *rapid.T, queue, granted []lease.Claim) {
	for _, c := range queue {
		if m.refused[c.Domain.Name] {
			continue
		}
		if len(granted) == 0 || granted[0].WorkflowID != c.WorkflowID || granted[0].RunID != c.RunID {
			t.Fatalf("%s was first, but %v got it", c.WorkflowID, granted)
		}
		return
	}
	if len(granted) > 0 {
		t.Fatalf("granted %v, though the gate refuses everybody", granted)
	}
}

func (m *model) somebodyMoreUrgent(c lease.Claim) bool {
	return !c.Observing && slices.ContainsFunc(m.state.Queue,
		func(w lease.Claim) bool { return !m.together(w, c) && w.Priority > c.Priority })
}

// check is what holds at every moment.
func (m *model) check(t *rapid.T) {
	seen := map[string]bool{}
	for _, c := range slices.Concat(m.state.Holders, m.state.Queue) {
		if k := key(c.WorkflowID, c.RunID); seen[k] {
			t.Fatalf("%s is there twice", k)
		} else {
			seen[k] = true
		}
		if m.find(c.WorkflowID, c.RunID) < 0 {
			t.Fatalf("%s never asked, or gave up", c.WorkflowID)
		}
	}
	if len(seen) != len(m.wanted) {
		t.Fatalf("%d wanted it, %d are known", len(m.wanted), len(seen))
	}
	for _, c := range m.state.Holders {
		if !m.besides(c, m.state.Holders) {
			t.Fatalf("%s is held beside what it does not go together with: %v", c.Domain, m.state.Holders)
		}
		if c.Token != m.tokens[key(c.WorkflowID, c.RunID)] {
			t.Fatalf("%s has token %d, it was given %d", c.WorkflowID, c.Token, m.tokens[key(c.WorkflowID, c.RunID)])
		}
		if _, holds, ok := m.state.Find(c.WorkflowID, c.RunID); !holds || !ok {
			t.Fatalf("%s holds it, but is not found", c.WorkflowID)
		}
	}
	for _, c := range slices.Concat(m.state.Holders, m.state.Queue) {
		if c.Reserved() != m.reserved[key(c.WorkflowID, c.RunID)] {
			t.Fatalf("something may open for %s: %t", c.WorkflowID, !c.Reserved())
		}
	}
	for _, c := range m.state.Queue {
		if c.Token != 0 || !c.Granted.IsZero() || c.Finishing {
			t.Fatalf("%s waits, but looks like a holder: %+v", c.WorkflowID, c)
		}
	}
	if !slices.IsSortedFunc(m.state.Queue, func(a, b lease.Claim) int {
		if a.Priority != b.Priority {
			return int(b.Priority) - int(a.Priority)
		}
		return m.find(a.WorkflowID, a.RunID) - m.find(b.WorkflowID, b.RunID)
	}) {
		t.Fatalf("not by priority, then first come first served: %v", order(m.state.Queue))
	}
	if m.state.Token != m.token {
		t.Fatalf("the last token is %d, the state says %d", m.token, m.state.Token)
	}
}

func order(queue []lease.Claim) []string {
	var out []string
	for _, c := range queue {
		out = append(out, fmt.Sprintf("%s (%s)", c.WorkflowID, c.Priority))
	}
	return out
}

// TestStateIsAValue: a state that was handed out does not change behind its owner's back. The keeper keeps the old one
// while it asks the storage cluster, and signals change the new one.
func TestStateIsAValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			m.request(t)
		}
		m.grant(t)
		before := m.state
		copied := lease.State{Token: before.Token, Holders: slices.Clone(before.Holders), Queue: slices.Clone(before.Queue)}
		for _, step := range rapid.SliceOfN(rapid.SampledFrom([]func(*rapid.T){m.request, m.release, m.finish, m.grant}), 1,
			5).Draw(t, "steps") {
			step(t)
		}
		if fmt.Sprint(before) != fmt.Sprint(copied) {
			t.Fatalf("was %v, is %v", copied, before)
		}
	})
}
