package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/history"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// ErrNoJob is returned for a job that Temporal does not know.
var ErrNoJob = errors.New("no such job")

// ErrRuns is returned when a job cannot be started because it runs.
var ErrRuns = errors.New("runs already")

// Why a workflow does not answer. Errors wrap one of these, and say more.
var (
	ErrAway       = errors.New("Temporal does not answer")
	ErrNoWorker   = errors.New("no worker answers")
	ErrNotRunning = errors.New("does not run")
)

// Temporal is what the command asks of Temporal.
type Temporal interface {
	// StartDrain starts the drain of a node. It returns ErrRuns when one runs.
	StartDrain(ctx context.Context, in workflows.DrainNodeInput) error
	// Drain tells about the last drain of a node, running or not. It returns ErrNoJob when there never was one.
	Drain(ctx context.Context, node string) (Job, error)
	// Drains lists the drains that run.
	Drains(ctx context.Context) ([]Job, error)
	// Signal sends a signal to the running drain of a node. It returns ErrNoJob when none runs.
	Signal(ctx context.Context, node, signal string) error
	// StartUpdate makes the rollout of a CephOSD look, and starts it first if it does not run.
	StartUpdate(ctx context.Context, namespace, name string) error
	// StartRestart starts the restart of a namespace's OSDs. It returns ErrRuns when one runs.
	StartRestart(ctx context.Context, in workflows.RestartOSDsInput) error
	// Rollout tells about the last rollout of this ID, running or not. It returns ErrNoJob when there never was one.
	Rollout(ctx context.Context, workflowID string) (Rollout, error)
	// Rollouts lists the rollouts that run.
	Rollouts(ctx context.Context) ([]Rollout, error)
	// SignalRollout sends a signal to a running rollout. It returns ErrNoJob when none runs.
	SignalRollout(ctx context.Context, workflowID, signal string, arg any) error
	// Version is the server's.
	Version(ctx context.Context) (string, error)
	// Pollers counts the workers that poll lockkeeper's task queue, for workflows and for activities.
	Pollers(ctx context.Context) (forWorkflows, forActivities int, err error)
	// Runs lists the runs of a workflow that Temporal remembers, newest first. It returns ErrNoJob when there is none.
	Runs(ctx context.Context, workflowID string) ([]RunInfo, error)
	// Record reads the history of one run.
	Record(ctx context.Context, workflowID, runID string) (history.Run, error)
	// Keeper asks the keeper of a storage cluster.
	Keeper(ctx context.Context, cluster storage.ClusterKey) (workflows.KeeperStatus, error)
}

// Job is one drain: what Temporal knows of it, and what it says of itself.
type Job struct {
	Node string `json:"node"`
	Execution
	// Status is the job's own answer; nil with the reason in Silent when it gave none.
	Status *workflows.DrainStatus `json:"status,omitempty"`
	// Result is how it ended, if it did so by itself.
	Result *DrainResult `json:"result,omitempty"`
}

// Step is an activity that has failed before, or that reports its progress.
type Step struct {
	Name        string                       `json:"name"`
	Attempt     int                          `json:"attempt"`
	LastFailure string                       `json:"lastFailure,omitempty"`
	Eviction    *activities.EvictionProgress `json:"eviction,omitempty"`
	// Arrival says which OSDs are not back, and why.
	Arrival *activities.Arrival `json:"arrival,omitempty"`
}

// Succeeded tells whether the drain ended as it should: the node is back or gone, and the storage is whole.
func (j Job) Succeeded() bool {
	return j.Result != nil && (j.Result.Outcome == workflows.OutcomeDone || j.Result.Outcome == workflows.OutcomeGone)
}

// Phase is the job's phase with its number, "Evicting 4/6", or how it ended.
func (j Job) Phase() string {
	switch {
	case j.State != Running && j.Result != nil:
		return j.Result.Outcome
	case j.State != Running:
		return j.State
	case j.Status == nil:
		return "unknown"
	}
	s := fmt.Sprintf("%s %d/%d", j.Status.Phase, j.Status.Step, j.Status.Steps)
	switch {
	case j.Status.Paused:
		s += ", paused"
	case j.Status.Observe:
		s += ", observing"
	}
	return s
}

// WaitsFor says what keeps the job from going on; "" when nothing does.
func (j Job) WaitsFor() string {
	var out string
	switch {
	case j.State != Running:
		return j.Failure
	case j.Status != nil:
		out = j.Status.WaitsFor
	default:
		out = j.Silent
	}
	if j.Step != nil && j.Step.LastFailure != "" {
		out = join(out, fmt.Sprintf("attempt %d of %s: %s", j.Step.Attempt, j.Step.Name, j.Step.LastFailure))
	}
	return out
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// Describe is one sentence about a job.
func (j Job) Describe(now time.Time) string {
	if j.State != Running {
		s := fmt.Sprintf("%s ended %s: %s", j.WorkflowID, when(j.Ended, now), j.Phase())
		if j.Failure != "" {
			s += ": " + j.Failure
		}
		return s
	}
	s := fmt.Sprintf("%s runs since %s", j.WorkflowID, when(j.Started, now))
	if j.Status == nil {
		return s + "; " + j.WaitsFor()
	}
	s += ", phase " + j.Phase()
	if w := j.WaitsFor(); w != "" {
		s += ", waits for " + w
	}
	return s
}
