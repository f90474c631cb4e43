package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/windows"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// RolloutPlan is what a rollout would do, batch by batch, as of now and if everything goes well. It is found out from
// Kubernetes, and from what the keeper says; nothing is changed, and Ceph is not asked.
type RolloutPlan struct {
	At     time.Time `json:"at"`
	Job    string    `json:"job"`
	Of     string    `json:"of"` // "CephOSD ceph/osds, generation 3", or which Deployments
	Policy string    `json:"policy,omitempty"`
	// FailureDomainType is what the lease is taken for; "" when it is not known.
	FailureDomainType string          `json:"failureDomainType,omitempty"`
	UpdateDomain      string          `json:"updateDomain"`
	MaxParallel       int             `json:"maxParallel,omitempty"`
	Approval          bool            `json:"approval,omitempty"`  // of the canary
	CanarySoak        metav1.Duration `json:"canarySoak,omitzero"` // how long the canary has to serve
	PauseBetween      metav1.Duration `json:"pauseBetween,omitzero"`
	ProgressDeadline  metav1.Duration `json:"progressDeadline"`
	Windows           []PlannedWindow `json:"windows,omitempty"` // the next ones; none: a batch may begin at any time
	Counts            rollout.Counts  `json:"counts"`
	Steps             []rollout.Step  `json:"steps"`
	HeldBack          []string        `json:"heldBack,omitempty"` // what keeps the first batch from beginning
	Refused           []string        `json:"refused,omitempty"`  // what makes no sense: then nothing is touched
	Warned            []string        `json:"warned,omitempty"`   // what makes no sense, and concerns some OSDs only
	OutOfDate         []OutOfDate     `json:"outOfDate,omitempty"`
	Discarded         []string        `json:"discarded,omitempty"` // pods that go without further ado, and why
	Superfluous       []string        `json:"superfluous,omitempty"`
	Foreign           []string        `json:"foreign,omitempty"`
	Running           *Rollout        `json:"running,omitempty"`
	Now               *KeeperNow      `json:"now,omitempty"`
	Unknown           []string        `json:"unknown,omitempty"`
}

// OutOfDate are OSDs that are to be replaced for the same reason.
type OutOfDate struct {
	Why  string   `json:"why"`
	OSDs []string `json:"osds"`
}

// PlannedWindow is a time in which a batch may begin.
type PlannedWindow struct {
	Opens  time.Time `json:"opens"`           // the moment of the plan: it is open
	Closes time.Time `json:"closes,omitzero"` // zero: never
}

// KeeperNow is what stands before the first batch now.
type KeeperNow struct {
	MayDrain string   `json:"mayDrain"`
	Message  string   `json:"message"`
	Holders  []string `json:"holders,omitempty"`
	// Waits says how long each batch waits for reports of OSDs; "": not known.
	Waits string `json:"waits,omitempty"`
}

func (p *RolloutPlan) unknown(what string, err error) {
	p.Unknown = append(p.Unknown, what+": "+err.Error())
}

// PlanUpdate finds out what the rollout of a CephOSD would do.
func (c *Command) PlanUpdate(ctx context.Context, cephOSD string) (RolloutPlan, error) {
	key, refused := input.PolicyKey("CEPHOSD", cephOSD)
	if refused != nil {
		return RolloutPlan{}, &ExitError{
			ExitUsage,
			wrong("CEPHOSD", cephOSD, "must be NAMESPACE/NAME of a CephOSD, or a name together with --namespace"),
		}
	}
	set, err := c.Kubernetes.CephOSD(ctx, key.Namespace, key.Name)
	if errors.Is(err, activities.ErrNotFound) {
		return RolloutPlan{}, wrong("CEPHOSD", cephOSD, "no such CephOSD; `kubectl get cephosds -A` lists them")
	} else if err != nil {
		return RolloutPlan{}, fmt.Errorf("CephOSD %s: %w", cephOSD, err)
	}
	p := RolloutPlan{
		At: c.Now(), Job: jobs.UpdateOSDs.ID(key.Namespace, key.Name),
		Of:           fmt.Sprintf("CephOSD %s, generation %d, template %s", key, set.Generation, set.Hash),
		UpdateDomain: string(set.Domain()), MaxParallel: int(set.Spec.MaxParallel),
		ProgressDeadline: metav1.Duration{Duration: activities.DefaultProgressDeadline}, Steps: []rollout.Step{},
	}
	if d := set.Spec.ProgressDeadline; d != nil {
		p.ProgressDeadline = *d
	}
	if d := set.Spec.PauseBetween; d != nil {
		p.PauseBetween = *d
	}
	if canary := set.Spec.Canary; canary != nil {
		p.Approval = canary.Approval
		if canary.Soak != nil {
			p.CanarySoak = *canary.Soak
		}
	}
	if set.Spec.Paused {
		p.HeldBack = append(p.HeldBack, "spec.paused")
	}
	if opened, wrong := set.Windows(); wrong == nil {
		p.keepTo(opened)
	}
	pods, err := c.Kubernetes.CephOSDPods(ctx, key.Namespace, key.Name)
	if err != nil {
		return RolloutPlan{}, fmt.Errorf("list the pods of CephOSD %s: %w", cephOSD, err)
	}
	c.surroundings(ctx, &p, key.Namespace, set.Spec.Policy)
	c.mayRollOut(ctx, &p, activities.OSDSetCephOSD, key.Namespace)
	hosts, err := c.Kubernetes.Hosts(ctx)
	if err != nil {
		p.unknown("which nodes are in service", err)
	}
	desired, refusals := set.Desired()
	for _, r := range refusals {
		p.Refused = append(p.Refused, r.Error())
	}
	if hosts != nil {
		for _, host := range set.UnknownHosts(sets.KeySet(hosts)) {
			p.Warned = append(p.Warned, host.Error())
		}
	}
	osdSet := cephOSDSet{plan: &p, nodes: hosts, desired: desired, classified: set.Classify(desired, pods)}
	in := rollout.Input{
		OSDs: osdSet.osds(), DomainType: p.FailureDomainType, MaxParallel: p.MaxParallel,
		Canary: set.Spec.Canary != nil,
	}
	p.sort(osdSet.classified)
	if s := p.status(); s != nil {
		in.Skip, in.Canary = s.Skip, in.Canary && s.Canary.Template != set.Hash
	}
	p.decide(in)
	return p, nil
}

