package cli

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// PlanWaiting finds out in which order those pods would be let go that somebody wants gone.
func (c *Command) PlanWaiting(ctx context.Context, job string) (RolloutPlan, error) {
	id, err := taker(job, jobs.SignalApprove)
	if err != nil {
		return RolloutPlan{}, &ExitError{ExitUsage, err}
	}
	kind, target, _ := jobs.Parse(id)
	if kind != jobs.RestartWaiting {
		return RolloutPlan{}, &ExitError{ExitUsage, wrong("--plan", "true",
			"tells of restart-waiting/[NAMESPACE/]POLICY only; what a rollout does `lockkeeper update-osds --plan` tells")}
	}
	p := RolloutPlan{
		At: c.Now(), Job: id, Of: fmt.Sprintf("pods that somebody wants gone in %s/%s", target.Namespace, target.Name),
		ProgressDeadline: metav1.Duration{Duration: activities.DefaultProgressDeadline}, Steps: []rollout.Step{},
	}
	policy := c.surroundings(ctx, &p, target.Namespace, target.Name)
	if policy == nil {
		return p, nil
	}
	p.UpdateDomain = p.FailureDomainType
	wishes, err := c.Kubernetes.StorageWishes(ctx, policy)
	if err != nil {
		return p, fmt.Errorf("what waits to be restarted in %s/%s: %w", policy.Namespace, policy.Name, err)
	}
	pods, err := c.Kubernetes.StoragePods(ctx, policy)
	if err != nil {
		p.unknown("in which failure domain they are", err)
	}
	hosts, err := c.Kubernetes.Hosts(ctx)
	if err != nil {
		p.unknown("which nodes are in service", err)
	}
	p.holdBack(policy)
	in := rollout.Input{DomainType: p.FailureDomainType}
	if open := policy.Status.OpenFailureDomain; open != nil {
		in.First = open.Name
	}
	if s := p.status(); s != nil {
		in.Skip = s.Skip
	}
	waiting := waitingSet{plan: &p, policy: policy, nodes: hosts, pods: pods}
	for _, w := range wishes {
		if o, goes := waiting.osd(w); goes {
			in.OSDs = append(in.OSDs, o)
		}
	}
	p.Counts = rollout.Count(in)
	p.Steps = append(p.Steps, rollout.WaitingBatches(in, false)...)
	return p, nil
}

// holdBack says what the first pod waits for beside its turn.
func (p *RolloutPlan) holdBack(policy *v1alpha1.MaintenancePolicy) {
	approved := p.status() != nil && p.status().Consent
	switch mode := kube.RestartMode(policy); {
	case mode == v1alpha1.RestartsObserve:
		p.HeldBack = append(p.HeldBack, "spec.ceph.restarts: Observe; a drain takes along what waits on its node")
	case mode == v1alpha1.RestartsApprove && !approved:
		p.HeldBack = append(p.HeldBack, fmt.Sprintf("a person's word: `lockkeeper %s %s`", jobs.SignalApprove, p.Job))
	}
	if opened, wrong := kube.RestartWindows(policy); wrong == nil {
		p.keepTo(opened)
	} else {
		p.Refused = append(p.Refused, wrong.Error())
	}
}

// waitingSet are the daemons that somebody wants gone. The labels of pods have to tell where they are, since Ceph is
// not asked.
type waitingSet struct {
	plan   *RolloutPlan
	policy *v1alpha1.MaintenancePolicy
	nodes  map[string]string // why they are not in service, by hostname
	pods   []storageview.Pod // of OSDs
}

// osd is one of them, unless it stays whatever its turn.
func (f waitingSet) osd(w kube.StorageWish) (rollout.OSD, bool) {
	o := rollout.OSD{
		Key: w.Daemon, Name: w.Daemon, Host: w.Node, State: rollout.OutOfDate, Serves: true, ForGood: !w.Newer,
	}
	if at := f.location(w); at != nil || !rollout.IsMon(o.Name) { // a mon on a node of its own is in no failure domain
		f.plan.place(&o, at)
	}
	if o.Unit = o.Domain; rollout.IsMon(o.Name) {
		o.Unit = ""
	}
	switch away := f.nodes[w.Node]; {
	case away != "":
		f.plan.Warned = append(f.plan.Warned, fmt.Sprintf("%s stays: %s, and a drain takes it along", w.Daemon, away))
	case !w.Newer:
		f.plan.Superfluous = append(f.plan.Superfluous, w.Daemon)
	default:
		owner, _, _ := strings.Cut(w.Owner, "/")
		f.plan.outOfDate(fmt.Sprintf("its %s wants a newer pod", owner), w.Daemon)
		return o, true
	}
	return o, false
}

// location is where a daemon is, by CRUSH type: a mon where the OSDs beside it are.
func (f waitingSet) location(w kube.StorageWish) map[string]string {
	for _, pod := range f.pods {
		if pod.Node == w.Node && (pod.Name == w.Pod || rollout.IsMon(w.Daemon)) {
			return locationOf(f.policy, pod.Labels)
		}
	}
	return nil
}
