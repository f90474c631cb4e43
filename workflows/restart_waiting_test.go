package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// waitingPods are six OSDs in three zones that somebody restarted, all at once. What was let go is back at the second
// look, unless it never comes back.
type waitingPods struct {
	*many
	mode    string   // Approve or Automatic
	wanted  []string // "osd.0"
	never   string   // does not come back
	log     []string
	looks   int
	atLook  map[int]func()
	forGood map[string]bool
	shut    time.Time // until when no window is open
}

func newWaitingPods(mode string) *waitingPods {
	w := &waitingPods{many: &many{}, mode: mode, atLook: map[int]func(){}, forGood: map[string]bool{}}
	w.many.osdSet = w
	for i := range 6 {
		w.wanted = append(w.wanted, fmt.Sprintf("osd.%d", i))
	}
	return w
}

func zoneOf(osd string) string { return "zone-" + string("xyzxyz"[osd[len(osd)-1]-'0']) }

func (w *waitingPods) Survey(_ context.Context, in activities.SurveyInput) (activities.Survey, error) {
	w.looks++
	if f := w.atLook[w.looks]; f != nil {
		f()
	}
	d := rollout.Input{DomainType: "zone", Skip: in.Skip}
	for _, g := range in.LetGo {
		d.OSDs = append(d.OSDs, rollout.OSD{
			Key: g.Key, Name: g.Key, Domain: zoneOf(g.Key), State: rollout.Ready, Serves: g.Key != w.never,
		})
	}
	for _, osd := range w.wanted {
		d.OSDs = append(d.OSDs, rollout.OSD{
			Key: osd, Name: osd, Domain: zoneOf(osd), Unit: zoneOf(osd), State: rollout.OutOfDate, Serves: true,
			Pod: "old " + osd, Epoch: 7, ForGood: w.forGood[osd],
		})
	}
	s := activities.Survey{
		Found: true, Template: in.OSDSet.Name, Cluster: sim.Key, Counted: true, Next: rollout.Next(d),
		Rules:   activities.OSDSetRules{ProgressDeadline: time.Minute, Consent: w.mode == "Approve"},
		Excused: rollout.Excused(d),
	}
	if s.Counts.Counts = rollout.Count(d); w.env.Now().Before(w.shut) {
		s.Rules.Shut, s.Rules.WindowChanges = true, w.shut
	}
	return s, nil
}

func (w *waitingPods) Replace(_ context.Context, in activities.Replacement) error {
	for _, o := range in.OSDs {
		w.log = append(w.log, o.Key)
		w.wanted = slices.DeleteFunc(w.wanted, func(osd string) bool { return osd == o.Key })
	}
	w.log = append(w.log, "|")
	return nil
}

func (w *waitingPods) Await(
	_ context.Context, in activities.AwaitInput, _ func(activities.Arrival),
) (a activities.Arrival, err error) {
	for _, g := range in.LetGo {
		switch {
		case !slices.Contains(in.Keys, g.Key):
		case g.Pod != "old "+g.Key || g.Epoch != 7:
			return a, fmt.Errorf("%+v is not what went", g)
		case g.Key == w.never:
			a.Waiting = append(a.Waiting, activities.Superfluous{Key: g.Key, Why: "it crashes"})
		case g.ForGood:
			a.Excused = append(a.Excused, g.Key)
		}
	}
	if len(a.Waiting) == 0 {
		return a, nil
	}
	return activities.Arrival{Moved: true}, nil // to wait would stop the clock of the test environment
}

var waitingID = jobs.RestartWaiting.ID(sim.Key.Namespace, sim.Key.Name)

func (w *waitingPods) play(t *testing.T, h *tally, during func()) (r workflows.UpdateOSDsResult) {
	in := workflows.RestartWaitingInput{Policy: sim.Key.String()}
	for {
		w.prepare(t, waitingID, h)
		during()
		w.env.ExecuteWorkflow(jobs.RestartWaiting.Type, in)
		require.True(t, w.env.IsWorkflowCompleted())
		var more *workflow.ContinueAsNewError
		if err := w.env.GetWorkflowError(); errors.As(err, &more) {
			in = workflows.RestartWaitingInput{}
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(more.Input, &in))
			h.events = 0
			continue
		}
		require.NoError(t, w.env.GetWorkflowError())
		require.NoError(t, w.env.GetWorkflowResult(&r))
		return r
	}
}

func (w *waitingPods) status(t *testing.T) (s workflows.UpdateStatus) {
	v, err := w.env.QueryWorkflow(workflows.QueryStatus)
	require.NoError(t, err)
	require.NoError(t, v.Get(&s))
	return s
}

func (w *waitingPods) later(after time.Duration, f func()) { w.env.RegisterDelayedCallback(f, after) }

var domainByDomain = []string{"osd.0", "osd.3", "|", "osd.1", "osd.4", "|", "osd.2", "osd.5", "|"}

func TestWhatWaitsGoesDomainByDomain(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Automatic")
	r := w.play(t, &tally{}, func() {})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, 6, r.Replaced)
	require.Equal(t, domainByDomain, w.log)
}