// PlanRestart finds out what a restart of OSDs would do.
func (c *Command) PlanRestart(ctx context.Context, in workflows.RestartOSDsInput) (RolloutPlan, error) {
	if err := checkRestart(in); err != nil {
		return RolloutPlan{}, &ExitError{ExitUsage, err}
	}
	p := RolloutPlan{
		At: c.Now(), Job: jobs.RestartOSDs.ID(in.Namespace),
		Of:           fmt.Sprintf("Deployments %s in namespace %s", cmp.Or(in.Selector, "of any labels"), in.Namespace),
		UpdateDomain: in.UpdateDomain, MaxParallel: in.MaxParallel,
		ProgressDeadline: metav1.Duration{Duration: cmp.Or(in.ProgressDeadline, activities.DefaultProgressDeadline)},
		Steps:            []rollout.Step{},
	}
	list, err := c.Kubernetes.Deployments(ctx, in.Namespace, in.Selector)
	if err != nil {
		return RolloutPlan{}, fmt.Errorf("list the Deployments of namespace %s: %w", in.Namespace, err)
	}
	policy := c.surroundings(ctx, &p, in.Namespace, in.Policy)
	c.mayRollOut(ctx, &p, activities.OSDSetDeployments, in.Namespace)
	hosts, err := c.Kubernetes.Hosts(ctx)
	if err != nil {
		p.unknown("which nodes are in service", err)
	}
	if len(list) == 0 {
		p.Refused = append(p.Refused,
			wrong("--selector", in.Selector, "selects no Deployment in namespace "+in.Namespace).Error())
	}
	if policy == nil {
		policy = &v1alpha1.MaintenancePolicy{} // Rook's labels
	}
	osdSet := deploymentSet{plan: &p, nodes: hosts, policy: policy, list: list, image: in.Image}
	plan := rollout.Input{OSDs: osdSet.osds(), DomainType: p.FailureDomainType, MaxParallel: p.MaxParallel}
	if in.Image != "" {
		p.Of += ", to the image " + in.Image
		plan.Canary = !slices.ContainsFunc(plan.OSDs, func(o rollout.OSD) bool { return o.State == rollout.UpToDate })
		p.Unknown = append(p.Unknown,
			"whether the storage cluster takes this version of Ceph: it is asked before the first batch")
	}
	p.decide(plan)
	return p, nil
}

// decide lists the steps, as the rollout itself would decide them one after the other.
func (p *RolloutPlan) decide(in rollout.Input) {
	p.Counts = rollout.Count(in)
	if len(p.Refused) == 0 {
		p.Steps = append(p.Steps, rollout.Batches(in)...)
	}
}

func (p *RolloutPlan) status() *workflows.UpdateStatus {
	if p.Running == nil {
		return nil
	}
	return p.Running.Status
}

