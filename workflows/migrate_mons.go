package workflows

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// MigrateMonsInput names a CephMon, and says what is allowed beyond what is done by itself.
type MigrateMonsInput struct {
	// CephMon is NAMESPACE/NAME.
	CephMon string `json:"cephMon"`
	// Migrate: move mons that are not as the spec says, and remove superfluous ones. Without it dead mons are replaced,
	// missing ones made, and changed images rolled out.
	Migrate bool `json:"migrate,omitempty"`
	// OneLess: where no node has a place for a newcomer, a living mon may leave before its successor joins.
	OneLess bool               `json:"oneLess,omitempty"`
	State   *MigrateMonsState  `json:"state,omitempty"`
	invalid *input.Error       // what is wrong with the JSON
	ref     activities.MonsRef // CephMon, parsed
}

// Signals that the job of a CephMon takes beside those of all jobs.
const (
	// SignalMonsChanged tells it to look. Takes the reason.
	SignalMonsChanged = "mons-changed"
	// SignalMigrate allows more. Takes a monplan.Mode.
	SignalMigrate = "migrate"
)

// OutcomeRefused is an outcome of MigrateMons beside those of all jobs: nothing was changed, and a person has to change
// something.
const OutcomeRefused = "Refused"

// MigrateMonsResult is how it ended.
type MigrateMonsResult struct {
	Outcome string `json:"outcome"`
	// Why is what is left to do, and what keeps it from being done.
	Why string `json:"why,omitempty"`
	// Steps are those that were done: "Migrate: mon.d for mon.a".
	Steps []string      `json:"steps,omitempty"`
	Took  time.Duration `json:"took"`
}

// MigrateMonsState is what the job hands on to its next run.
type MigrateMonsState struct {
	JobState
	Memory activities.MonMemory `json:"memory"`
	Result MigrateMonsResult    `json:"result"`
}

// MigrateMonsStatus answers the query "status".
type MigrateMonsStatus struct {
	JobStatus
	CephMon string               `json:"cephMon"`
	Mode    monplan.Mode         `json:"mode"`
	Survey  activities.MonSurvey `json:"survey"`
	Token   int64                `json:"token,omitempty"`
	Result  MigrateMonsResult    `json:"result"`
}

// The phases of MigrateMons. Those of acts come in the order of a migration.
const (
	PhaseMonSchedule = "SchedulingCanary"
	PhaseMonClaim    = "ClaimingVolume"
	PhaseMonStart    = "StartingMon"
	PhaseMonQuorum   = "AwaitingQuorum"
	PhaseMonSave     = "SavingEndpoints"
	PhaseMonRemove   = "RemovingMon"
	PhaseMonRestart  = "RestartingMon"
	PhaseMonUndo     = "RollingBack"
)

var monPhases = []string{
	PhaseSurvey, PhaseMonSchedule, PhaseMonClaim, PhaseLease, PhaseMonStart, PhaseMonQuorum, PhaseMonSave,
	PhaseMonRemove, PhaseMonRestart, PhaseMonUndo, PhaseHeal, PhaseRest,
}

var phaseOf = map[monplan.Do]string{
	monplan.Schedule: PhaseMonSchedule, monplan.ClaimVolume: PhaseMonClaim, monplan.DropCanary: PhaseMonStart,
	monplan.Start: PhaseMonStart, monplan.AwaitQuorum: PhaseMonQuorum, monplan.SaveEndpoints: PhaseMonSave,
	monplan.RemoveMon: PhaseMonRemove, monplan.StopMon: PhaseMonRemove, monplan.RestartMon: PhaseMonRestart,
	monplan.DropTraces: PhaseMonUndo,
}

// MigrateMons looks after the mons of a CephMon until nothing is left to do: it replaces dead mons, makes missing ones,
// rolls out a changed image, and, if it is allowed to, moves mons to other nodes, zones and storage and removes
// superfluous ones. One step at a time; what the next one is package monplan decides, after each act anew.
//
// The quorum is never fewer than a majority of the monmap as it is after an act. A step that takes a living mon away,
// or has one join where a drain could take another one meanwhile, holds the lease; the replacement of a dead mon takes
// nothing and does not wait for it. A step that fails is rolled back. Whatever dies: the job goes on where it was,
// since a step is known by what it has left in the cluster.
//
//	temporal workflow start --type MigrateMons --task-queue lockkeeper \
//	  --workflow-id migrate-mons/rook-ceph/mons --input '{"cephMon":"rook-ceph/mons","migrate":true}'
func MigrateMons(ctx workflow.Context, in MigrateMonsInput) (MigrateMonsResult, error) {
	m := &migration{in: in}
	if in.State != nil {
		m.state = *in.State
	}
	m.state.Memory.Mode.Migrate = m.state.Memory.Mode.Migrate || in.Migrate
	m.state.Memory.Mode.OneLess = m.state.Memory.Mode.OneLess || in.OneLess
	m.job = newJob(ctx, monPhases, m.state.JobState)
	m.serve(ctx)
	err := runJob(ctx, m.job, m)
	m.state.Result.Took = workflow.Now(ctx).Sub(m.job.Started)
	return m.state.Result, err
}

