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
	Started time.Time `json:"started"`
	// Restart tells this restart of Deployments from the ones before.
	Restart string               `json:"restart,omitempty"`
	Result  UpdateOSDsResult     `json:"result"`
	Skip    []string             `json:"skip,omitempty"`
	SkipOf  string               `json:"skipOf,omitempty"` // the template that Skip is about
	Canary  Canary               `json:"canary,omitzero"`
	Awaited map[string]time.Time `json:"awaited,omitempty"` // since when, by OSD
	// Unspared is since when the storage cluster has not let the next batch go; zero: it was not asked, or did.
	Unspared  time.Time              `json:"unspared,omitzero"`
	Halted    *activities.Halt       `json:"halted,omitempty"`
	Paused    bool                   `json:"paused,omitempty"`
	Batch     *activities.FleetBatch `json:"batch,omitempty"`    // that was begun and is not known to be whole
	LastBatch time.Time              `json:"lastBatch,omitzero"` // when it was whole again
	Lease     ClaimState             `json:"lease,omitzero"`     // the claim, and whether it is granted
	Wait      Wait                   `json:"wait,omitzero"`      // in which the run before ended
	Rested    rested                 `json:"rested,omitzero"`
	// Stopping is the batch whose pods were being replaced when the run before ended.
	Stopping *Stopping `json:"stopping,omitempty"`
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
	fleet, err := in.validate(ctx)
	if err != nil {
		return UpdateOSDsResult{}, err
	}
	u := newUpdate(ctx, fleet, in.State)
	u.again = func(s *UpdateState) error {
		return workflow.NewContinueAsNewError(ctx, UpdateOSDs, UpdateOSDsInput{CephOSD: in.CephOSD, State: s})
	}
	return u.do(ctx)
}

// RestartOSDs restarts OSDs that Deployments run, with the same care as UpdateOSDs. With an image it restarts those
// that have another one: first one alone, unless others serve with it.
//
//	temporal workflow start --type RestartOSDs --task-queue lockkeeper --workflow-id restart-osds/rook-ceph --input '{"namespace":"rook-ceph"}'
func RestartOSDs(ctx workflow.Context, in RestartOSDsInput) (UpdateOSDsResult, error) {
	fleet, err := in.validate(ctx)
	if err != nil {
		return UpdateOSDsResult{}, err
	}
	u := newUpdate(ctx, fleet, in.State)
	u.reason = in.Reason
	if u.state.Restart == "" {
		u.state.Restart = workflow.Now(ctx).UTC().Format(time.RFC3339)
	}
	u.fleet.Name = u.state.Restart
	u.again = func(s *UpdateState) error {
		in.State = s
		return workflow.NewContinueAsNewError(ctx, RestartOSDs, in)
	}
	return u.do(ctx)
}

// OutcomeFailed is a rollout's that ended with an error.
const OutcomeFailed = "Failed"

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
	fleet  activities.FleetRef
	reason string
	job    *job
	state  UpdateState
	lease  *claimant
	seen   activities.Survey // the last survey
	// changed: somebody says that the last survey is out of date.
	changed bool
	again   func(*UpdateState) error
	holds   string                 // why nothing goes on although nothing is wrong: activities.HoldPaused, …
	wrote   activities.FleetReport // the last report
	rested  rested                 // the last wait of its kind
	stuck   repeats
}

var rolling *activities.OSDs

func newUpdate(ctx workflow.Context, fleet activities.FleetRef, state *UpdateState) *update {
	u := &update{fleet: fleet, job: newJob(ctx, updatePhases)}
	if state != nil {
		u.state = *state
		u.job.Started, u.job.Paused, u.job.goesOn, u.rested = state.Started, state.Paused, state.Wait, state.Rested
	}
	u.state.Started = u.job.Started
	u.lease = newClaimant(ctx, u.state.Lease)
	u.state.Lease, u.state.Wait = ClaimState{}, Wait{}
	return u
}

