package workflows

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file plays a keeper's mind alone, without workflows, activities or adapters, so that a second of it is thousands
// of decisions: in a small world with six OSDs in three zones, in which whatever the budgets allow happens.

// small is that world.
type small struct {
	t      *rapid.T
	mind   mind
	now    time.Time
	osds   [6]smallOSD
	epoch  int64
	moved  bool // data is being made whole
	book   budget.Book
	says   budget.Specs
	memory activities.Memory // that is written in the policy's status
	noout  []string
	asked  *storage.FailureDomain // the question that nobody has answered yet
	askAs  doubt.Seq
	watch  doubt.Seq // as of which doubt the watch began
	opened int
	quiet  bool // nothing happens any more, and nothing fails
}

type smallOSD struct {
	up, serves bool
}

const smallFSID = "9c0a5a1e-0000-4000-8000-000000000000"

func (w *small) zone(osd int) string { return string(rune('x' + osd/2)) }

func (w *small) node(osd int) string { return string(rune('a' + osd)) }

func newSmall(t *rapid.T) *small {
	w := &small{t: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), epoch: 100, book: budget.Book{}}
	for i := range w.osds {
		w.osds[i] = smallOSD{up: true, serves: true}
	}
	for _, b := range []string{budget.Marked, budget.Unmarked} {
		w.book[b] = budget.Written{UID: b, Generation: 1, Alarm: budget.NoAlarm}
	}
	w.says.Daemons = budget.Spec{MinAvailable: budget.Everything}
	w.mind.cluster = storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}
	w.mind.state.Told = map[string]Told{}
	w.mind.state.Doubts.Raise(w.now, doubt.Changed, "the keeper began")
	return w
}

// look is what a keeper would see now.
func (w *small) look() activities.Observation {
	v := storage.View{
		FailureDomainType: "zone", LabelKey: "zone", ChangeEpoch: w.epoch, Shape: "same", Daemons: len(w.osds),
		Marks: &storage.Marks{}, Flagged: slices.Clone(w.noout),
	}
	touched := map[string]bool{}
	for i, o := range w.osds {
		touched[w.zone(i)] = touched[w.zone(i)] || !o.up || !o.serves
	}
	for i, o := range w.osds {
		x := storage.Daemon{Name: fmt.Sprintf("osd.%d", i), Node: w.node(i), Up: o.up, Pod: storage.PodReady}
		n := storage.Node{Name: w.node(i), Domain: w.zone(i), Host: w.node(i), Daemons: []string{x.Name}}
		if !o.serves {
			x.Pod = storage.PodNone
			x.Restarting = o.up
		}
		if o.up {
			v.Up++
		}
		if i%2 == 0 {
			hurtElsewhere := w.moved
			for zone, is := range touched {
				hurtElsewhere = hurtElsewhere || is && zone != w.zone(i)
			}
			v.Domains = append(v.Domains, storage.Domain{
				Name: w.zone(i), LabelValues: []string{w.zone(i)}, Daemons: 2, Touched: touched[w.zone(i)],
				OKToStop: &storage.Answer{OK: !hurtElsewhere, Refusal: storage.RefusalHarm},
			})
		}
		d := &v.Domains[len(v.Domains)-1]
		if x.Down() {
			d.Troubled, n.Down = append(d.Troubled, x), []string{x.Name}
		}
		v.Nodes = append(v.Nodes, n)
		v.Hosts = append(v.Hosts, storage.Host{Name: w.node(i), ID: -10 - i})
	}
	claim := w.memory.Claim
	return activities.Observation{
		Found: true, Generation: 1, Claim: &claim, Seen: activities.Seen{View: v, ID: smallFSID}, Book: clone(w.book),
		Settings: storage.Settings{
			ManagePodBudgets: true, AtRest: storage.AtRestNone, MaintenanceTimeout: 30 * time.Minute,
			AnnouncementTimeout: time.Minute,
		},
	}
}