// TestWhatWaitsIsApproved: nothing goes before, and one word is enough. That it waits for a person costs no look.
func TestWhatWaitsIsApproved(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Approve")
	r := w.play(t, &tally{}, func() {
		w.later(50*time.Minute, func() {
			require.Empty(t, w.log)
			require.Equal(t, 1, w.looks)
			s := w.status(t)
			require.Equal(t, activities.HoldApproval, s.Holds)
			require.Equal(t, "6 pods to be let go, beginning with osd.0: `lockkeeper approve "+waitingID+"`", s.WaitsFor)
			w.env.SignalWorkflow(jobs.SignalApprove, nil)
		})
	})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, domainByDomain, w.log)
}

// TestWhatWaitsKeepsToWindows: it is approved by day and goes at night, and a window that is changed counts at once.
func TestWhatWaitsKeepsToWindows(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Approve")
	r := w.play(t, &tally{}, func() {
		w.shut = w.env.Now().Add(3 * 24 * time.Hour)
		w.later(time.Minute, func() { w.env.SignalWorkflow(jobs.SignalApprove, nil) })
		w.later(2*24*time.Hour, func() {
			require.Empty(t, w.log)
			require.Equal(t, 2, w.looks, "that it waits costs no look")
			require.Equal(t, activities.HoldWindow, w.status(t).Holds)
			require.Contains(t, w.status(t).WaitsFor, "the maintenance window that opens at ")
			w.shut = w.env.Now().Add(time.Hour)
			w.env.SignalWorkflow(workflows.SignalOSDsChanged, "the windows are others now")
		})
		w.later(2*24*time.Hour+59*time.Minute, func() { require.Empty(t, w.log) })
		w.later(2*24*time.Hour+61*time.Minute, func() { require.Equal(t, domainByDomain, w.log) })
	})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, domainByDomain, w.log)
}

// TestWhatWaitsIsTakenBack: before it was approved, and in the middle.
func TestWhatWaitsIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Approve")
	r := w.play(t, &tally{}, func() {
		w.later(time.Minute, func() {
			w.wanted = nil
			w.env.SignalWorkflow(workflows.SignalOSDsChanged, "osd.0 is not to go any more")
		})
	})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Zero(t, r.Replaced)

	w = newWaitingPods("Automatic")
	w.atLook[2] = func() { w.wanted = nil }
	r = w.play(t, &tally{}, func() {})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, domainByDomain[:3], w.log)
}

// TestTheFirstThatDoesNotComeBackHalts: nothing else goes, until a person excuses it.
func TestTheFirstThatDoesNotComeBackHalts(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Automatic")
	w.never = "osd.1"
	r := w.play(t, &tally{}, func() {
		w.later(2*time.Minute, func() {
			require.Equal(t, domainByDomain[:6], w.log)
			s := w.status(t)
			require.NotNil(t, s.Halted)
			require.Contains(t, s.Halted.Reason, "osd.1 to serve took longer than 1m0s")
			require.NotZero(t, s.Token, "the lease stays, and noout with it")
			w.env.SignalWorkflow(jobs.SignalSkip, "osd.1")
		})
	})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, domainByDomain, w.log)
}

// TestWhatWaitsIsAborted: what went is not forgotten by anybody but the job, and what did not stays.
func TestWhatWaitsIsAborted(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Approve")
	r := w.play(t, &tally{}, func() {
		w.later(time.Minute, func() { w.env.SignalWorkflow(jobs.SignalAbort, nil) })
	})
	require.Equal(t, workflows.OutcomeAborted, r.Outcome)
	require.Empty(t, w.log)
}

// TestWhoWentIsRemembered when the history is full while it is awaited, and so is that a person approved.
func TestWhoWentIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Approve")
	w.never = "osd.0"
	runs := 0
	h := &tally{}
	r := w.play(t, h, func() {
		runs++
		switch runs {
		case 1:
			w.later(time.Minute, func() { w.env.SignalWorkflow(jobs.SignalApprove, nil) })
			w.later(3*time.Minute, func() { h.add(suggestAt) })
			w.later(3*time.Minute+time.Second, func() { w.env.SignalWorkflow(jobs.SignalPause, nil) })
		case 2:
			w.later(time.Second, func() {
				require.Equal(t, domainByDomain[:3], w.log, "nothing else goes")
				w.never = ""
				w.env.SignalWorkflow(workflows.SignalOSDsChanged, "")
			})
			w.later(time.Minute, func() { w.env.SignalWorkflow(jobs.SignalResume, nil) })
		}
	})
	require.Equal(t, 2, runs)
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, domainByDomain, w.log)
	require.Equal(t, 6, r.Replaced)
}

// TestWhatGoesForGoodIsNotAwaited.
func TestWhatGoesForGoodIsNotAwaited(t *testing.T) {
	t.Parallel()
	w := newWaitingPods("Automatic")
	w.wanted, w.forGood["osd.4"] = []string{"osd.4", "osd.5"}, true
	r := w.play(t, &tally{}, func() {})
	require.Equal(t, workflows.OutcomeDone, r.Outcome)
	require.Equal(t, []string{"osd.4", "|", "osd.5", "|"}, w.log)
}