// UpdateStatus answers the query "status".
type UpdateStatus struct {
	JobStatus
	Fleet   activities.FleetRef    `json:"fleet"`
	Counts  activities.FleetCounts `json:"counts"`
	Done    int                    `json:"done"` // of Of OSDs are as the template says
	Of      int                    `json:"of"`
	Batch   *activities.FleetBatch `json:"batch,omitempty"`
	Halted  *activities.Halt       `json:"halted,omitempty"`
	Canary  Canary                 `json:"canary,omitzero"`
	Skip    []string               `json:"skip,omitempty"`
	Refused []input.Error          `json:"refused,omitempty"`
	// what is wrong with the spec, and concerns only a part of the OSDs
	Warned []input.Error `json:"warned,omitempty"`
	// Superfluous are OSDs that are no longer in the spec, and why they stay.
	Superfluous []activities.Superfluous `json:"superfluous,omitempty"`
	// Holds is why nothing goes on although nothing is wrong: activities.HoldPaused, …
	Holds    string           `json:"holds,omitempty"`
	Template string           `json:"template,omitempty"`
	Token    int64            `json:"token,omitempty"`
	Result   UpdateOSDsResult `json:"result"`
}

func (u *update) status() UpdateStatus {
	s := UpdateStatus{
		JobStatus: u.job.JobStatus, Fleet: u.fleet, Counts: u.seen.Counts, Batch: u.state.Batch, Halted: u.state.Halted,
		Canary: u.state.Canary, Skip: u.state.Skip, Refused: u.seen.Refused, Warned: u.seen.Warned,
		Superfluous: u.seen.Superfluous, Holds: u.holds, Template: u.seen.Template, Token: u.lease.Token,
		Result: u.state.Result,
	}
	s.Done, s.Of = u.seen.Counts.Progress()
	return s
}

func (u *update) do(ctx workflow.Context) (UpdateOSDsResult, error) {
	if err := workflow.SetQueryHandler(ctx, QueryStatus,
		func() (UpdateStatus, error) { return u.status(), nil }); err != nil {
		return UpdateOSDsResult{}, err
	}
	runCtx, cancel := workflow.WithCancel(ctx)
	u.job.listen(ctx, cancel)
	u.listen(ctx)
	cleanCtx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	var err error
	for again := true; again; {
		if err = u.run(runCtx); workflow.IsContinueAsNewError(err) {
			return UpdateOSDsResult{}, err
		}
		u.lease.release(cleanCtx)
		if u.job.Aborted {
			u.state.Result.Outcome, err = OutcomeAborted, nil
		} else if err != nil {
			u.state.Result.Outcome = OutcomeFailed
		}
		u.state.Batch, u.holds = nil, ""
		u.report(cleanCtx, u.state.Result.Outcome)
		// Who told of a change while the last word was being written was told in turn that somebody is at work.
		again = err == nil && letSignalsIn(runCtx) == nil && u.changed
	}
	u.state.Result.Took, u.state.Result.Skipped = workflow.Now(ctx).Sub(u.state.Started), u.state.Skip
	return u.state.Result, err
}

// listen serves the signals that only a rollout takes.
func (u *update) listen(ctx workflow.Context) {
	serve := func(name string, into any, handle func()) {
		workflow.Go(ctx, func(ctx workflow.Context) {
			for c := workflow.GetSignalChannel(ctx, name); receive(ctx, c, into); {
				handle()
			}
		})
	}
	serve(SignalOSDsChanged, nil, func() { u.changed = true })
	// Nobody can have judged a canary that has not served yet.
	serve(jobs.SignalApprove, nil,
		func() { u.state.Canary.Approved = u.state.Canary.Approved || !u.state.Canary.Whole.IsZero() })
	var osd string
	serve(jobs.SignalSkip, &osd, func() {
		if osd != "" && u.maySkip(osd) {
			u.state.Skip, u.changed = append(u.state.Skip, osd), true
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
