package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the API whose health check asks a MachineDisruptionBudget: holds are labels, by which the budget selects
// Machines, and its number may let one of them go that nobody has released.

// machineBudget is the MachineDisruptionBudget of a policy.
type machineBudget struct {
	// firstWaits: of the two arithmetics that were published, the one by which no Machine goes unless more are healthy
	// than have to be. By the other one, one goes while as many are healthy as have to be.
	firstWaits bool
	most       *int // nil: there is none
	version    int
	excused    time.Time // until when nobody can be blamed for what it says
	byPerson   bool      // it says what a person wrote
	fences     int       // that the number alone allowed
}

// looksAgain is how often lockkeeper looks at the budget without having been told of anything.
const looksAgain = time.Minute

// UseBudget has the policy name this API, from the next time on that it names any.
func (m *Machines) UseBudget(firstWaits bool) {
	m.w.happens(func() { m.budget = &machineBudget{firstWaits: firstWaits} })
}

// Budget implements activities.Machines.
func (m *Machines) Budget(
	ctx context.Context, _ storage.ClusterKey, _ storage.Fencing,
) (b fencing.MachineBudget, err error) {
	err = m.w.request(ctx, "read the MachineDisruptionBudget", func() error {
		if m.budget != nil && m.budget.most != nil {
			most := *m.budget.most
			b.Max = &most
		}
		return nil
	})
	return b, err
}

var errMoved = errors.New("somebody else has changed the MachineDisruptionBudget again and again")

// Odd implements activities.Machines: whoever fences them acts.
func (m *Machines) Odd(
	context.Context, storage.ClusterKey, storage.Fencing, []fencing.Machine,
) func(nodes []string) []string {
	return nil
}

// SetMax implements activities.Machines. It reads what it writes over, and writes nothing over what has changed since.
func (m *Machines) SetMax(ctx context.Context, _ storage.ClusterKey, _ storage.Fencing, most *int) error {
	for range 5 {
		var version int
		var same, moved bool
		err := m.w.request(ctx, "read the MachineDisruptionBudget", func() error {
			b := m.budget
			version, same = b.version, b.says() == says(most)
			return nil
		})
		if err != nil || same {
			return err
		}
		err = m.w.request(ctx, "write the MachineDisruptionBudget", func() error {
			if moved = m.budget.version != version; !moved {
				m.write(most, "lockkeeper")
			}
			return nil
		})
		if err != nil || !moved {
			return err
		}
	}
	return errMoved
}

func (m *Machines) write(most *int, who string) {
	b := m.budget
	if b.most = nil; most != nil {
		n := *most
		b.most = &n
	}
	b.version++
	b.byPerson = who != "lockkeeper"
	m.w.tell("%s writes the MachineDisruptionBudget: %s", who, b.says())
	if m.w.belated || b.byPerson {
		b.excused = time.Now().Add(looksAgain + m.w.opts.Reaction)
	}
}

// PersonWritesBudget is somebody who has the budget let go so many, or deletes it.
func (m *Machines) PersonWritesBudget(most *int) {
	m.w.happens(func() {
		if m.budget != nil && m.budget.most != nil {
			m.write(most, "a person")
		}
	})
}

// BudgetSays is what it says, in words; "": this API has none.
func (m *Machines) BudgetSays() (s string) {
	m.w.happens(func() {
		if m.budget != nil {
			s = m.budget.says()
		}
	})
	return s
}

// ByNumber is how often the number alone allowed a fence.
func (m *Machines) ByNumber() (n int) {
	m.w.happens(func() {
		if m.budget != nil {
			n = m.budget.fences
		}
	})
	return n
}

func (b *machineBudget) says() string { return says(b.most) }

func says(most *int) string {
	if most == nil {
		return "none"
	}
	return fmt.Sprintf("%d may be unavailable", *most)
}