type migration struct {
	in    MigrateMonsInput
	job   *job
	state MigrateMonsState
	// seen is the last look, and stale that it does not count any more.
	seen  activities.MonSurvey
	stale bool
	// interrupt ends a wait between two looks; nil: there is none.
	interrupt workflow.CancelFunc
}

var moving *activities.MonJob

func (m *migration) memory() *activities.MonMemory { return &m.state.Memory }

func (m *migration) status() any {
	s := MigrateMonsStatus{
		JobStatus: m.job.JobStatus, CephMon: m.in.ref.String(), Mode: m.memory().Mode, Survey: m.seen, Result: m.state.Result,
	}
	s.Token = m.job.claims[0].Token
	return s
}

func (m *migration) outcome() *string { return &m.state.Result.Outcome }

func (m *migration) again(ctx workflow.Context, s JobState) error {
	m.state.JobState = s
	return workflow.NewContinueAsNewError(ctx, MigrateMons, MigrateMonsInput{CephMon: m.in.CephMon, State: &m.state})
}

func (m *migration) run(ctx workflow.Context) error {
	if err := letSignalsIn(ctx); err != nil {
		return err
	}
	m.stale, m.memory().Ending = true, false
	for {
		if err := m.look(ctx); err != nil {
			return err
		}
		if done, err := m.step(ctx); done || err != nil && !errors.Is(err, errLost) {
			return err
		}
	}
}

// serve serves the signals of this job alone.
func (m *migration) serve(ctx workflow.Context) {
	news := func() {
		m.job.changed, m.stale = true, true
		if m.interrupt != nil {
			m.interrupt()
		}
	}
	serve(ctx, SignalMonsChanged, nil, news)
	var mode monplan.Mode
	serve(ctx, SignalMigrate, &mode, func() {
		mine := &m.memory().Mode
		mine.Migrate, mine.OneLess = true, mine.OneLess || mode.OneLess
		m.memory().Failed = nil // whoever asks again means those as well
		news()
	})
}

// look looks at the mons, unless the last look still counts, and holds the job while it is paused.
func (m *migration) look(ctx workflow.Context) error {
	if m.job.Paused {
		if err := m.job.gate(ctx); err != nil {
			return err
		}
		m.stale = true
	}
	if !m.stale {
		return nil
	}
	m.job.enter(ctx, PhaseSurvey)
	m.job.changed, m.stale = false, false
	s, err := perform(thorough(ctx, "look at the mons of "+m.in.ref.String()), m.job, moving.SurveyMons,
		activities.MonSurveyInput{Ref: m.in.ref, Memory: *m.memory()})
	if err != nil {
		return err
	}
	m.take(s)
	return nil
}

// take takes in a look, and what it says of the step that was under way.
func (m *migration) take(s activities.MonSurvey) {
	if !s.Found { // what is left of the step still has to go
		m.seen = s
		return
	}
	before, now := m.memory().Work, s.Step.Work
	if before == nil {
		before = s.Work // of a job before this one
	}
	goesOn := before != nil && now != nil && now.Newcomer == before.Newcomer && now.Old == before.Old
	if before != nil && !goesOn {
		m.ended(*before)
	}
	m.seen, m.memory().Work = s, nil
	if goesOn { // one that is about to begin is written down with its first act
		m.memory().Work = now
	}
	m.memory().Known, m.memory().OutSince = true, s.OutSince
	m.memory().NextID = max(m.memory().NextID, s.NextID)
}

const mostSteps = 64 // that a result names

// ended notes how a step ended.
func (m *migration) ended(w monplan.Work) {
	moves := w.Kind == monplan.Migrate || w.Kind == monplan.OneLess
	failed := moves && w.Undo != "" && !w.Started.IsZero()
	if failed && !slices.Contains(m.memory().Failed, w.Old) {
		m.memory().Failed = append(m.memory().Failed, w.Old)
		m.stale = true // what was decided did not know of it
	}
	if len(m.state.Result.Steps) < mostSteps {
		m.state.Result.Steps = append(m.state.Result.Steps, told(w))
	}
}

// told is a step in words.
func told(w monplan.Work) string {
	text := string(w.Kind) + ":"
	switch {
	case w.Newcomer == "":
		text += " mon." + w.Old
	case w.Old == "":
		text += " mon." + w.Newcomer
	default:
		text += " mon." + w.Newcomer + " for mon." + w.Old
	}
	if w.Undo != "" {
		text += ", rolled back: " + w.Undo
	}
	return text
}