// surroundings finds the policy, the type of its failure domains, what the keeper says, and whether the job runs
// already.
func (c *Command) surroundings(
	ctx context.Context, p *RolloutPlan, namespace, name string,
) *v1alpha1.MaintenancePolicy {
	switch r, err := lookUp[Rollout](ctx, c.Temporal, p.Job); {
	case err == nil && r.State == Running:
		p.Running = &r
	case err != nil && !errors.Is(err, ErrNoJob):
		p.unknown("whether "+p.Job+" runs already", err)
	}
	policies, err := c.Kubernetes.MaintenancePolicies(ctx, namespace)
	if err != nil {
		p.unknown("the policy", err)
		return nil
	}
	var names []string
	for i := range policies {
		names = append(names, policies[i].Name)
	}
	field := "spec.policy"
	if _, target, _ := jobs.Parse(p.Job); target.Name == "" {
		field = "--policy"
	}
	chosen, refused := input.PolicyOf(field, namespace, name, names)
	if refused != nil {
		p.Refused = append(p.Refused, refused.Error())
		return nil
	}
	policy := &policies[slices.Index(names, chosen)]
	key := storage.ClusterKey{Namespace: policy.Namespace, Name: policy.Name}
	p.Policy, p.FailureDomainType = key.String(), policy.Status.Storage.FailureDomainType
	k, err := c.Temporal.Keeper(ctx, key)
	if err != nil {
		p.unknown(keeperNow, err)
		return policy
	}
	p.FailureDomainType = cmp.Or(k.View.FailureDomainType, p.FailureDomainType)
	p.Now = &KeeperNow{MayDrain: workflows.MayDrain(k.Decision), Message: k.Decision.Message}
	p.Now.Waits = describeWait(&k, policy.Spec.Ceph != nil && policy.Spec.Ceph.FlushPGStats)
	if d := k.View.Disconnected; d != nil && d.Certain() > 0 {
		p.Warned = append(p.Warned,
			"OSDs without a session with any monitor go before all others, those of a failure domain together")
	}
	for _, h := range k.Lease.Holders {
		p.Now.Holders = append(p.Now.Holders,
			fmt.Sprintf("%s holds %s since %s: %s", h.WorkflowID, h.Domain, when(h.Granted, p.At), h.Reason))
	}
	return policy
}

// sort says why OSDs are to be replaced, by reason, and which pods go at once.
func (p *RolloutPlan) sort(c podspec.Classified) {
	for _, pod := range c.OutOfDate {
		p.outOfDate(pod.Why, calledBy(pod))
	}
	for _, pod := range c.Invalid {
		if pod.Serving {
			p.outOfDate(pod.Why, calledBy(pod))
		} else {
			p.Discarded = append(p.Discarded, fmt.Sprintf("%s (%s)", pod.Name, pod.Why))
		}
	}
}

// outOfDate notes an OSD beside those that are to be replaced for the same reason.
func (p *RolloutPlan) outOfDate(why, osd string) {
	i := slices.IndexFunc(p.OutOfDate, func(o OutOfDate) bool { return o.Why == why })
	if i < 0 {
		i, p.OutOfDate = len(p.OutOfDate), append(p.OutOfDate, OutOfDate{Why: why})
	}
	p.OutOfDate[i].OSDs = append(p.OutOfDate[i].OSDs, osd)
}

// calledBy is what people call the OSD of a pod.
func calledBy(pod podspec.Pod) string {
	if k := podspec.Known(pod.Pod); k.ID != nil {
		return fmt.Sprintf("osd.%d", *k.ID)
	}
	return pod.OSD.Key()
}

// keepTo says which windows hold the first batch back, and when the next ones are.
func (p *RolloutPlan) keepTo(opened []windows.Window) {
	if open, change := windows.Open(opened, p.At); !open && change.IsZero() {
		p.HeldBack = append(p.HeldBack, "no maintenance window will ever open")
	} else if !open {
		p.HeldBack = append(p.HeldBack, "the maintenance window opens at "+when(change, p.At))
	}
	p.Windows = nextWindows(opened, p.At)
}

// mostWindows is how many are told.
const mostWindows = 3

// nextWindows are the one that is open, and those that come.
func nextWindows(all []windows.Window, now time.Time) (next []PlannedWindow) {
	if len(all) == 0 {
		return nil
	}
	for opens := now; len(next) < mostWindows; {
		open, change := windows.Open(all, opens)
		if open {
			next = append(next, PlannedWindow{Opens: opens, Closes: change})
		}
		if change.IsZero() {
			return next
		}
		opens = change
	}
	return next
}

// place fills in where an OSD is, as labels tell it by CRUSH type, and with which others it may be replaced.
func (p *RolloutPlan) place(o *rollout.OSD, location map[string]string) {
	switch p.FailureDomainType {
	case "":
	case failuredomain.OSDType:
		o.Domain = o.Name
	default:
		o.Domain = location[p.FailureDomainType]
	}
	if o.Domain == "" && o.Name != "" && p.FailureDomainType != "" {
		p.Unknown = appendOnce(p.Unknown,
			fmt.Sprintf("the %s of every OSD: %s has no label that tells it; Ceph does, when the rollout begins",
				p.FailureDomainType, o.Name))
	}
	o.Unit = rollout.UnitOf(p.UpdateDomain, p.MaxParallel, *o, location)
}

// appendOnce keeps what is said of thousands of OSDs to the first of them.
func appendOnce(all []string, s string) []string {
	subject, _, _ := strings.Cut(s, ":")
	for _, had := range all {
		if strings.HasPrefix(had, subject+":") {
			return all
		}
	}
	return append(all, s)
}
