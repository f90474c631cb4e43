package cli

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
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
	// StartFence sees a node through its fencing. It returns ErrRuns when that runs.
	StartFence(ctx context.Context, in workflows.FenceNodeInput) error
	// StartUpdate makes the rollout of a CephOSD look, and starts it first if it does not run.
	StartUpdate(ctx context.Context, namespace, name string) error
	// StartRestart starts the restart of a namespace's OSDs. It returns ErrRuns when one runs.
	StartRestart(ctx context.Context, in workflows.RestartOSDsInput) error
	// StartMigration makes the job of a CephMon migrate mons, and starts it first if it does not run.
	StartMigration(ctx context.Context, cephMon activities.MonsRef, mode monplan.Mode) error
	// PlanMigration has a worker foresee a migration.
	PlanMigration(ctx context.Context, in workflows.PlanMonsInput) (activities.MonPlan, error)
	// Job tells about the last job with this ID, running or not. It returns nil and ErrNoJob when there never was one.
	Job(ctx context.Context, workflowID string) (Job, error)
	// Running lists the jobs that run, in the order of their IDs.
	Running(ctx context.Context) ([]Job, error)
	// Signal sends a signal to a running job. It returns ErrNoJob when it does not run.
	Signal(ctx context.Context, workflowID, signal string, arg any) error
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

// Step is an activity that has failed before, or that reports its progress.
type Step struct {
	Name        string                       `json:"name"`
	Attempt     int                          `json:"attempt"`
	LastFailure string                       `json:"lastFailure,omitempty"`
	Eviction    *activities.EvictionProgress `json:"eviction,omitempty"`
	// Arrival says which OSDs are not back, and why.
	Arrival *activities.Arrival `json:"arrival,omitempty"`
}