// lets tells whether a Machine with the label may be fenced: there is no budget, or it lets one go. A Machine is
// healthy when its node is ready.
func (b *machineBudget) lets(m *Machines) bool {
	if b == nil {
		return false
	}
	if b.most == nil {
		return true
	}
	expected, healthy := 0, 0
	for _, name := range m.w.names {
		if !m.held[name] || m.away[name] {
			continue
		}
		expected++
		if n := m.w.nodes[name]; n.ready && !n.gone && m.deleting[name].IsZero() {
			healthy++
		}
	}
	desired := max(0, expected-*b.most)
	if b.firstWaits {
		return healthy > desired
	}
	return healthy >= desired
}

// judgeNumber judges the fence of a Machine that nobody released: the number must not let it go while another one is
// released (I7), another failure domain is open (I1), or the data is not whole (I3). Nor may the fence take what cannot
// be missed (I1, I5).
func (m *Machines) judgeNumber(name string) {
	w, b := m.w, m.budget
	b.fences++
	w.tell("the MachineDisruptionBudget lets %s go: %s", name, b.says())
	hosts := m.reliedOn(name)
	if len(hosts) == 0 || !m.fenced() || w.older != nil || w.elsewhere != nil || time.Now().Before(m.foreseen) ||
		time.Now().Before(b.excused) || b.byPerson && time.Now().Before(w.unguarded) {
		return
	}
	for _, other := range w.names {
		if other != name && m.stillReleased(other) {
			w.violate("I7: %s is fenced by number while the Machine of %s is released", name, other)
		}
	}
	if time.Now().Before(w.unguarded) {
		return
	}
	for _, zone := range w.openZones() {
		if !hosts[zone] {
			w.violate("I1: %s is fenced by number while %s is open", name, zone)
		}
	}
	if time.Since(w.crashed) < w.opts.Reaction || w.hangsUnseen() || w.unknowable() {
		return
	}
	if !w.clean() && time.Since(w.hurt) > w.opts.Reaction {
		w.violate("I3: %s is fenced by number, though the data is not whole", name)
	}
	m.judgeLoss(name, hosts)
}

// judgeLoss judges what the fence of a node takes that nobody released.
func (m *Machines) judgeLoss(name string, hosts map[string]bool) {
	w := m.w
	for _, o := range w.osds {
		known := time.Since(o.since) > w.opts.Reaction && time.Since(w.lastInOut) > w.opts.Reaction
		if !hosts[w.domainOf(o)] && !o.up && known && w.missed(o) {
			w.violate("I1: %s is fenced by number, and %s in %s is down and missed", name, o.name(), w.domainOf(o))
		}
	}
	for _, g := range w.pgs {
		live := w.live(g)
		left := slices.DeleteFunc(slices.Clone(live), func(id int) bool { return w.osds[id].host == name })
		if len(live) >= minSize && len(left) < minSize && time.Since(w.hurt) > w.opts.Reaction {
			w.violate("I1: PG 1.%x becomes unavailable when %s is fenced by number", g.id, name)
		}
	}
	mons, here := 0, 0
	for _, x := range w.mons {
		if x.in && x.running {
			mons++
			if x.host == name {
				here++
			}
		}
	}
	if here > 0 && mons >= w.majority() && mons-here < w.majority() {
		w.violate("I5: %s is fenced by number, which leaves %d of %d mons", name, mons-here, len(w.mons))
	}
}

// unrest is what the budget says that it should not in the end.
func (b *machineBudget) unrest(m *Machines) []string {
	if b == nil {
		return nil
	}
	most := 1
	if m.w.opts.ByOSD > 0 && m.w.opts.OSDsPerNode > 1 {
		most = 0 // a number does not ask whether all OSDs of a node may stop together
	}
	switch {
	case m.w.policy == nil && b.most != nil:
		return []string{"there is a MachineDisruptionBudget, and no policy"}
	case m.fenced() && m.w.clean() && b.says() != says(&most):
		return []string{"the MachineDisruptionBudget says " + b.says() + ", and not " + says(&most)}
	}
	return nil
}
