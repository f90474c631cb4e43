package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/windows"
)

// Status is the state of all storage clusters, or of what concerns one node. Its field names are stable: scripts rely
// on them.
type Status struct {
	At       time.Time      `json:"at"`
	Node     *NodeStatus    `json:"node,omitempty"`
	Policies []PolicyStatus `json:"policies"`
	Drains   []Drain        `json:"drains"`           // those that run; of one node also the last one that has ended
	Fences   []Fence        `json:"fences,omitempty"` // likewise
	// ScaleDowns are those that run; when one is asked for, or its node, also the last one that has ended.
	ScaleDowns []ScaleDown `json:"scaleDowns,omitempty"`
	// Rollouts are those of OSDs that run; when one is asked for, also if it has ended.
	Rollouts []Rollout `json:"rollouts"`
	// Migrations are those of mons that run; when one is asked for, also if it has ended.
	Migrations []Migration `json:"migrations,omitempty"`
	// CephOSD is the one whose rollout was asked for, with what the rollout last wrote into its status.
	CephOSD *CephOSDStatus `json:"cephOSD,omitempty"`
	// Problems say what else could not be found out.
	Problems []string `json:"problems,omitempty"`
	// TemporalProblem says why drains and rollouts are not known; the policies are as their keepers last reported them.
	TemporalProblem string `json:"temporalProblem,omitempty"`
	// detailed: one rollout is what the question was about.
	detailed bool
	// asked is its ID, and unknown why nothing is known of its runs.
	asked, unknown string
}

// CephOSDStatus is a CephOSD and what its rollout last wrote into its status.
type CephOSDStatus struct {
	Namespace                  string `json:"namespace"`
	Name                       string `json:"name"`
	Generation                 int64  `json:"generation"`
	cephv1alpha1.CephOSDStatus `json:",inline"`
}

// NodeStatus is the node that was asked for.
type NodeStatus struct {
	Name string `json:"name"`
	activities.NodeState
	// Unguarded says why no policy cares for it.
	Unguarded string `json:"unguarded,omitempty"`
}

// PolicyStatus is a MaintenancePolicy and what its keeper reported.
type PolicyStatus struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Deleting   bool   `json:"deleting,omitempty"`
	// when the keeper decides anew though nothing happens
	NextTimer                        time.Time `json:"nextTimer,omitzero"`
	Trouble                          string    `json:"trouble,omitempty"` // what the keeper could not do, and tries again
	v1alpha1.MaintenancePolicyStatus `json:",inline"`
	// Wishes are the OSDs and mons that a controller wants gone, and that wait where deletions are guarded.
	Wishes []kube.StorageWish `json:"wishes,omitempty"`
	// DrivenOff are those that a taint of their node is to drive off, and that wait there, too.
	DrivenOff []kube.DrivenDaemon `json:"drivenOff,omitempty"`
	// Restarts is what becomes of them.
	Restarts v1alpha1.RestartMode `json:"restarts,omitempty"`
	// RestartsFrom is when the next window opens in which they may go; zero: one is open.
	RestartsFrom time.Time `json:"restartsFrom,omitzero"`
	// RestartsNever says why none will ever open.
	RestartsNever string `json:"restartsNever,omitempty"`
	// NotKept says why nobody keeps the rest up to date, if that is known.
	NotKept string `json:"notKept,omitempty"`
	asked   time.Time
}

// oldAfter is the age from which on a status counts as one that nobody keeps: the keeper confirms it every five
// minutes.
const oldAfter = 6 * time.Minute

// Status gathers the state of the policies of a namespace ("": of all, as far as they may be read) and of all drains.
func (c *Command) Status(ctx context.Context, namespace string) (Status, error) {
	policies, err := c.Kubernetes.MaintenancePolicies(ctx, namespace)
	if err != nil {
		if apierrors.IsForbidden(err) && namespace == "" {
			return Status{}, fmt.Errorf("list the policies of all namespaces: %w\nname one with --namespace", err)
		}
		return Status{}, fmt.Errorf("list the policies: %w", err)
	}
	s := Status{At: c.Now(), Policies: []PolicyStatus{}, Drains: []Drain{}, Rollouts: []Rollout{}}
	for i := range policies {
		s.Policies = append(s.Policies, policyStatus(&policies[i], s.At))
		c.wishes(ctx, &s, &policies[i])
	}
	running, err := c.Temporal.Running(ctx)
	if err != nil {
		s.TemporalProblem = err.Error()
		s.notKept("Temporal does not answer")
		return s, nil //nolint:nilerr // the problem is part of the answer
	}
	for _, job := range running {
		switch job := job.(type) {
		case Drain:
			if s.concerns(job) {
				s.Drains = append(s.Drains, job)
			}
		case Fence:
			s.Fences = append(s.Fences, job)
		case ScaleDown:
			s.ScaleDowns = append(s.ScaleDowns, job)
		case Rollout:
			if _, target, _ := jobs.Parse(job.WorkflowID); namespace == "" || target.Namespace == namespace {
				s.Rollouts = append(s.Rollouts, job)
			}
		case Migration:
			if _, target, _ := jobs.Parse(job.WorkflowID); namespace == "" || target.Namespace == namespace {
				s.Migrations = append(s.Migrations, job)
			}
		}
	}
	c.askKeepers(ctx, &s)
	return s, nil
}

