package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// MonsRef names a CephMon.
type MonsRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r MonsRef) String() string { return r.Namespace + "/" + r.Name }

// MonMemory is what a job knows of the mons beyond what is in the cluster. It is written down before it is acted on.
type MonMemory struct {
	Mode monplan.Mode `json:"mode"`
	// Work is the step that is under way; nil: none.
	Work *monplan.Work `json:"work,omitempty"`
	// Failed are mons whose migration was rolled back because the newcomer did not join.
	Failed []string `json:"failed,omitempty"`
	// OutSince has the timers of the mons that are out of quorum.
	OutSince map[string]time.Time `json:"outSince,omitempty"`
	// NextID is the number of the next name; what the cluster knows of names that were given may raise it.
	NextID int `json:"nextID,omitempty"`
	// Known: the job has looked, so that what the status tells of a step is older than Work.
	Known bool `json:"known,omitempty"`
	// Ending: the job takes back what is under way, and begins nothing. What a status tells of a step that was about to
	// begin, the next job would take for one that somebody wants.
	Ending bool `json:"ending,omitempty"`
}

// MonSurvey is what was seen of the mons of a CephMon, and what comes next.
type MonSurvey struct {
	Found      bool               `json:"found"`
	Generation int64              `json:"generation,omitempty"`
	Cluster    storage.ClusterKey `json:"cluster"`
	// Refused says what is wrong with the spec. No step begins then.
	Refused  []input.Error `json:"refused,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
	Step     monplan.Step  `json:"step"`
	// OutSince, NextID and Work are the memory as of this look. Work is the step under way, as a status told of it when
	// the job did not know of any.
	OutSince map[string]time.Time `json:"outSince,omitempty"`
	NextID   int                  `json:"nextID,omitempty"`
	Work     *monplan.Work        `json:"work,omitempty"`
	Counts   MonCounts            `json:"counts"`
}

// MonCounts counts mons.
type MonCounts struct {
	Mons     int `json:"mons"` // in the monmap
	InQuorum int `json:"inQuorum"`
	AsSpec   int `json:"asSpec"`
	Wanted   int `json:"wanted"`
}

// same tells whether two surveys decide the same: the job need not hear of the second one. Why a step is done is said
// when it begins, and not any more when it is under way.
func (s MonSurvey) same(o MonSurvey) bool {
	a, b := s.Step, o.Step
	return s.Found == o.Found && s.Generation == o.Generation && slices.Equal(s.Refused, o.Refused) &&
		a.Verdict == b.Verdict && (a.Why == b.Why || a.Verdict == monplan.Move) &&
		a.Takes == b.Takes && first(a.Acts) == first(b.Acts) && sameWork(a.Work, b.Work)
}

// follows tells whether what comes next is of the same step, and only tells of what was done or clears up after it, so
// that it needs neither to be written down before nor another lease.
func (s MonSurvey) follows(o MonSurvey) bool {
	a, b := s.Step, o.Step
	return s.Found && s.Generation == o.Generation && a.Verdict == monplan.Move && !a.TakesOrAdds() &&
		(a.Takes == "" || a.Takes == b.Takes) && a.Work != nil && b.Work != nil && a.Work.Kind == b.Work.Kind &&
		a.Work.Newcomer == b.Work.Newcomer && a.Work.Old == b.Work.Old && a.Work.Undo == b.Work.Undo
}

// noted is what a job knows after a look at the step under way.
func (m MonMemory) noted(s MonSurvey) MonMemory {
	m.Work, m.OutSince, m.NextID = s.Step.Work, s.OutSince, max(m.NextID, s.NextID)
	return m
}

func first(acts []monplan.Act) monplan.Act {
	if len(acts) == 0 {
		return monplan.Act{}
	}
	return acts[0]
}

// sameWork compares what a job has written down. What else is in a Work every look finds out anew.
func sameWork(a, b *monplan.Work) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Newcomer == b.Newcomer && a.Old == b.Old && a.Undo == b.Undo && a.Joined == b.Joined &&
		a.Node == b.Node && a.Zone == b.Zone && slices.Equal(a.Avoid, b.Avoid)
}

// MonPlan is the whole course of a migration, as far as it can be foreseen.
type MonPlan struct {
	Survey MonSurvey      `json:"survey"`
	Mons   []PlannedMon   `json:"mons,omitempty"`
	Course []monplan.Step `json:"course,omitempty"`
	// Elsewhere is who else looks after these mons, so that none of it is done: "CephCluster rook-ceph".
	Elsewhere string `json:"elsewhere,omitempty"`
}

// PlannedMon is one mon as it is before a migration.
type PlannedMon struct {
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	Zone      string `json:"zone,omitempty"`
	Storage   string `json:"storage,omitempty"`
	InQuorum  bool   `json:"inQuorum"`
	Different string `json:"different,omitempty"` // why it is not as the spec says; "": it is
}

// Mons looks at mons and changes them.
type Mons interface {
	// Survey looks at the mons, has them prove by a commit which of them live, decides what comes next, and writes the
	// CephMon's status: names that were given, timers and the step are remembered there as well. A CephMon that is gone is
	// no error.
	Survey(ctx context.Context, ref MonsRef, m MonMemory) (MonSurvey, error)
	// Do carries out the first act of a step. An answer of no is a reason why nothing was done.
	Do(ctx context.Context, ref MonsRef, step monplan.Step) (storage.Answer, error)
	// Forget deletes what a step has made for a mon that was never started, of a CephMon that is gone.
	Forget(ctx context.Context, ref MonsRef, work monplan.Work) error
	// Plan foresees a migration. It changes nothing.
	Plan(ctx context.Context, ref MonsRef, mode monplan.Mode) (MonPlan, error)
	// Of names the CephMons of a policy.
	Of(ctx context.Context, cluster storage.ClusterKey) ([]MonsRef, error)
}

// Migrations tells jobs that move mons.
type Migrations interface {
	// TellMons has the job of a CephMon look, and starts it if it does not run.
	TellMons(ctx context.Context, ref MonsRef, reason string) error
}

// MonJob holds the activities of MigrateMons.
type MonJob struct {
	Mons     Mons
	Policies Policies
}

// MonSurveyInput asks what there is to do for the mons of a CephMon.
type MonSurveyInput struct {
	Ref    MonsRef   `json:"ref"`
	Memory MonMemory `json:"memory"`
}

// SurveyMons looks at the mons and says what comes next. It changes nothing but the CephMon's status.
func (j *MonJob) SurveyMons(ctx context.Context, in MonSurveyInput) (MonSurvey, error) {
	ctx, stop := busy(ctx)
	defer stop()
	s, err := j.Mons.Survey(ctx, in.Ref, in.Memory)
	if err != nil {
		return MonSurvey{}, Unavailable("look at the mons of "+in.Ref.String(), err)
	}
	return s, nil
}

// PlanMons foresees a migration. It changes nothing.
func (j *MonJob) PlanMons(ctx context.Context, in MonSurveyInput) (MonPlan, error) {
	ctx, stop := busy(ctx)
	defer stop()
	p, err := j.Mons.Plan(ctx, in.Ref, in.Memory.Mode)
	switch {
	case errors.Is(err, ErrNotFound):
		return MonPlan{}, Invalid("cephMon", in.Ref.String(), "no such CephMon; `kubectl get cephmons -A` lists them")
	case err != nil:
		return MonPlan{}, Unavailable("look at the mons of "+in.Ref.String(), err)
	}
	return p, nil
}

// MonStepInput is an act that a job has decided on and written down.
type MonStepInput struct {
	Ref    MonsRef   `json:"ref"`
	Memory MonMemory `json:"memory"`
	// Seen is the survey that decided. Its step has the first act.
	Seen MonSurvey `json:"seen"`
	// Grant is the lease under which it may be done, and WorkflowID and RunID whose that is; nil: it takes nothing away.
	Grant      *Grant `json:"grant,omitempty"`
	WorkflowID string `json:"workflowID,omitempty"`
	RunID      string `json:"runID,omitempty"`
	// AtMost is how long it is waited for what follows from the act; 0: for as long as it takes.
	AtMost time.Duration `json:"atMost,omitempty"`
}

// MonStepped is what became of an act, and what comes next.
type MonStepped struct {
	Survey MonSurvey `json:"survey"`
	// Refused is why nothing was done at last; "": it was done.
	Refused string `json:"refused,omitempty"`
	// Unstarted: it is known that no newcomer was started by it.
	Unstarted bool `json:"unstarted,omitempty"`
}

// Pauses between two looks while nothing changes: what follows from an act mostly takes a moment, and what does not
// may take days.
const (
	monPauseMin = 200 * time.Millisecond
	monPauseMax = 15 * time.Second
)

// longer is the pause after a pause. Whatever is waited for is seen late by an eighth of the wait at the most.
func longer(pause time.Duration) time.Duration { return min(pause*9/8, monPauseMax) }

// CarryOutMon does one act, and looks until something else comes next. What tells of it then, or clears up after it,
// it does as well. An act is done again at each look that asks for it, as after a crash: none does any harm by that,
// and some are of several requests.
func (j *MonJob) CarryOutMon(ctx context.Context, in MonStepInput) (MonStepped, error) {
	ctx, stop := busy(ctx)
	defer stop()
	began, started := time.Now(), activity.GetInfo(ctx).Attempt > 1 // what an attempt before has done nobody knows
	late := func() bool { return in.AtMost > 0 && time.Since(began) >= in.AtMost }
	for pause := monPauseMin; ; pause = longer(pause) {
		a, starts, err := j.act(ctx, in)
		if err != nil {
			return MonStepped{}, err
		}
		started = started || starts
		s, err := j.Mons.Survey(ctx, in.Ref, in.Memory)
		switch {
		case err != nil:
			return MonStepped{}, Unavailable(fmt.Sprintf("look at the mons after %s", first(in.Seen.Step.Acts)), err)
		case !a.OK:
			return MonStepped{Survey: s, Refused: a.Reason, Unstarted: !started}, nil
		case s.same(in.Seen) && !late():
			in.Memory.OutSince = s.OutSince
			if err := sleep(ctx, pause); err != nil {
				return MonStepped{}, err
			}
		case s.follows(in.Seen) && !late():
			in.Memory, in.Seen, pause = in.Memory.noted(s), s, monPauseMin
		default:
			return MonStepped{Survey: s, Unstarted: !started}, nil
		}
	}
}

// act carries out the first act of a step, and those after it that need no look between. An answer of no is why the
// first one was not carried out; what became of the others the next look says. starts: a newcomer may have been
// started.
func (j *MonJob) act(ctx context.Context, in MonStepInput) (a storage.Answer, starts bool, err error) {
	step := in.Seen.Step
	for i, act := range step.Together() {
		if err := j.holds(ctx, in); err != nil {
			return a, starts, err
		}
		step.Acts = in.Seen.Step.Acts[i:]
		did, err := j.Mons.Do(ctx, in.Ref, step)
		gone := errors.Is(err, ErrNotFound)
		if gone { // the CephMon was deleted meanwhile, before anything was done: the look says so
			did, err = storage.Answer{Reason: err.Error()}, nil
		}
		starts = starts || act.Do == monplan.Start && !gone
		if err != nil {
			return a, starts, Unavailable(act.String(), err)
		}
		if i == 0 {
			a = did
		}
		if !did.OK {
			break
		}
	}
	return a, starts, nil
}

// AwaitMons looks until something else comes next than what in.Seen says.
func (j *MonJob) AwaitMons(ctx context.Context, in MonStepInput) (MonSurvey, error) {
	ctx, stop := busy(ctx)
	defer stop()
	for pause := 5 * monPauseMin; ; pause = longer(pause) {
		if err := sleep(ctx, pause); err != nil {
			return MonSurvey{}, err
		}
		s, err := j.Mons.Survey(ctx, in.Ref, in.Memory)
		if err != nil {
			return MonSurvey{}, Unavailable("look at the mons of "+in.Ref.String(), err)
		}
		if !s.same(in.Seen) {
			return s, nil
		}
		in.Memory.OutSince = s.OutSince
	}
}

// ForgetMons deletes what a step has made, of a CephMon that is gone.
func (j *MonJob) ForgetMons(ctx context.Context, in MonSurveyInput) (struct{}, error) {
	if in.Memory.Work == nil {
		return struct{}{}, nil
	}
	return struct{}{}, unavailableUnlessNil("delete what is left of a step", j.Mons.Forget(ctx, in.Ref, *in.Memory.Work))
}

// holds makes sure that the lease is still the one under which the act was decided.
func (j *MonJob) holds(ctx context.Context, in MonStepInput) error {
	if in.Grant == nil {
		return nil
	}
	p, err := j.Policies.Policy(ctx, in.Grant.Cluster)
	if errors.Is(err, ErrNotFound) {
		return Lost("MaintenancePolicy %s is deleted", in.Grant.Cluster)
	}
	if err != nil {
		return Unavailable("read MaintenancePolicy "+in.Grant.Cluster.String(), err)
	}
	if c, held, _ := p.Memory.Lease.Find(in.WorkflowID, in.RunID); !held || c.Token != in.Grant.Token {
		return Lost("the lease of %s with token %d is gone", in.Grant.Cluster, in.Grant.Token)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, errWorkerStops) {
			return Unavailable("wait for the mons", cause)
		}
		return ctx.Err()
	}
}

// toldMons is what was told last of the mons that are out of quorum.
type toldMons struct {
	out string
	at  time.Time
}

// tellAgain is how soon it is told again that the same mons are out: whoever was told may have been lost.
const tellAgain = time.Minute

// tellMons tells the jobs of a policy's CephMons which mons are out of quorum. It is asked at the beginning of each
// watch, and a watch ends when the quorum changes.
func (k *Keeper) tellMons(ctx context.Context, cluster storage.ClusterKey, q Quorum) {
	var out []string
	for _, name := range q.Mons {
		if !slices.Contains(q.In, name) {
			out = append(out, "mon."+name)
		}
	}
	if len(out) == 0 || k.Mons == nil || k.Migrations == nil {
		k.told.Delete(cluster)
		return
	}
	now := toldMons{out: strings.Join(out, ", "), at: time.Now()}
	if before, known := k.told.Load(cluster); known {
		if was := before.(toldMons); was.out == now.out && now.at.Sub(was.at) < tellAgain {
			return
		}
	}
	refs, err := k.Mons.Of(ctx, cluster)
	for _, ref := range refs {
		err = errors.Join(err, k.Migrations.TellMons(ctx, ref, "out of quorum: "+now.out))
	}
	if err != nil {
		activity.GetLogger(ctx).Warn("could not tell who looks after the mons that one is out of quorum", "error", err)
		return
	}
	k.told.Store(cluster, now)
}