func clone(b budget.Book) budget.Book {
	out := budget.Book{}
	for k, v := range b {
		out[k] = v
	}
	return out
}

// pass is what the keeper's shell does with the mind.
func (w *small) pass() {
	m := &w.mind
	m.again = false
	if why, closes := m.state.Doubts.Answer(m.state.Applied, false); closes {
		step, asOf := budget.CloseFirst(m.state.Decision, why), m.state.Doubts.Last
		in := m.budgetInput(step)
		m.writing(in)
		m.applied(step, asOf, w.write(in))
	}
	if before := m.ahead; before != nil && before.asOf == m.state.Doubts.Last {
		m.observed, m.asked = before.Observation, before.asked
	} else {
		m.asked, m.observed = m.look().Look.Hosts, w.look()
	}
	m.ahead = nil
	m.sawAll(w.now)
	w.happens()
	j := m.judge(w.now)
	switch {
	case j.asks:
		w.asked, w.askAs = &j.outside, m.state.Doubts.Last
	case !j.goesOn:
		w.asked = nil
	}
	p := m.prepare(w.now)
	m.complete(w.now, p, true)
	w.judgePlan(p)
	if p.Budgets != nil {
		m.writing(*p.Budgets)
	}
	r, err := w.carryOut(p.CarryInput)
	m.tookReports(p, r)
	if err != nil {
		m.lost(p)
	} else {
		err = m.took(w.now, p, r)
	}
	if m.again = m.again || j.claimed; err == nil && !m.again {
		m.tellAll(w.now)
		for _, o := range m.outbox {
			m.sent(w.now, o, nil)
		}
		m.outbox = nil
	}
}

// judgePlan holds a plan against what every plan must keep to.
func (w *small) judgePlan(p *plan) {
	m := &w.mind
	zones := map[string]bool{}
	for _, c := range m.state.Memory.Lease.Holders {
		zones[c.Domain.Name] = true
	}
	require.LessOrEqual(w.t, len(zones), 1, "the lease is of one failure domain")
	if p.Set != nil {
		written := w.memory
		if p.Remember != nil {
			written = p.Remember.Memory
		}
		for _, host := range p.Set.Hosts {
			require.True(w.t, slices.ContainsFunc(written.Flags, func(n flags.Record) bool { return n.Host == host }),
				"noout on %s is written down before it is set", host)
		}
	}
	if p.Budgets == nil || !p.Budgets.LetsGo() {
		return
	}
	require.NotNil(w.t, p.Budgets.Before, "what opens tests that nothing has changed since the look")
	require.False(w.t, p.Closes)
	require.Positive(w.t, p.within, "what opens does so soon after the look, or not at all")
	d := m.state.Doubts.Data
	require.True(w.t, m.state.LifeAsOf >= d, "nobody has given a sign of life since the last doubt")
}

// carryOut does what the activity of this name does, in a world in which anything may happen between two steps.
func (w *small) carryOut(in activities.CarryInput) (r activities.CarryResult, err error) {
	if w.fails("remember") {
		return r, errors.New("no worker")
	}
	if in.Remember != nil {
		r.Remembered.Begun, w.memory = true, in.Remember.Memory
	}
	w.happens()
	closes := func() {
		if r.Budgets.Begun = in.Budgets != nil; in.Budgets != nil {
			r.Budgets.Result = w.write(*in.Budgets)
		}
	}
	if in.Closes {
		closes()
	}
	if in.Set != nil {
		if r.Set.Begun = true; w.fails("set") {
			r.Set.Failed = "no quorum"
			return r, nil
		}
		w.noout = append(w.noout, in.Set.Hosts...)
		slices.Sort(w.noout)
		w.noout = slices.Compact(w.noout)
	}
	w.happens()
	if !in.Closes {
		closes()
	}
	if in.Unset != nil {
		r.Unset.Begun = true
		w.noout = slices.DeleteFunc(w.noout, func(host string) bool { return slices.Contains(in.Unset.Hosts, host) })
	}
	if in.Report != nil && r.Budgets.Result.Moved == "" {
		r.Reported.Begun, w.memory = true, in.Report.Memory
	}
	if in.Look != nil {
		r.Looked = activities.Attempt[activities.Observation]{Begun: true, Result: w.look()}
	}
	return r, nil
}