// JobStatus gathers what concerns one job: its node, or the rollout.
func (c *Command) JobStatus(ctx context.Context, id string) (Status, error) {
	if _, target, _ := jobs.Parse(id); target.Node != "" {
		return c.NodeStatus(ctx, target.Node)
	}
	if j, _, _ := jobs.Parse(id); j == jobs.MigrateMons {
		return c.MigrationStatus(ctx, id)
	}
	return c.RolloutStatus(ctx, id)
}

// MigrationStatus gathers what concerns the mons of one CephMon: its job, and the policies of its namespace.
func (c *Command) MigrationStatus(ctx context.Context, id string) (Status, error) {
	_, target, _ := jobs.Parse(id)
	s, err := c.Status(ctx, target.Namespace)
	if err != nil {
		return Status{}, err
	}
	s.Drains, s.Rollouts, s.Migrations = []Drain{}, []Rollout{}, nil
	m, err := lookUp[Migration](ctx, c.Temporal, id)
	switch {
	case err == nil:
		s.Migrations = append(s.Migrations, m)
	case errors.Is(err, ErrNoJob):
		return Status{}, fmt.Errorf("%s: Temporal knows no run of it: it never ran, or it ended longer ago than Temporal "+
			"remembers; `kubectl -n %s get cephmon %s` tells how its mons are", id, target.Namespace, target.Name)
	default:
		s.TemporalProblem = err.Error()
	}
	return s, nil
}

// RolloutStatus gathers what concerns one rollout: how it is, what its CephOSD's status says, and the policies of its
// namespace. Temporal forgets what has ended; the CephOSD does not.
func (c *Command) RolloutStatus(ctx context.Context, id string) (Status, error) {
	s := Status{
		At: c.Now(), Policies: []PolicyStatus{}, Drains: []Drain{}, Rollouts: []Rollout{},
		detailed: true, asked: id,
	}
	_, target, _ := jobs.Parse(id)
	namespace, name := target.Namespace, target.Name
	r, err := lookUp[Rollout](ctx, c.Temporal, id)
	switch {
	case err == nil:
		s.Rollouts = append(s.Rollouts, r)
	case errors.Is(err, ErrNoJob):
		s.unknown = "Temporal knows no run of it: it never ran, or it ended longer ago than Temporal remembers"
	default:
		s.TemporalProblem, s.unknown = err.Error(), "nothing is known of its runs, since Temporal did not say"
	}
	if (name == "" || strings.HasPrefix(id, jobs.RestartWaiting.Prefix)) && errors.Is(err, ErrNoJob) {
		return Status{}, fmt.Errorf("%s: %s", id, s.unknown)
	}
	if name != "" && !strings.HasPrefix(id, jobs.RestartWaiting.Prefix) {
		set, err := c.Kubernetes.CephOSD(ctx, namespace, name)
		switch {
		case err == nil:
			s.CephOSD = &CephOSDStatus{Namespace: namespace, Name: name, Generation: set.Generation, CephOSDStatus: set.Status}
		case !errors.Is(err, activities.ErrNotFound):
			s.Problems = append(s.Problems, fmt.Sprintf("what the status of CephOSD %s/%s says: %v", namespace, name, err))
		case len(s.Rollouts) == 0 && s.TemporalProblem == "":
			return Status{}, wrong("JOB", id, "no such CephOSD, and no rollout of it; `kubectl get cephosds -A` lists them")
		}
	}
	policies, err := c.Kubernetes.MaintenancePolicies(ctx, namespace)
	if err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("the policies of namespace %s: %v", namespace, err))
	}
	for i := range policies {
		s.Policies = append(s.Policies, policyStatus(&policies[i], s.At))
	}
	if s.TemporalProblem == "" {
		c.askKeepers(ctx, &s)
	}
	return s, nil
}

// NodeStatus gathers what concerns one node: its policies and its jobs.
func (c *Command) NodeStatus(ctx context.Context, node string) (Status, error) {
	n, err := c.Kubernetes.Node(ctx, node)
	if err != nil {
		return Status{}, fmt.Errorf("node %s: %w", node, err)
	}
	s := Status{
		At: c.Now(), Node: &NodeStatus{Name: node, NodeState: n}, Policies: []PolicyStatus{}, Drains: []Drain{},
		Rollouts: []Rollout{},
	}
	job, err := lookUp[Drain](ctx, c.Temporal, jobs.DrainNode.ID(node))
	switch {
	case err == nil:
		s.Drains = append(s.Drains, job)
	case !errors.Is(err, ErrNoJob):
		s.TemporalProblem = err.Error()
	}
	if fence, err := lookUp[Fence](ctx, c.Temporal, jobs.FenceNode.ID(node)); err == nil {
		s.Fences = append(s.Fences, fence)
	}
	if down, err := lookUp[ScaleDown](ctx, c.Temporal, jobs.ScaleDownNode.ID(node)); err == nil {
		s.ScaleDowns = append(s.ScaleDowns, down)
	}
	if !n.Found && len(s.Drains)+len(s.Fences)+len(s.ScaleDowns) == 0 && s.TemporalProblem == "" {
		return s, wrong("node", node, "no such node, and no job of it; `kubectl get nodes` lists them")
	}
	keys, answer, err := c.Kubernetes.PoliciesOf(ctx, node)
	if err != nil {
		return s, fmt.Errorf("find the storage on %s: %w", node, err)
	}
	if !answer.OK {
		s.Node.Unguarded = answer.Reason
		return s, nil
	}
	for _, key := range keys {
		policy, err := c.Kubernetes.MaintenancePolicy(ctx, key)
		if err != nil {
			return s, err
		}
		s.Policies = append(s.Policies, policyStatus(policy, s.At))
	}
	if s.TemporalProblem == "" {
		c.askKeepers(ctx, &s)
	}
	return s, nil
}

