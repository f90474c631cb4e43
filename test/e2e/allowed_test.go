package e2e

import (
	"errors"
	"fmt"
	"strings"
)

// The two budgets of the OSDs: of those whose pods are marked as proved, and of the others.
const (
	unprovedBudget = "lockkeeper-" + policyName + "-osd"
	provedBudget   = unprovedBudget + "-proved"
	markLabel      = "lockkeeper.io/proved"
)

// everything is more than there can ever be: a budget with it lets nobody go.
const everything = 1_000_000

// daemonBudget is a budget of the storage daemons, as far as scenarios look at it.
type daemonBudget struct {
	Metadata struct{ Name string }
	Spec     struct {
		MinAvailable, MaxUnavailable *int
		Selector                     struct {
			MatchExpressions []struct {
				Key, Operator string
				Values        []string
			}
		}
	}
	Status struct {
		CurrentHealthy, DesiredHealthy, DisruptionsAllowed int
		Conditions                                         []struct{ Type, Status, Reason string }
	}
}

// syncFailed: the disruption controller could not reach the API server for a moment, allowed nobody to go, to be safe,
// and will look again only when a pod or the budget changes. Whoever begins a drain changes the budget.
func (b daemonBudget) syncFailed() bool {
	for _, c := range b.Status.Conditions {
		if c.Reason == "SyncFailed" {
			return true
		}
	}
	return false
}

// allows says in words what one budget allows of its own pods.
func (b daemonBudget) allows() string {
	var except []string
	for _, e := range b.Spec.Selector.MatchExpressions {
		if e.Operator == "NotIn" {
			except = append(except, e.Values...)
		}
	}
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	switch {
	case len(except) > 0 && least != nil && *least >= everything:
		return "only in " + strings.Join(except, " and ")
	case len(except) > 0:
		return fmt.Sprintf("what nobody decided: %+v", b.Spec)
	case least != nil && *least >= everything || most != nil && *most == 0:
		return "nowhere"
	case least != nil && *least == 0:
		return "everything"
	default:
		return "one anywhere"
	}
}

// allowed says what both budgets of the OSDs allow together.
func allowed(budgets map[string]daemonBudget) string {
	proved, has := budgets[provedBudget]
	unproved, both := budgets[unprovedBudget]
	if !has || !both {
		return "what one of two budgets does not decide"
	}
	one, other := proved.allows(), unproved.allows()
	if one == other || one == "one anywhere" && other == "nowhere" {
		return one
	}
	return fmt.Sprintf("%s of the marked, %s of the others", one, other)
}

func (w *world) budgets() (map[string]daemonBudget, error) {
	var list struct{ Items []daemonBudget }
	if err := w.get(&list, budgetsPath); err != nil {
		return nil, err
	}
	out := map[string]daemonBudget{}
	for _, b := range list.Items {
		out[b.Metadata.Name] = b
	}
	return out, nil
}

// mayDrain says the same in the words of the policy's status.
var mayDrain = map[string]string{"one anywhere": "any node", "nowhere": "no"}

// awaitAllowed waits until the real budget and the policy's status say where disruption is allowed.
func (w *world) awaitAllowed(want string) error {
	status, ok := mayDrain[want]
	if !ok {
		status = strings.Replace(want, "only in ", "zone ", 1)
	}
	return until(patience, func() error {
		budgets, err := w.budgets()
		if err != nil {
			return err
		}
		p, err := w.policyStatus()
		if err != nil {
			return err
		}
		if says := allowed(budgets); says != want || p.MayDrain != status {
			return fmt.Errorf("the budgets allow %s, and the policy says %q: %s", says, p.MayDrain, p.Message)
		}
		return nil
	})
}

func (w *world) awaitNoBudget() error {
	return until(patience, func() error {
		budgets, err := w.budgets()
		if err == nil && len(budgets) > 0 {
			return fmt.Errorf("there is %+v", budgets)
		}
		return errors.Join(err, w.checkMarks(false))
	})
}

// refused asks whether the OSD on a node may be evicted now, and wants the answer to be no at once: an answer that
// turns to no while one waits was a yes before.
func (w *world) refused(node string) error {
	return until(patience, func() error {
		out, err := w.askEviction(node)
		switch {
		case err == nil:
			return fmt.Errorf("%wits eviction would be allowed", errFinal)
		case strings.Contains(out, "disruption budget"):
			return nil
		default:
			return fmt.Errorf("%w: %s", err, out)
		}
	})
}

// mayGo waits until the OSD on a node may be evicted.
func (w *world) mayGo(node string) error {
	return until(patience, func() error {
		if out, err := w.askEviction(node); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// askEviction asks the API server to evict the OSD on a node, but not to do it.
func (w *world) askEviction(node string) (string, error) {
	pods, err := w.pods()
	if err != nil {
		return "", err
	}
	for _, p := range pods {
		if p.Spec.NodeName != node || p.Metadata.Labels["ceph-osd-id"] == "" || p.Metadata.DeletionTimestamp != "" {
			continue
		}
		c := w.command("kubectl", "create", "--raw",
			"/api/v1/namespaces/"+cephNamespace+"/pods/"+p.Metadata.Name+"/eviction?dryRun=All", "-f", "-")
		c.Stdin = strings.NewReader(fmt.Sprintf(
			`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q},"deleteOptions":{"dryRun":["All"]}}`, p.Metadata.Name, cephNamespace))
		out, err := c.CombinedOutput()
		return string(out), err
	}
	return "", fmt.Errorf("no OSD runs on it")
}

type policyStatus struct {
	MayDrain, Reason, Message string
	Lease                     struct{ Holders, Queue []struct{ WorkflowID string } }
	Noout                     []struct{ Host string }
}

func (w *world) policyStatus() (policyStatus, error) {
	var p struct{ Status policyStatus }
	err := w.get(&p, policyPath)
	return p.Status, err
}