func (w *small) fails(step string) bool {
	return !w.quiet && rapid.IntRange(0, 9).Draw(w.t, step+" fails: 0") == 0
}

// write is the API server.
func (w *small) write(in activities.BudgetInput) activities.BudgetResult {
	if in.LetsGo() && !sameBook(in.Before, w.book) {
		return activities.BudgetResult{Moved: "the budget"}
	}
	if in.LetsGo() {
		w.opened++
	}
	w.says = in.Specs
	for name, b := range w.book {
		b.Generation++
		w.book[name] = b
	}
	return activities.BudgetResult{Book: clone(w.book)}
}

func sameBook(a, b budget.Book) bool { return a.Same(b) && a.Alarms() == b.Alarms() }

// happens is what may happen at any moment: whatever the budgets allow, and what they cannot prevent.
func (w *small) happens() {
	w.now = w.now.Add(10 * time.Millisecond)
	if w.quiet {
		return
	}
	osd := rapid.IntRange(0, len(w.osds)-1).Draw(w.t, "OSD")
	switch rapid.SampledFrom([]string{"nothing", "nothing", "evicted", "dies", "noticed", "back"}).Draw(w.t, "happens") {
	case "evicted":
		if w.osds[osd].serves && slices.Contains(w.says.Daemons.Except, w.zone(osd)) {
			w.judgeEviction(osd)
			w.stops(osd)
		}
	case "dies":
		if w.osds[osd].serves && rapid.IntRange(0, 3).Draw(w.t, "dies: 0") == 0 {
			w.stops(osd)
		}
	case "noticed":
		if !w.osds[osd].serves && w.osds[osd].up {
			w.osds[osd].up, w.moved = false, true
			w.epoch++
		}
	case "back":
		if !w.osds[osd].serves {
			if !w.osds[osd].up {
				w.osds[osd].up = true
				w.epoch++
			}
			w.osds[osd].serves = true
		}
	}
}

// stops takes a pod away. Every watcher closes, and one of them tells.
func (w *small) stops(osd int) {
	w.osds[osd].serves = false
	for name, b := range w.book {
		b.Generation++
		b.Alarm = fmt.Sprintf("%s osd.%d", w.now.Format(time.RFC3339Nano), osd)
		w.book[name] = b
	}
	if slices.Contains(w.says.Daemons.Except, w.zone(osd)) {
		return // its own failure domain is open
	}
	w.says.Daemons = budget.Spec{MinAvailable: budget.Everything}
}

// judgeEviction is the whole point.
func (w *small) judgeEviction(osd int) {
	for i, o := range w.osds {
		if w.zone(i) != w.zone(osd) && (!o.serves || !o.up) {
			w.t.Fatalf("osd.%d of %s is evicted while osd.%d of %s is away", osd, w.zone(osd), i, w.zone(i))
		}
	}
	if w.moved && !slices.ContainsFunc(w.osds[:], func(o smallOSD) bool { return !o.serves || !o.up }) {
		w.t.Fatalf("osd.%d is evicted while the data is not whole", osd)
	}
}

// watches is an answer of the watch, which begins anew as of the last doubt.
func (w *small) watches() {
	whole := !slices.ContainsFunc(w.osds[:], func(o smallOSD) bool { return !o.up })
	w.moved = w.moved && !whole
	fresh := !slices.ContainsFunc(w.osds[:], func(o smallOSD) bool { return o.up && !o.serves })
	w.mind.saw(w.now, activities.Watched{
		Health: storage.Health{Fresh: fresh, Clean: whole, ChangeEpoch: w.epoch, PGs: 32, PGsClean: 32},
		At:     w.now, Lived: time.Millisecond, LivedFor: time.Second, ReportPeriod: 800 * time.Millisecond,
	}, w.watch)
	w.watch = w.mind.state.Doubts.Last
}