// wishes adds who wants pods of the policy gone. Who may not read that is told so, and the rest stands.
func (c *Command) wishes(ctx context.Context, s *Status, p *v1alpha1.MaintenancePolicy) {
	wishes, err := c.Kubernetes.StorageWishes(ctx, p)
	if err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("what waits to be restarted in %s/%s: %v", p.Namespace, p.Name, err))
		return
	}
	last := &s.Policies[len(s.Policies)-1]
	last.Wishes = wishes
	last.restarts(p)
	if last.DrivenOff, err = c.Kubernetes.DrivenOff(ctx, p); err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("what taints are to drive off in %s/%s: %v", p.Namespace, p.Name, err))
	}
}

// restarts says what becomes of what waits, and when.
func (p *PolicyStatus) restarts(of *v1alpha1.MaintenancePolicy) {
	p.Restarts = kube.RestartMode(of)
	if p.Restarts == v1alpha1.RestartsObserve {
		return
	}
	all, wrong := kube.RestartWindows(of)
	if wrong != nil {
		p.RestartsNever = wrong.Field + " makes no sense, says lockkeeper doctor"
		return
	}
	if open, change := windows.Open(all, p.asked); !open && change.IsZero() {
		p.RestartsNever = "none of spec.ceph.restartWindows will ever open"
	} else if !open {
		p.RestartsFrom = change
	}
}

func policyStatus(p *v1alpha1.MaintenancePolicy, at time.Time) PolicyStatus {
	out := PolicyStatus{
		Namespace: p.Namespace, Name: p.Name, Generation: p.Generation, Deleting: !p.DeletionTimestamp.IsZero(),
		MaintenancePolicyStatus: p.Status, asked: at,
	}
	if old := p.Status.AsOf; old != nil && at.Sub(old.Time) > oldAfter && !kube.Disowned(p.Status) {
		out.NotKept = "nobody has kept it since"
	}
	return out
}

// concerns tells whether a drain is about one of the policies. One that has not found its policy yet concerns all.
func (s Status) concerns(d Drain) bool {
	if d.Status == nil || d.Status.Target.Cluster.Name == "" {
		return true
	}
	return slices.ContainsFunc(s.Policies, func(p PolicyStatus) bool {
		key := storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}
		return slices.ContainsFunc(d.Status.Target.Storage(), func(on activities.Hosted) bool { return on.Cluster == key })
	})
}

// askKeepers adds what a policy's status does not say. A keeper that does not answer is a warning, no failure.
func (c *Command) askKeepers(ctx context.Context, s *Status) {
	for i := range s.Policies {
		p := &s.Policies[i]
		k, err := c.Temporal.Keeper(ctx, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name})
		if err != nil {
			p.Trouble = err.Error()
			if p.NotKept == "" && !kube.Disowned(p.MaintenancePolicyStatus) {
				p.NotKept = "the keeper does not answer"
			}
			continue
		}
		p.NextTimer, p.Trouble = k.NextTimer, k.Trouble
	}
}

// summary answers "may I drain?".
func (p PolicyStatus) summary() string {
	switch {
	case p.Deleting:
		return "being deleted"
	case p.MayDrain == "":
		return "unknown"
	case kube.Disowned(p.MaintenancePolicyStatus):
		return "unknown"
	case p.NotKept != "" && p.AsOf != nil && p.asked.Sub(p.AsOf.Time) > oldAfter:
		return "unknown"
	default:
		return p.MayDrain
	}
}

// why explains the summary.
func (p PolicyStatus) why() string {
	if p.MayDrain == "" {
		return "no keeper has reported yet: do `lockkeeper watch` and lockkeeper-worker run?"
	}
	if p.NotKept != "" && p.AsOf != nil {
		return fmt.Sprintf("as of %s: %s; then: %s: %s", when(p.AsOf.Time, p.asked), p.NotKept, p.MayDrain, p.Message)
	}
	return p.Message
}

// notKept notes why the policies' statuses may not be up to date, unless they say so themselves.
func (s *Status) notKept(why string) {
	for i := range s.Policies {
		if p := &s.Policies[i]; p.NotKept == "" && !kube.Disowned(p.MaintenancePolicyStatus) {
			p.NotKept = why
		}
	}
}
