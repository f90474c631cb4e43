package workflows

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// ScaleDownNodeInput starts a scale-down, or goes on with it after continue-as-new. Only the node is required.
type ScaleDownNodeInput struct {
	Node string `json:"node"`
	// Policy is "namespace/name" of the MaintenancePolicy, or of several, with commas; by default of all whose daemons the
	// node hosts.
	Policy string `json:"policy,omitempty"`
	// Reason is shown to everybody who has to wait; by default how the node leaves.
	Reason string `json:"reason,omitempty"`
	// State is written by the run before, and not by people.
	State *ScaleDownState `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// SignalNodeLeaving says that the watcher saw the node leave. Takes how. A job that is about to end looks again.
const SignalNodeLeaving = "node-leaving"

// Outcomes of a scale-down beside Gone and Revoked.
const (
	OutcomeStayed  = string(leaving.Stayed)    // nothing announces any more that the node leaves
	OutcomeExpired = string(leaving.Forgotten) // the taint that announced it is so old that it was forgotten
)

// ScaleDownNodeResult is how a scale-down ended.
type ScaleDownNodeResult struct {
	Outcome string `json:"outcome"`
	// Turns is how often the lease went back to others because the node stayed as it was while it was open.
	Turns  int           `json:"turns,omitempty"`
	Took   time.Duration `json:"took"`
	Waited time.Duration `json:"waitedForLease"`
	AttachedByHand
}

// ScaleDownNode sees a node through its removal by an autoscaler, or by whoever else announced that it leaves. It
// waits for the lease of each storage cluster with daemons on the node; as soon as it has all, the keepers open the
// node, and it can be emptied. The job itself neither cordons nor evicts: whoever removes the node does. It gives the
// leases back when the node is gone, when nothing announces any more that it leaves, or when the taint that did was
// forgotten. A node that comes back under the same name is another one.
//
// A node that nobody empties gives its turn to those who wait, after the time that the policy says, and queues
// again. `pause` closes the node, or leaves the queue, until `resume`; `abort` ends the job.
//
//	temporal workflow start --type ScaleDownNode --task-queue lockkeeper --workflow-id scale-down/node-a --input '{"node":"node-a"}'
func ScaleDownNode(ctx workflow.Context, in ScaleDownNodeInput) (ScaleDownNodeResult, error) {
	s := &scaleDown{in: in}
	if in.State != nil {
		s.state = *in.State
	}
	s.job = newJob(ctx, scaleDownPhases, s.state.JobState)
	serve(ctx, SignalNodeLeaving, nil, func() { s.job.changed = true })
	err := runJob(ctx, s.job, s)
	s.state.Result.Took = workflow.Now(ctx).Sub(s.job.Started)
	return s.state.Result, err
}

// ScaleDownState is what a scale-down hands on to its next run.
type ScaleDownState struct {
	JobState
	Target activities.Target   `json:"target"`
	UID    string              `json:"uid,omitempty"` // of the node that leaves
	Sight  leaving.Sight       `json:"sight,omitzero"`
	Asked  time.Time           `json:"asked,omitzero"`  // since when the leases are waited for
	Began  bool                `json:"began,omitempty"` // the leases were granted once
	Result ScaleDownNodeResult `json:"result"`
}

type scaleDown struct {
	in    ScaleDownNodeInput
	job   *job
	state ScaleDownState
	// unguarded: nothing on the node is looked after any more.
	unguarded bool
}

var scalingDown *activities.ScaleDown

// PhaseRemoval is the phase of a scale-down in which the node is open.
const PhaseRemoval = "AwaitingRemoval"

var scaleDownPhases = []string{PhaseResolve, PhaseLease, PhaseRemoval, PhaseHeal}

// ScaleDownStatus answers the query "status".
type ScaleDownStatus struct {
	JobStatus
	Target activities.Target `json:"target"`
	Sight  leaving.Sight     `json:"sight"`
	Reason string            `json:"reason,omitempty"`
	// Warning is what people have to know beside what the job waits for: the autoscaler's deadline comes near.
	Warning string `json:"warning,omitempty"`
	Token   int64  `json:"token,omitempty"`
	// Leases are those of several storage clusters; none if there is only one.
	Leases []LeaseStanding     `json:"leases,omitempty"`
	Result ScaleDownNodeResult `json:"result"`
}

func (s *scaleDown) status() any {
	token, leases := standing(s.state.Target, s.claims())
	return ScaleDownStatus{
		JobStatus: s.job.JobStatus, Target: s.state.Target, Sight: s.state.Sight, Reason: s.in.Reason,
		Warning: s.job.warning, Token: token, Leases: leases, Result: s.state.Result,
	}
}

func (s *scaleDown) outcome() *string { return &s.state.Result.Outcome }

func (s *scaleDown) again(ctx workflow.Context, state JobState) error {
	s.state.JobState = state
	s.in.State = &s.state
	return workflow.NewContinueAsNewError(ctx, ScaleDownNode, s.in)
}

// UnmarshalJSON decodes an input strictly.
func (in *ScaleDownNodeInput) UnmarshalJSON(data []byte) error {
	type plain ScaleDownNodeInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = ScaleDownNodeInput(p)
	return nil
}

// UnmarshalJSON passes over fields that it does not know: the run before may have been of another version.
func (s *ScaleDownState) UnmarshalJSON(data []byte) error {
	type plain ScaleDownState
	return json.Unmarshal(data, (*plain)(s))
}

func (s *scaleDown) validate(ctx workflow.Context) error {
	in := &s.in
	if in.invalid != nil {
		return refuse(in.invalid)
	}
	in.Node = strings.TrimSpace(in.Node)
	_, policy := input.PolicyKeys("policy", in.Policy)
	return first([]*input.Error{
		input.NodeName("node", in.Node), input.Text("reason", in.Reason), policy,
		theOne(ctx, jobs.ScaleDownNode.ID(in.Node), "there is one scale-down of a node at a time, under this ID"),
	})
}

func (s *scaleDown) run(ctx workflow.Context) error {
	ctx, stop := workflow.WithCancel(ctx)
	defer stop() // of the watch over the node
	if err := s.look(ctx); err != nil {
		return err
	}
	workflow.Go(ctx, s.follow)
	for {
		err := s.round(ctx)
		switch {
		case errors.Is(err, errLost): // queue again, unless the node leaves no longer
		case err != nil || s.unguarded || !s.leavesAgain(ctx):
			return err
		default: // it was announced once more while the storage became whole
			s.state.UID = s.state.Sight.UID
		}
	}
}

// look finds out how the node is. A run that goes on with its claims knows, and learns from the watch what has changed.
func (s *scaleDown) look(ctx workflow.Context) error {
	if slices.ContainsFunc(s.job.claims, func(c *claimant) bool { return c.Stage != claimFree }) {
		return nil
	}
	s.job.enter(ctx, PhaseResolve)
	if err := letSignalsIn(ctx); err != nil {
		return err
	}
	s.job.changed = false // whatever was reported before is seen now
	n, err := perform(persistent(ctx, "look at "+s.in.Node), s.job, draining.LookAtNode, s.in.Node)
	if err != nil {
		return err
	}
	s.state.Sight, s.state.UID = n.Sight(), n.UID
	return nil
}

// longestTimer is after which a timer is set anew: what is written on a node may name any time.
const longestTimer = 24 * time.Hour

// follow keeps what the job knows of the node up to date, and has the job look at the clock when time alone changes
// something.
func (s *scaleDown) follow(ctx workflow.Context) {
	var change workflow.Future
	for {
		s.job.warn(ctx, s.state.Sight.Warning(workflow.Now(ctx)))
		if change == nil {
			change = begin(watching(ctx, "watch "+s.in.Node), scalingDown.AwaitSigns,
				activities.AwaitSignsInput{Node: s.in.Node, Last: s.state.Sight})
		}
		if err := s.awaitChange(ctx, change); err != nil {
			return // the job ends, or its history is full
		}
		if !change.IsReady() {
			continue
		}
		var seen leaving.Sight
		if err := change.Get(ctx, &seen); err != nil {
			return
		}
		s.state.Sight, change = seen, nil
	}
}

// awaitChange waits until the node has changed, or until time has changed what it means.
func (s *scaleDown) awaitChange(ctx workflow.Context, change workflow.Future) error {
	now := workflow.Now(ctx)
	next := s.state.Sight.Next(now, s.expiry())
	if next.IsZero() {
		return s.job.await(ctx, change.IsReady)
	}
	_, err := s.job.awaitAtMost(ctx, min(next.Sub(now), longestTimer), "what announces the removal changes with time",
		change.IsReady)
	return err
}

// expiry is the age from which the removal taint does not count: the longest that a policy has.
func (s *scaleDown) expiry() (most time.Duration) {
	if s.state.Target.Node == "" {
		return 0
	}
	for _, on := range s.state.Target.Storage() {
		most = max(most, on.TaintExpiry)
	}
	return most
}

// fate is what has become of the node that leaves.
func (s *scaleDown) fate(ctx workflow.Context) leaving.Outcome {
	return s.state.Sight.Judge(s.state.UID, workflow.Now(ctx), s.expiry())
}

func (s *scaleDown) over(ctx workflow.Context) bool { return s.fate(ctx) != leaving.StillLeaving }

// leavesAgain tells whether whatever node has the name now is leaving.
func (s *scaleDown) leavesAgain(ctx workflow.Context) bool {
	return s.state.Sight.Judge("", workflow.Now(ctx), s.expiry()) == leaving.StillLeaving
}

// round takes the node through the leases once. It returns errLost when the job has none any more and the node may
// still be leaving.
func (s *scaleDown) round(ctx workflow.Context) error {
	if err := s.whilePaused(ctx); err != nil {
		return err
	}
	begun := slices.ContainsFunc(s.job.claims, func(c *claimant) bool { return c.Stage != claimFree })
	if !begun {
		if s.over(ctx) {
			if s.state.Result.Outcome == "" { // or it was announced to a job that had ended
				s.conclude(ctx)
			}
			return nil
		}
		s.state.Result.Outcome = ""
		if err := s.resolve(ctx); err != nil || s.unguarded {
			return err
		}
	}
	if s.state.Asked.IsZero() {
		s.state.Asked = workflow.Now(ctx)
	}
	var requests []request
	for _, on := range s.state.Target.Storage() {
		requests = append(requests, request{
			of: s.job.claimOn(on.Cluster), want: s.wanted(ctx, on),
			unless: func() bool { return s.job.Paused || s.over(ctx) },
			// A node that leaves again needs its turn again, and its storage will not be whole before it is gone.
			hurry: func() bool { return s.leavesAgain(ctx) },
		})
	}
	return s.job.underLease(ctx, requests, s.work)
}

// whilePaused waits for `resume`, without a claim; or for the node to leave no longer, which ends the job.
func (s *scaleDown) whilePaused(ctx workflow.Context) error {
	if !s.job.Paused || slices.ContainsFunc(s.job.claims, (*claimant).finished) {
		return nil
	}
	s.job.enter(ctx, PhaseResolve)
	s.job.waitFor(ctx, pausedWait)
	return s.job.await(ctx, func() bool { return !s.job.Paused || s.over(ctx) })
}

// resolve finds the storage on the node. A node that has lost it in the meantime has nothing that could be guarded.
func (s *scaleDown) resolve(ctx workflow.Context) error {
	s.job.enter(ctx, PhaseResolve)
	in := activities.ResolveInput{Node: s.in.Node, Again: s.state.Began}
	if keys, _ := input.PolicyKeys("policy", s.in.Policy); len(keys) > 0 {
		in.Cluster, in.More = keys[0], keys[1:]
	}
	target, err := perform(persistent(ctx, "find the storage on "+s.in.Node), s.job, draining.ResolveNode, in)
	switch {
	case isType(err, activities.InvalidInput) && s.state.Began:
		s.state.Result.Outcome, s.unguarded = OutcomeRevoked, true
		return nil
	case err != nil:
		return err
	case target.UID != s.state.UID:
		// The watch will tell: the node that left is gone.
		s.job.waitFor(ctx, "the news that "+s.in.Node+" was replaced")
		if err := s.job.await(ctx, func() bool { return s.over(ctx) }); err != nil {
			return err
		}
		return errLost
	}
	s.state.Target = target
	return s.job.detachByHand(ctx, target, &s.state.Result.AttachedByHand)
}

// wanted is what the job claims in one storage cluster. It asks for no flag: nobody comes back to what that would
// preserve.
func (s *scaleDown) wanted(ctx workflow.Context, on activities.Hosted) lease.Claim {
	reason := s.in.Reason
	if reason == "" {
		reason = s.in.Node + " is " + string(s.state.Sight.How(workflow.Now(ctx), s.expiry()))
	}
	return lease.Claim{
		Domain: on.Domain, Node: s.in.Node, Reason: reason, Priority: jobs.ScaleDownNode.Priority,
		Turn: lease.TurnOf(on.Turn, s.state.Result.Turns),
	}
}

// claims are those of the storage clusters that have daemons on the node; none before it was looked at.
func (s *scaleDown) claims() (out []*claimant) {
	if s.state.Target.Node == "" {
		return nil
	}
	for _, on := range s.state.Target.Storage() {
		out = append(out, s.job.claimOn(on.Cluster))
	}
	return out
}

func (s *scaleDown) anyClaim(is func(*claimant) bool) bool {
	return slices.ContainsFunc(s.claims(), is)
}

// work waits until the node is gone or stays. It begins with the leases, or without them if that is so already, or if
// somebody pauses the job.
func (s *scaleDown) work(ctx workflow.Context) error {
	lacks := func(c *claimant) bool { return !c.held() }
	if !s.anyClaim(lacks) {
		if err := s.awaitRemoval(ctx); err != nil {
			return err
		}
	}
	if s.job.Paused && !s.over(ctx) {
		for _, c := range s.claims() {
			c.release(ctx) // the node closes, or its place in the queue is free
		}
		return errLost
	}
	s.conclude(ctx)
	return nil
}

// awaitRemoval waits while the node is open.
func (s *scaleDown) awaitRemoval(ctx workflow.Context) error {
	s.job.enter(ctx, PhaseRemoval)
	if !s.state.Asked.IsZero() {
		s.state.Began = true
		s.state.Result.Waited += workflow.Now(ctx).Sub(s.state.Asked)
		s.state.Asked = time.Time{}
	}
	s.job.waitFor(ctx, s.in.Node+" to be deleted, or nothing to announce any more that it leaves")
	lost := func(c *claimant) bool { return c.Stage == claimFree }
	err := s.job.await(ctx, func() bool {
		s.job.listen() // the keeper may take the lease back
		return s.job.Paused || s.over(ctx) || s.anyClaim(lost)
	})
	if err == nil && !s.over(ctx) && s.anyClaim(lost) {
		s.state.Result.Turns++
		return errLost
	}
	return err
}

// conclude notes what has become of the node. What was not granted is not needed any more.
func (s *scaleDown) conclude(ctx workflow.Context) {
	fate := s.fate(ctx)
	s.state.Result.Outcome, s.state.Asked = string(fate), time.Time{}
	for _, c := range s.claims() {
		if c.NodeGone = fate == leaving.Went; !c.held() {
			c.release(ctx)
		}
	}
}

// cleanUp has nothing to undo: the job changes nothing but its claims, which are given back after it.
func (s *scaleDown) cleanUp(workflow.Context) {}
