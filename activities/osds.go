package activities

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// OSDs holds the activities of UpdateOSDs.
type OSDs struct {
	OSDSets  OSDSets
	Policies Policies
}

// SurveyOSDs looks at a set and says what is next. It changes nothing.
func (o *OSDs) SurveyOSDs(ctx context.Context, in SurveyInput) (Survey, error) {
	ctx, stop := busy(ctx)
	defer stop()
	s, err := o.OSDSets.Survey(ctx, in)
	if err != nil {
		return Survey{}, Unavailable("look at the OSDs of "+in.OSDSet.Name, err)
	}
	return s.bounded(), nil
}

// KeysInput names OSDs or pods of a set.
type KeysInput struct {
	OSDSet OSDSetRef `json:"set"`
	Names  []string  `json:"names"`
}

// CreatePods makes the pods of OSDs that have none.
func (o *OSDs) CreatePods(ctx context.Context, in KeysInput) (Created, error) {
	ctx, stop := busy(ctx)
	defer stop()
	made, err := o.OSDSets.Create(ctx, in.OSDSet, in.Names)
	if err != nil {
		return Created{}, Unavailable("create pods of "+in.OSDSet.Name, err)
	}
	return made, nil
}

// DiscardPods deletes duplicates that do not serve.
func (o *OSDs) DiscardPods(ctx context.Context, in KeysInput) (struct{}, error) {
	ctx, stop := busy(ctx)
	defer stop()
	return struct{}{}, unavailableUnlessNil("delete duplicate pods of "+in.OSDSet.Name,
		o.OSDSets.Discard(ctx, in.OSDSet, in.Names))
}

// NotePods writes on the pods what is known of them.
func (o *OSDs) NotePods(ctx context.Context, osdSet OSDSetRef) (struct{}, error) {
	ctx, stop := busy(ctx)
	defer stop()
	return struct{}{}, unavailableUnlessNil("annotate the pods of "+osdSet.Name, o.OSDSets.Note(ctx, osdSet))
}

// RemoveOSDs deletes the pods of OSDs that are no longer in the spec and that nobody needs.
func (o *OSDs) RemoveOSDs(ctx context.Context, in KeysInput) (struct{}, error) {
	ctx, stop := busy(ctx)
	defer stop()
	return struct{}{}, unavailableUnlessNil("delete the pods of OSDs that left "+in.OSDSet.Name,
		o.OSDSets.Remove(ctx, in.OSDSet, in.Names))
}

// RehearseBatch lets the API server judge the successors of a batch, and the storage cluster which of them it could
// spare now, before the lease is asked for: the lease, and noout, are then of those alone. It changes nothing.
func (o *OSDs) RehearseBatch(ctx context.Context, in Replacement) (Rehearsed, error) {
	ctx, stop := busy(ctx)
	defer stop()
	judged, err := o.OSDSets.Rehearse(ctx, in)
	if err != nil {
		return Rehearsed{}, Unavailable("rehearse the new pods of "+in.OSDSet.Name, err)
	}
	r := Rehearsed{Rehearsal: judged, OSDs: in.OSDs}
	if judged == (Rehearsal{}) && len(in.OSDs) > 1 {
		spared, answer, err := o.OSDSets.Spare(ctx, in)
		if err != nil {
			return Rehearsed{}, Unavailable("ask which OSDs may stop", err)
		}
		if answer.OK && len(spared) > 0 {
			r.OSDs = spared
		}
	}
	return r, nil
}

// ReplaceBatch stops the OSDs of a batch, sees them gone, and makes their successors. Right before the first one stops
// it makes sure that the lease is still the one it was given, and that the storage cluster can spare them now. An
// attempt that follows another one goes on with what that one stopped: a pod that is missing comes back in any case.
func (o *OSDs) ReplaceBatch(ctx context.Context, in Replacement) (Replaced, error) {
	now := serverClock(ctx)
	ctx, stop := busy(ctx)
	defer stop()
	if in.Token != 0 {
		if err := o.holds(ctx, in); err != nil {
			return Replaced{}, err
		}
	}
	// First, since it may take a few seconds, and the storage cluster has to be able to spare the batch now.
	if a, err := o.alive(ctx, in, now()); err != nil {
		return Replaced{}, Unavailable("ask for signs of life", err)
	} else if !a.OK {
		return Replaced{Refused: a.Reason}, nil
	}
	// An OSD that is in no failure domain may hold data all the same: one that was just moved out of its own, say.
	spared, answer, err := o.OSDSets.Spare(ctx, in)
	if err != nil {
		return Replaced{}, Unavailable("ask whether the OSDs may stop", err)
	}
	if !answer.OK {
		return Replaced{Refused: answer.Reason}, nil
	}
	in.OSDs = spared
	if err := o.OSDSets.Replace(ctx, in); err != nil {
		return Replaced{}, Unavailable("replace the pods of the batch", err)
	}
	return Replaced{OSDs: in.OSDs}, nil
}

// aliveLasts is for how long a batch may begin because of what its grant rests on; then it asks for itself.
const aliveLasts = 2 * time.Second

// alive makes sure that no OSD elsewhere hangs.
func (o *OSDs) alive(ctx context.Context, in Replacement, now time.Time) (storage.Answer, error) {
	if now.Sub(in.Alive) <= aliveLasts {
		return storage.Answer{OK: true}, nil
	}
	return o.OSDSets.Alive(ctx, in)
}

func (o *OSDs) holds(ctx context.Context, in Replacement) error {
	p, err := o.Policies.Policy(ctx, in.Cluster)
	if errors.Is(err, ErrNotFound) {
		return Lost("MaintenancePolicy %s is deleted", in.Cluster)
	}
	if err != nil {
		return Unavailable("read MaintenancePolicy "+in.Cluster.String(), err)
	}
	if c, holds, _ := p.Memory.Lease.Find(in.WorkflowID, in.RunID); !holds || c.Token != in.Token {
		return Lost("the lease of %s with token %d is gone", in.Cluster, in.Token)
	}
	return nil
}

// AwaitOSDs returns when the OSDs serve, or when their spec has moved on.
func (o *OSDs) AwaitOSDs(ctx context.Context, in AwaitInput) (Arrival, error) {
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	// The heartbeat says who is waited for, and why: Temporal's UI shows it. A look may take longer than a heartbeat may.
	var last atomic.Pointer[Arrival]
	go beatWith(ctx, func() []any {
		if a := last.Load(); a != nil {
			return []any{*a}
		}
		return nil
	})
	a, err := o.OSDSets.Await(ctx, in, func(a Arrival) {
		last.Store(&a)
		activity.RecordHeartbeat(ctx, a)
	})
	if err != nil {
		return Arrival{}, Unavailable("wait for the OSDs", err)
	}
	return a, nil
}

// ConfirmOSDs notes on the pods that they serve as their template says.
func (o *OSDs) ConfirmOSDs(ctx context.Context, in AwaitInput) (struct{}, error) {
	ctx, stop := busy(ctx)
	defer stop()
	return struct{}{}, unavailableUnlessNil("annotate the pods", o.OSDSets.Confirm(ctx, in))
}

// ReportOSDs writes the status.
func (o *OSDs) ReportOSDs(ctx context.Context, in OSDSetReport) (struct{}, error) {
	return struct{}{}, unavailableUnlessNil("write the status of "+in.OSDSet.Name, o.OSDSets.Report(ctx, in))
}

func unavailableUnlessNil(what string, err error) error {
	if err == nil {
		return nil
	}
	return Unavailable(what, err)
}