// answers is that of everybody whom the keeper asked for a sign of life.
func (w *small) answers() {
	if w.asked != nil {
		w.mind.lived(activities.LifeAnswer{Life: storage.Life{Outside: *w.asked}, At: w.now}, w.askAs)
		w.asked = nil
	}
}

func (w *small) claims(osd int) {
	w.mind.request(w.now, lease.Claim{
		WorkflowID: "drain/" + w.node(osd), RunID: w.node(osd), Node: w.node(osd), FlagHosts: []string{w.node(osd)},
		Domain: storage.FailureDomain{Type: "zone", Name: w.zone(osd)}, Reason: "a test", Priority: lease.PriorityDrain,
	})
}

// TestMindModel: in any order of events, no plan breaks a rule, nobody is evicted while another failure domain is away,
// and when all is well again whoever waits gets the lease.
func TestMindModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSmall(t)
		osd := rapid.IntRange(0, len(w.osds)-1)
		t.Repeat(map[string]func(*rapid.T){
			"pass":    func(*rapid.T) { w.pass() },
			"watch":   func(*rapid.T) { w.watches() },
			"answer":  func(*rapid.T) { w.answers() },
			"happens": func(*rapid.T) { w.happens() },
			"later":   func(*rapid.T) { w.now = w.now.Add(time.Second) },
			"claim":   func(t *rapid.T) { w.claims(osd.Draw(t, "node")) },
			"hint": func(t *rapid.T) {
				h := Hint{Reason: "a test", Alarm: rapid.Bool().Draw(t, "alarm"), Tampered: rapid.Bool().Draw(t, "tampered")}
				w.mind.hint(w.now, h)
			},
			"finish": func(t *rapid.T) {
				node := w.node(osd.Draw(t, "node"))
				w.mind.finish(w.now, LeaseRef{WorkflowID: "drain/" + node, RunID: node})
			},
			"continue as new": func(*rapid.T) { w.continues() },
		})
		w.calm()
	})
}

// TestMindOpens: what the model plays does open.
func TestMindOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSmall(t)
		w.claims(0)
		w.calm()
		require.Positive(t, w.opened)
	})
}

// continues hands the mind on to another run.
func (w *small) continues() {
	next := mind{cluster: w.mind.cluster}
	next.takeUp(*w.mind.handOn(), w.now)
	next.state.Doubts.Raise(w.now, doubt.Changed, "the keeper began")
	w.mind, w.asked = next, nil
}

// calm has all come back, and expects that nothing is stuck.
func (w *small) calm() {
	for i := range w.osds {
		w.osds[i] = smallOSD{up: true, serves: true}
	}
	w.epoch++
	w.quiet = true
	for range 300 {
		w.now = w.now.Add(200 * time.Millisecond)
		w.watches()
		w.answers()
		w.pass()
		for _, c := range w.mind.state.Memory.Lease.Holders {
			if slices.Contains(w.says.Daemons.Except, c.Domain.Name) {
				w.mind.finish(w.now, LeaseRef{WorkflowID: c.WorkflowID, RunID: c.RunID, Ask: c.Ask})
			}
		}
		if l := w.mind.state.Memory.Lease; len(l.Holders)+len(l.Queue)+len(w.noout) == 0 && len(w.says.Daemons.Except) == 0 {
			return
		}
	}
	require.Empty(w.t, w.mind.state.Memory.Lease.Holders, "%s", w.mind.state.Decision.Message)
	require.Empty(w.t, w.mind.state.Memory.Lease.Queue, "%s", w.mind.state.Decision.Message)
	require.Empty(w.t, w.noout)
	require.Empty(w.t, w.says.Daemons.Except)
}
