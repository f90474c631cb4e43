package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// UpdateOSDsInput starts the rollout of a CephOSD, or goes on with it after continue-as-new.
type UpdateOSDsInput struct {
	// CephOSD is "namespace/name".
	CephOSD string       `json:"cephOSD"`
	State   *UpdateState `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// RestartOSDsInput restarts OSDs that Deployments run, as Rook's do, one batch after the other.
type RestartOSDsInput struct {
	Namespace string `json:"namespace"`
	// Selector selects the Deployments; by default Rook's OSDs.
	Selector string `json:"selector,omitempty"`
	// UpdateDomain: OSD (the default), Host, or a type of failure domain, such as Zone.
	UpdateDomain string `json:"updateDomain,omitempty"`
	MaxParallel  int    `json:"maxParallel,omitempty"` // in a batch; 0: what the update domain has
	// Policy of the storage cluster; "": the only one of the namespace.
	Policy string `json:"policy,omitempty"`
	// ProgressDeadline is how long an OSD may take to serve again before nothing further is restarted; 0: 10 minutes.
	ProgressDeadline time.Duration `json:"progressDeadline,omitempty"`
	Reason           string        `json:"reason,omitempty"` // is shown to everybody who has to wait
	// Image is what the OSDs are to run; those that run it are left as they are. "": all are restarted as they are.
	Image string `json:"image,omitempty"`
	// CephVersion is that of the image, "18.2.7"; "": the image is asked for it.
	CephVersion string       `json:"cephVersion,omitempty"`
	State       *UpdateState `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// UpdateState is what a rollout hands on to its next run.
type UpdateState struct {
	JobState
	// Restart tells this restart of Deployments from the ones before.
	Restart string               `json:"restart,omitempty"`
	Result  UpdateOSDsResult     `json:"result"`
	Skip    []string             `json:"skip,omitempty"`
	SkipOf  string               `json:"skipOf,omitempty"` // the template that Skip is about
	Canary  Canary               `json:"canary,omitzero"`
	Awaited map[string]time.Time `json:"awaited,omitempty"` // since when, by OSD
	// Unspared is since when the storage cluster has not let the next batch go; zero: it was not asked, or did.
	Unspared  time.Time               `json:"unspared,omitzero"`
	Halted    *activities.Halt        `json:"halted,omitempty"`
	Batch     *activities.OSDSetBatch `json:"batch,omitempty"`    // that was begun and is not known to be whole
	LastBatch time.Time               `json:"lastBatch,omitzero"` // when it was whole again
	Rested    rested                  `json:"rested,omitzero"`    // the last wait of its kind
	// RefusedSince is since when the API server has refused every pod for the OSDs that lack one; zero: it has not.
	RefusedSince time.Time `json:"refusedSince,omitzero"`
	// Stopping is the batch whose pods were being replaced when the run before ended.
	Stopping *Stopping `json:"stopping,omitempty"`
	// LetGo are those that RestartWaiting has let go and that are not back, and Consent that a person approved it.
	LetGo   []activities.LetGo `json:"letGo,omitempty"`
	Consent bool               `json:"consent,omitempty"`
}

// Canary is the OSD that went first.
type Canary struct {
	Template string    `json:"template,omitempty"` // whose canary it is
	OSD      string    `json:"osd,omitempty"`
	Key      string    `json:"key,omitempty"`
	Life     string    `json:"life,omitempty"`     // of the daemon that soaks: one that starts again soaks again
	Whole    time.Time `json:"whole,omitzero"`     // since when it serves and the data is whole
	Restarts int       `json:"restarts,omitempty"` // while it soaked
	Approved bool      `json:"approved,omitempty"`
	Troubled time.Time `json:"troubled,omitzero"` // since when the storage cluster has something against it
	Judged   bool      `json:"judged,omitempty"`  // nothing holds the others back any more
}

// UpdateOSDsResult is how a rollout ended.
type UpdateOSDsResult struct {
	Outcome  string        `json:"outcome"`
	Replaced int           `json:"replaced"`
	Batches  int           `json:"batches"`
	Took     time.Duration `json:"took"`
	Skipped  []string      `json:"skipped,omitempty"`
}

// SignalOSDsChanged is what the watcher sends to a rollout: the spec or the pods are not what they were.
const SignalOSDsChanged = "osds-changed"

// UpdateOSDs brings the pods of a CephOSD to what its template says, batch by batch, and makes the ones that are
// missing. Before a batch stops it holds the lease of its failure domain; the keeper has set noout on exactly these
// OSDs by then, and the storage cluster has said, at that moment, that it can spare them. The next batch begins when
// this one serves, in Kubernetes and in Ceph, and the data is whole.
//
// An OSD that does not come back halts it: nothing further goes down, and it goes on by itself when that OSD serves,
// when the template is mended (then with what is broken first), or when a person excuses the OSD: `skip`, or its
// annotation. It ends when nothing is left to do; the watcher starts it again. `abort` gives the lease back and leaves
// every pod as it is.
//
//	temporal workflow start --type UpdateOSDs --task-queue lockkeeper --workflow-id update-osds/ceph/osds --input '{"cephOSD":"ceph/osds"}'
func UpdateOSDs(ctx workflow.Context, in UpdateOSDsInput) (UpdateOSDsResult, error) {
	u := newUpdate(ctx, in.State)
	u.accept = in.validate
	u.goOn = func(s *UpdateState) error {
		in.State = s
		return workflow.NewContinueAsNewError(ctx, UpdateOSDs, in)
	}
	return u.do(ctx)
}

// RestartOSDs restarts OSDs that Deployments run, with the same care as UpdateOSDs. With an image it restarts those
// that have another one: first one alone, unless others serve with it.
//
//	temporal workflow start --type RestartOSDs --task-queue lockkeeper --workflow-id restart-osds/rook-ceph --input '{"namespace":"rook-ceph"}'
func RestartOSDs(ctx workflow.Context, in RestartOSDsInput) (UpdateOSDsResult, error) {
	u := newUpdate(ctx, in.State)
	u.accept, u.reason = in.validate, in.Reason
	if u.state.Restart == "" {
		u.state.Restart = workflow.Now(ctx).UTC().Format(time.RFC3339)
	}
	u.goOn = func(s *UpdateState) error {
		in.State = s
		return workflow.NewContinueAsNewError(ctx, RestartOSDs, in)
	}
	return u.do(ctx)
}

// The phases of a rollout. They come again with every batch.
const (
	PhaseSurvey  = "Surveying"
	PhaseReplace = "Replacing"
	PhaseArrive  = "AwaitingOSDs"
	PhaseJudge   = "JudgingCanary"
	PhaseRest    = "Resting" // between two batches: a window, a pause, something that a person has to mend
)

var updatePhases = []string{PhaseSurvey, PhaseLease, PhaseReplace, PhaseArrive, PhaseHeal, PhaseJudge, PhaseRest}

type update struct {
	osdSet activities.OSDSetRef
	reason string
	job    *job
	state  UpdateState
	lease  *claimant
	seen   activities.Survey // the last survey
	accept func(workflow.Context) (activities.OSDSetRef, error)
	goOn   func(*UpdateState) error // in a new history
	holds  string                   // why nothing goes on although nothing is wrong: activities.HoldPaused, …
	asking bool                     // the last look was made while the lease is waited for,
	why    string                   // and why it was not granted then
	wrote  activities.OSDSetReport  // the last report
	stuck  repeats
}

var rolling *activities.OSDs

func newUpdate(ctx workflow.Context, state *UpdateState) *update {
	u := &update{}
	if state != nil {
		u.state = *state
	}
	u.job = newJob(ctx, updatePhases, u.state.JobState)
	u.lease = u.job.claims[0]
	return u
}

// UpdateStatus answers the query "status".
type UpdateStatus struct {
	JobStatus
	OSDSet  activities.OSDSetRef    `json:"set"`
	Counts  activities.OSDSetCounts `json:"counts"`
	Done    int                     `json:"done"` // of Of OSDs are as the template says
	Of      int                     `json:"of"`
	Batch   *activities.OSDSetBatch `json:"batch,omitempty"`
	Halted  *activities.Halt        `json:"halted,omitempty"`
	Canary  Canary                  `json:"canary,omitzero"`
	Skip    []string                `json:"skip,omitempty"`
	Refused []input.Error           `json:"refused,omitempty"`
	// what is wrong with the spec, and concerns only a part of the OSDs
	Warned []input.Error `json:"warned,omitempty"`
	// Superfluous are OSDs that are no longer in the spec, and why they stay.
	Superfluous []activities.Superfluous `json:"superfluous,omitempty"`
	// Holds is why nothing goes on although nothing is wrong: activities.HoldPaused, …
	Holds string `json:"holds,omitempty"`
	// Consent: a person approved the job as a whole.
	Consent  bool             `json:"consent,omitempty"`
	Template string           `json:"template,omitempty"`
	Token    int64            `json:"token,omitempty"`
	Result   UpdateOSDsResult `json:"result"`
}

func (u *update) status() any {
	s := UpdateStatus{
		JobStatus: u.job.JobStatus, OSDSet: u.osdSet, Counts: u.seen.Counts, Batch: u.state.Batch, Halted: u.state.Halted,
		Canary: u.state.Canary, Skip: u.state.Skip, Refused: u.seen.Refused, Warned: u.seen.Warned,
		Superfluous: u.seen.Superfluous, Holds: u.holds, Consent: u.state.Consent, Template: u.seen.Template,
		Token:  u.lease.Token,
		Result: u.state.Result,
	}
	s.Done, s.Of = u.seen.Counts.Progress()
	return s
}

func (u *update) do(ctx workflow.Context) (UpdateOSDsResult, error) {
	u.serveSignals(ctx)
	err := runJob(ctx, u.job, u)
	u.state.Result.Took, u.state.Result.Skipped = workflow.Now(ctx).Sub(u.job.Started), u.state.Skip
	return u.state.Result, err
}

func (u *update) validate(ctx workflow.Context) (err error) {
	if u.osdSet, err = u.accept(ctx); u.state.Restart != "" {
		u.osdSet.Name = u.state.Restart
	}
	return err
}

func (u *update) outcome() *string { return &u.state.Result.Outcome }

func (u *update) again(_ workflow.Context, s JobState) error {
	u.state.JobState = s
	return u.goOn(&u.state)
}

// cleanUp gives the lease back as it is, since others may wait for it, and then says how the rollout ended.
func (u *update) cleanUp(ctx workflow.Context) {
	u.lease.release(ctx)
	u.state.Batch, u.holds = nil, ""
	u.report(ctx, u.state.Result.Outcome)
}

// serveSignals serves the signals that only a rollout takes.
func (u *update) serveSignals(ctx workflow.Context) {
	serve(ctx, SignalOSDsChanged, nil, func() { u.job.changed = true })
	// Nobody can have judged a canary that has not served yet.
	serve(ctx, jobs.SignalApprove, nil, func() {
		u.state.Canary.Approved = u.state.Canary.Approved || !u.state.Canary.Whole.IsZero()
		if u.waiting() {
			u.state.Consent, u.job.changed = true, true
		}
	})
	var osd string
	serve(ctx, jobs.SignalSkip, &osd, func() {
		if osd != "" && u.maySkip(osd) {
			u.state.Skip, u.job.changed = append(u.state.Skip, osd), true
		}
		osd = ""
	})
}

// mostSkips bounds the names of OSDs that are excused, in bytes: they are sent with every look.
const mostSkips = 48 << 10

// maySkip tells whether an OSD is excused by being named now.
func (u *update) maySkip(osd string) bool {
	size := len(osd)
	for _, s := range u.state.Skip {
		size += len(s)
	}
	return size <= mostSkips && !slices.Contains(u.state.Skip, osd)
}