// step does what comes next. done: nothing does.
func (m *migration) step(ctx workflow.Context) (done bool, err error) {
	next := m.seen.Step
	end := func(outcome, why string) (bool, error) {
		if err := letSignalsIn(ctx); err != nil || m.job.changed {
			return false, err
		}
		m.state.Result.Outcome, m.state.Result.Why = outcome, why
		return true, nil
	}
	switch {
	case m.stale:
		return false, nil
	case !m.seen.Found:
		return m.gone(ctx)
	case len(m.seen.Refused) > 0:
		r := m.seen.Refused[0]
		return end(OutcomeRefused, r.Error())
	}
	switch next.Verdict {
	case monplan.Done:
		return end(OutcomeDone, next.Why)
	case monplan.Refuse:
		return end(OutcomeRefused, next.Why)
	case monplan.Move:
		if next.Takes != "" || m.job.claims[0].finished() {
			return false, m.underLease(ctx, next)
		}
		return false, m.act(ctx, activities.MonStepInput{})
	default:
		return false, m.rest(ctx)
	}
}

// gone: the CephMon is deleted. Every mon stays; what was made for one that was never started goes.
func (m *migration) gone(ctx workflow.Context) (bool, error) {
	_, err := perform(persistent(ctx, "delete what is left of a step"), m.job, moving.ForgetMons,
		activities.MonSurveyInput{Ref: m.in.ref, Memory: *m.memory()})
	if err == nil {
		m.memory().Work, m.state.Result.Outcome = nil, OutcomeGone
	}
	return err == nil, err
}

// refusedFor is how soon an act is decided anew that was refused at last.
const refusedFor = 2 * time.Second

// rest waits until something else comes next.
func (m *migration) rest(ctx workflow.Context) error {
	for _, c := range m.job.claims {
		c.release(ctx)
	}
	return m.await(ctx)
}

func (m *migration) await(ctx workflow.Context) error {
	next := m.seen.Step
	m.job.enter(ctx, PhaseRest)
	m.job.waitFor(ctx, next.Why)
	if m.job.NextTimer = next.Until; !next.Until.IsZero() {
		m.job.NextTimerDoes = "look again: a mon that is out of quorum until then counts as dead"
	}
	runCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	m.interrupt, m.job.onPause = cancel, cancel
	s, err := perform(watching(runCtx, clip(next.Why)), m.job, moving.AwaitMons,
		activities.MonStepInput{Ref: m.in.ref, Memory: *m.memory(), Seen: m.seen})
	m.interrupt, m.job.onPause = nil, nil
	m.job.NextTimer, m.job.NextTimerDoes = time.Time{}, ""
	if temporal.IsCanceledError(err) && ctx.Err() == nil {
		m.stale = true
		return nil
	}
	if err == nil {
		m.take(s)
	}
	return err
}

// undoWithin is how long a job that ends tries to take a step back. What is left then the next job finds in the
// CephMon's status.
const undoWithin = 5 * time.Minute

// cleanUp takes back a step whose newcomer was never in quorum. One that was stays, and so does the mon that it was to
// replace. It leaves a status that tells of no step: the next job would go on with it.
func (m *migration) cleanUp(ctx workflow.Context) {
	w := m.memory().Work
	if w == nil && m.seen.Step.Work == nil {
		return
	}
	m.memory().Ending = true
	until := workflow.Now(ctx).Add(undoWithin)
	ctx = workflow.WithScheduleToCloseTimeout(stopping(ctx, "roll back"), undoWithin)
	if w != nil {
		undone := *w
		undone.Undo = cmp.Or(undone.Undo, "the job was ended")
		m.memory().Work = &undone
	}
	for over := false; !over; {
		var err error
		over, err = m.undo(ctx)
		if err == nil && !over && !workflow.Now(ctx).Before(until) {
			err = errors.New("it takes too long")
		}
		if err != nil { // the status tells of it as it is
			workflow.GetLogger(ctx).Error("cannot roll back a step; the next job of this CephMon does", "error", err)
			return
		}
	}
}

// undo does what comes next to take back a step, or to tell everybody of what it has done. over: nothing is left of it,
// and the status says so.
func (m *migration) undo(ctx workflow.Context) (over bool, err error) {
	s, err := call(ctx, moving.SurveyMons, activities.MonSurveyInput{Ref: m.in.ref, Memory: *m.memory()})
	if err != nil {
		return false, err
	}
	if !s.Found {
		return m.gone(ctx)
	}
	m.take(s)
	switch {
	case s.Step.Work == nil:
		return true, nil
	case s.Step.Verdict == monplan.Move:
		stepped, err := call(ctx, moving.CarryOutMon, activities.MonStepInput{Ref: m.in.ref, Memory: *m.memory(), Seen: s})
		if err == nil {
			m.take(stepped.Survey)
		}
		if err != nil || stepped.Refused == "" {
			return false, err
		}
	}
	return false, workflow.Sleep(ctx, refusedFor) //nolint:forbidigo // it cleans up: nobody continues as new any more
}
