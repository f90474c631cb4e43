package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// budgetObject is a PodDisruptionBudget over OSD pods, with IfHealthyBudget.
type budgetObject struct {
	spec     budget.Spec
	computed time.Time // when its status follows its spec
}

func (b *budgetObject) covers(w *World, p *pod) bool {
	return !slices.Contains(b.spec.Except, w.osds[p.osd].zone)
}

func (b *budgetObject) healthy(w *World) int {
	n := 0
	for _, p := range w.pods {
		if b.covers(w, p) && p.state == storage.PodReady {
			n++
		}
	}
	return n
}

// Answers of the eviction API.
var (
	errTooManyRequests = errors.New("429: Cannot evict pod as it would violate the pod's disruption budget")
	errTwoBudgets      = errors.New("500: This pod has more than one PodDisruptionBudget, which the eviction subresource does not support")
	errGone            = errors.New("404: not found")
)

// evict answers as the eviction API does.
func (w *World) evict(p *pod, who string) error {
	if !slices.Contains(w.pods, p) || p.state == storage.PodTerminating {
		return errGone
	}
	var over []*budgetObject
	for _, name := range sortedKeys(w.budgets) {
		if b := w.budgets[name]; b.covers(w, p) {
			over = append(over, b)
		}
	}
	switch {
	case len(over) > 1:
		if w.budgets["foreign"] == nil {
			w.violate("I2: %s is under two budgets", p.name)
		}
		return errTwoBudgets
	case len(over) == 0 || p.state == storage.PodPending:
	case time.Now().Before(over[0].computed):
		return errTooManyRequests
	case p.state == storage.PodNotReady:
		if b := over[0]; b.healthy(w) < b.spec.MinAvailable || b.spec.MinAvailable <= 0 {
			return errTooManyRequests
		}
	case over[0].healthy(w)-over[0].spec.MinAvailable < 1:
		return errTooManyRequests
	}
	o := w.osds[p.osd]
	w.tell("%s evicts osd.%d", who, p.osd)
	w.judge(o, p)
	if o.running && p.bound {
		o.evicted = true
	}
	w.remove(p)
	return nil
}

// KubectlDrain cordons a node and evicts its OSDs as `kubectl drain` does: again every 5 s, until all are gone; a 500 ends
// it. It returns at once; the channel is closed at the end.
func (w *World) KubectlDrain(name string) <-chan error {
	done := make(chan error, 1)
	w.mu.Lock()
	w.tell("kubectl drain %s", name)
	w.cordon(name, true, byPerson)
	w.mu.Unlock()
	go func() { done <- w.drain(w.end, name) }()
	return done
}

const kubectlRetries = 5 * time.Second

func (w *World) drain(ctx context.Context, name string) error {
	for {
		w.mu.Lock()
		n := w.nodes[name]
		if n == nil || n.gone || !n.cordoned {
			w.mu.Unlock()
			return nil
		}
		left := 0
		for _, p := range slices.Clone(w.pods) {
			if p.node != name || !p.bound {
				continue
			}
			left++
			if err := w.evict(p, "kubectl"); errors.Is(err, errTwoBudgets) {
				w.mu.Unlock()
				return err
			}
		}
		w.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(kubectlRetries):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// EvictAny asks for the eviction of one OSD's pod, as anybody might, and tells whether it was granted.
func (w *World) EvictAny(osd int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.podOf(osd)
	return p != nil && w.evict(p, "somebody") == nil
}

// Foreign puts a budget of somebody else over all OSDs, which lets nobody go, or takes it away.
func (w *World) Foreign(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, is := w.budgets["foreign"]; is == on {
		return
	}
	w.tell("somebody else's budget over all OSDs: %t", on)
	if on {
		w.budgets["foreign"] = &budgetObject{spec: budget.Spec{MinAvailable: budget.Everything}}
	} else {
		delete(w.budgets, "foreign")
	}
	w.kubeChanged()
}

// setBudget is what lockkeeper writes.
func (w *World) setBudget(spec budget.Spec) bool {
	const name = "lockkeeper"
	if b := w.budgets[name]; b != nil {
		if b.spec.MinAvailable == spec.MinAvailable && slices.Equal(b.spec.Except, spec.Except) {
			return false
		}
	}
	w.tell("the budget: %s", describe(spec))
	w.budgets[name] = &budgetObject{spec: spec, computed: time.Now().Add(budgetComputed)}
	if w.guarding.IsZero() {
		w.guarding = time.Now()
	}
	w.judgeBudget(spec)
	w.tellWatcher()
	return true
}

func describe(spec budget.Spec) string {
	switch {
	case len(spec.Except) > 0:
		return fmt.Sprintf("only zone %v is open", spec.Except)
	case spec.MinAvailable >= budget.Everything:
		return "closed"
	default:
		return fmt.Sprintf("at rest, %d must stay", spec.MinAvailable)
	}
}
