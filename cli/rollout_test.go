package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const updateID = "update-osds/ceph/osds"

// rollingOut is a rollout in the middle of a batch, after some changes.
func rollingOut(edits ...func(*workflows.UpdateStatus)) Rollout {
	s := &workflows.UpdateStatus{
		JobStatus: workflows.JobStatus{
			Phase: workflows.PhaseArrive, WaitsFor: "osd.0, osd.1 to serve",
			Since: ago(time.Minute), Started: ago(time.Hour), NextTimer: ago(-9 * time.Minute), NextTimerDoes: "halt",
		},
		OSDSet: activities.OSDSetRef{Kind: activities.OSDSetCephOSD, Namespace: "ceph", Name: "osds"},
		Counts: activities.OSDSetCounts{Counts: rollout.Counts{Total: 12, UpToDate: 3, OutOfDate: 7, Unready: 2}}, Done: 3,
		Of: 12, Template: "new", Result: workflows.UpdateOSDsResult{Replaced: 5, Batches: 3},
		Batch: &activities.OSDSetBatch{
			Domain: storage.FailureDomain{Type: "zone", Name: "zone-x"},
			OSDs:   []string{"osd.0", "osd.1"}, Since: ago(2 * time.Minute),
		},
	}
	for _, edit := range edits {
		edit(s)
	}
	return Rollout{
		Execution: Execution{WorkflowID: updateID, RunID: "run", State: Running, Started: ago(time.Hour)},
		Status:    s,
	}
}

func halted(s *workflows.UpdateStatus) {
	s.Halted = &activities.Halt{Since: ago(5 * time.Minute), Reason: "osd.0, osd.1 to serve took longer than its deadline"}
	s.NextTimer, s.NextTimerDoes = time.Time{}, ""
}

// notBack adds what the step that waits for the OSDs last said.
func notBack(r Rollout, why ...string) Rollout {
	r.Step = &Step{Name: awaitOSDs, Attempt: 1, Arrival: &activities.Arrival{}}
	for i, w := range why {
		r.Step.Arrival.Waiting = append(r.Step.Arrival.Waiting,
			activities.Superfluous{Key: fmt.Sprintf("node-a:/dev/%d", i), Why: w})
	}
	return r
}

const crashes = "its container osd waits: CrashLoopBackOff"

func canary(s *workflows.UpdateStatus) {
	s.Batch = nil
	s.Phase, s.WaitsFor, s.NextTimer = workflows.PhaseJudge,
		"the signal `approve`: the canary osd.0 serves since 02:59:00", time.Time{}
	s.Canary, s.Holds = workflows.Canary{Template: "new", OSD: "osd.0", Whole: ago(time.Minute), Restarts: 2},
		activities.HoldApproval
}

func doneRollout() Rollout {
	return Rollout{
		Execution: Execution{
			WorkflowID: updateID, RunID: "run", State: "Completed", Started: ago(time.Hour),
			Ended: ago(time.Minute),
		},
		Result: &RolloutResult{workflows.UpdateOSDsResult{
			Outcome: workflows.OutcomeDone, Replaced: 12, Batches: 6,
			Took: 59 * time.Minute, Skipped: []string{"osd.7"},
		}},
	}
}

func rollingWorld(looks ...Job) *world {
	w := newWorld()
	w.jobs[updateID] = looks
	w.cephOSD = podspec.Set{CephOSD: cephOSD()}
	w.cephOSD.Status = cephv1alpha1.CephOSDStatus{
		ObservedGeneration: 3, Progress: "3/12", Reason: "Halted",
		Message: "osd.0, osd.1 to serve took longer than its deadline",
		OSDs:    cephv1alpha1.OSDCounts{Total: 12, UpToDate: 3, OutOfDate: 7, Unready: 2},
		Batch: &cephv1alpha1.BatchStatus{
			FailureDomain: "zone zone-x", OSDs: []string{"osd.0", "osd.1"},
			Since: agoMeta(2 * time.Hour),
		},
		Halted: &cephv1alpha1.HaltedStatus{
			Reason: "osd.0, osd.1 to serve took longer than its deadline",
			Since:  agoMeta(time.Hour),
		},
		Refused: []cephv1alpha1.Refusal{{Field: "spec.updateDomain", Value: "Shelf", Message: "must be OSD or Host"}},
	}
	return w
}

func TestStatusOfRollouts(t *testing.T) {
	silent := rollingOut()
	silent.Status, silent.Silent = nil, "no worker answers for update-osds/ceph/osds: is lockkeeper-worker running?"
	failing := rollingOut()
	failing.Step = &Step{Name: "SurveyOSDs", Attempt: 4, LastFailure: "connection refused"}
	refused := rollingOut(func(s *workflows.UpdateStatus) {
		s.Batch, s.Phase, s.Counts, s.Paused = nil, workflows.PhaseRest, activities.OSDSetCounts{}, true
		s.Refused, s.WaitsFor = []input.Error{*input.Wrong("spec.updateDomain", "Shelf", "must be OSD or Host")},
			"the spec to be mended"
		s.Skip = []string{"osd.7"}
	})
	unspared := rollingOut(func(s *workflows.UpdateStatus) {
		s.Phase, s.WaitsFor, s.Holds = workflows.PhaseRest, "the storage cluster to spare osd.0: 3 PGs would be inactive",
			activities.HoldStorage
		s.Halted = &activities.Halt{
			Since:  ago(time.Minute),
			Reason: "the storage cluster has not been able to spare osd.0 since 02:00:00: 3 PGs would be inactive",
		}
		s.Warned = []input.Error{*input.Wrong("spec.storage[0].hosts[2]", "node-q", "must be a node")}
		s.Superfluous = []activities.Superfluous{
			{Key: "node-c:/dev/sda", Why: "3 PGs need it; `ceph osd out 5` moves its data"},
		}
	})
	for name, r := range map[string]Rollout{
		"unspared": unspared,
		"rolling":  rollingOut(), "halted": notBack(rollingOut(halted), crashes, "osd.1 is not up"),
		"canary": rollingOut(canary), "silent": silent, "failing": failing, "refused": refused, "done": doneRollout(),
	} {
		t.Run(name, func(t *testing.T) {
			c, out, _ := rollingWorld(r).command()
			s, err := c.Status(t.Context(), "")
			require.NoError(t, err)
			s.Write(out)
			out.WriteString("\n--- status ceph/osds\n\n")
			s, err = c.RolloutStatus(t.Context(), updateID)
			require.NoError(t, err)
			s.Write(out)
			golden(t, "status-rollout-"+name+".txt", out.String())
		})
	}
	c, _, _ := rollingWorld(rollingOut()).command()
	s, err := c.Status(t.Context(), "rook-ceph")
	require.NoError(t, err)
	assert.Empty(t, s.Rollouts, "of another namespace")
	_, err = c.RolloutStatus(t.Context(), "restart-osds/ceph")
	require.EqualError(t, err, "restart-osds/ceph: Temporal knows no run of it: it never ran, or it ended longer ago "+
		"than Temporal remembers")
}

// Scripts rely on these names.
func TestRolloutJSON(t *testing.T) {
	c, out, _ := rollingWorld(notBack(rollingOut(halted), crashes)).command()
	s, err := c.RolloutStatus(t.Context(), updateID)
	require.NoError(t, err)
	require.NoError(t, Encode(out, append(s.Rollouts, doneRollout()), "json"))
	golden(t, "status-rollout.json", out.String())
}

func TestUpdateOSDsStarts(t *testing.T) {
	w := rollingWorld(doneRollout(), rollingOut(func(s *workflows.UpdateStatus) { s.Phase = workflows.PhaseSurvey }),
		rollingOut())
	c, out, _ := w.command()
	require.NoError(t, c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{}))
	assert.Equal(t, []string{"ceph/osds"}, w.updates)
	assert.Contains(t, out.String(), "update-osds/ceph/osds started\nupdate-osds/ceph/osds runs since 02:00:00 (60m), "+
		"phase AwaitingOSDs, 3/12 OSDs up to date, replaces osd.0, osd.1 in zone zone-x, waits for osd.0, osd.1 to serve\n")
	assert.Contains(t, out.String(), "lockkeeper pause update-osds/ceph/osds")

	for name, test := range map[string]struct {
		cephOSD, want string
		code          int
	}{
		"no such":      {"ceph/others", `CEPHOSD: "ceph/others": no such CephOSD`, ExitFailed},
		"no namespace": {"osds", "must be NAMESPACE/NAME", ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.UpdateOSDs(t.Context(), test.cephOSD, StayOptions{})
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.code, ExitCode(err))
			assert.Len(t, w.updates, 1)
		})
	}
	w.jobs[updateID] = []Job{
		rollingOut(), rollingOut(),
		rollingOut(func(s *workflows.UpdateStatus) { s.Since = ago(time.Second) }),
	}
	c, out, _ = w.command()
	require.NoError(t, c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{}))
	assert.Contains(t, out.String(), "update-osds/ceph/osds runs since 02:00:00 (60m); told to look again\n")
	assert.NotContains(t, out.String(), "started")

	w.kubeAway, w.jobs[updateID] = errors.New("the API server does not answer"), []Job{doneRollout()}
	c, _, errOut := w.command()
	require.NoError(t, c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{}))
	assert.Contains(t, errOut.String(), "warning: not checked beforehand: the API server does not answer")
}

func TestUpdateOSDsFollows(t *testing.T) {
	approved := rollingOut(canary, func(s *workflows.UpdateStatus) { s.Canary.Approved, s.WaitsFor = true, "" })
	looks := []Job{
		doneRollout(), rollingOut(canary), approved, rollingOut(), notBack(rollingOut(), crashes, "osd.1 is not up"),
		notBack(rollingOut(halted), crashes),
		notBack(rollingOut(halted), crashes), doneRollout(),
	}
	c, out, _ := rollingWorld(looks...).command()
	err := c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{Follow: true})
	require.ErrorContains(t, err, "it halted 02:55:00 (5m): osd.0, osd.1 to serve took longer than its deadline")
	assert.Equal(t, ExitHalted, ExitCode(err))
	golden(t, "follow-rollout.txt", out.String())

	c, out, _ = rollingWorld(looks[1:]...).command()
	require.NoError(t, c.Follow(t.Context(), updateID), "who watches stays with one that has halted")
	assert.Contains(t, out.String(), "HALTED")
	assert.Contains(t, out.String(), "Done: 12 OSDs replaced")

	gone := doneRollout()
	gone.Result.Outcome = workflows.OutcomeGone
	c, _, _ = rollingWorld(gone).command()
	err = c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{Wait: true})
	require.ErrorContains(t, err, "update-osds/ceph/osds ended 02:59:00 (60s): Gone, 12 OSDs replaced in 6 batches")
	assert.Equal(t, ExitNotDone, ExitCode(err))

	c, _, _ = rollingWorld(rollingOut()).command()
	err = c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{Wait: true, Timeout: 10 * time.Millisecond})
	require.ErrorContains(t, err,
		"no longer waiting; update-osds/ceph/osds runs since 02:00:00 (60m), phase AwaitingOSDs, 3/12")
	assert.Equal(t, ExitStillRuns, ExitCode(err))
}

// Whoever waits hears of what does not end by itself: a halt, a spec that makes no sense, a canary to be approved. What
// a rollout stood at before it was told to look again is no news.
func TestWaitEndsWhereNothingHappens(t *testing.T) {
	lookedAgain := func(s *workflows.UpdateStatus) { s.Since = ago(time.Second) }
	works := func(s *workflows.UpdateStatus) { s.Phase = workflows.PhaseReplace }
	refused := func(s *workflows.UpdateStatus) {
		s.Batch, s.Phase, s.WaitsFor = nil, workflows.PhaseRest, "the spec to be mended"
		s.Refused = []input.Error{*input.Wrong("spec.updateDomain", "Shelf", "must be OSD or Host")}
	}
	for name, test := range map[string]struct {
		looks []Job
		code  int
	}{
		"halts": {
			[]Job{rollingOut(), rollingOut(), notBack(rollingOut(halted), crashes, "osd.1 is not up")},
			ExitHalted,
		},
		"halted in a first run": {[]Job{doneRollout(), rollingOut(halted)}, ExitHalted},
		"is still halted": {
			[]Job{rollingOut(halted), rollingOut(halted), rollingOut(halted, lookedAgain)},
			ExitHalted,
		},
		"was halted and goes on": {
			[]Job{rollingOut(halted), rollingOut(halted), rollingOut(halted, works), doneRollout()},
			ExitOK,
		},
		"refused":        {[]Job{doneRollout(), rollingOut(refused)}, ExitHalted},
		"to be approved": {[]Job{rollingOut(), rollingOut(canary), rollingOut(canary), doneRollout()}, ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			c, out, errOut := rollingWorld(test.looks...).command()
			err := c.UpdateOSDs(t.Context(), "ceph/osds", StayOptions{Wait: true})
			assert.Equal(t, test.code, ExitCode(err))
			if err != nil {
				fmt.Fprintf(errOut, "error: %v\n", err)
			}
			golden(t, "wait-"+strings.ReplaceAll(name, " ", "-")+".txt", out.String()+"--- stderr\n"+errOut.String())
		})
	}
}

// A CephOSD remembers what Temporal has forgotten, or does not tell.
func TestStatusWithoutItsRun(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"forgotten":      func(*world) {},
		"temporal-away":  func(w *world) { w.temporalAway = errAway },
		"policies-away":  func(w *world) { w.policiesAway = errors.New("maintenancepolicies is forbidden") },
		"never-reported": func(w *world) { w.cephOSD.Status = cephv1alpha1.CephOSDStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := rollingWorld()
			edit(w)
			c, out, _ := w.command()
			s, err := c.RolloutStatus(t.Context(), updateID)
			require.NoError(t, err)
			s.Write(out)
			golden(t, "status-run-"+name+".txt", out.String())
		})
	}
	c, _, _ := rollingWorld().command()
	_, err := c.RolloutStatus(t.Context(), "update-osds/ceph/others")
	require.ErrorContains(t, err, "no such CephOSD, and no rollout of it")
}

func TestRestartOSDsStarts(t *testing.T) {
	in := workflows.RestartOSDsInput{
		Namespace: "rook-ceph", Selector: "app=rook-ceph-osd", UpdateDomain: "zone",
		Reason: "new certificate",
	}
	running := rollingOut()
	running.WorkflowID = "restart-osds/rook-ceph"
	w := newWorld()
	w.jobs["restart-osds/rook-ceph"] = []Job{running}
	c, _, _ := w.command()
	err := c.RestartOSDs(t.Context(), in, StayOptions{})
	require.ErrorContains(t, err, "restart-osds/rook-ceph runs since 02:00:00 (60m)")
	require.ErrorContains(t, err, "follow it with `lockkeeper status restart-osds/rook-ceph -w`")

	silent := running
	silent.Status = nil
	w.jobs["restart-osds/rook-ceph"] = []Job{silent, running}
	c, out, _ := w.command()
	require.NoError(t, c.RestartOSDs(t.Context(), in, StayOptions{}))
	assert.Equal(t, []workflows.RestartOSDsInput{in}, w.restarts)
	assert.Contains(t, out.String(), "follow it:  lockkeeper status restart-osds/rook-ceph -w")

	named := in
	named.Policy = "others"
	require.ErrorContains(t, c.RestartOSDs(t.Context(), named, StayOptions{}),
		`--policy: "others": no such MaintenancePolicy in namespace rook-ceph`)
	assert.Len(t, w.restarts, 1)
	named.Policy, named.ProgressDeadline = "rook-ceph", time.Hour
	require.NoError(t, c.RestartOSDs(t.Context(), named, StayOptions{}))
	assert.Equal(t, named, w.restarts[1])
	w.restarts = w.restarts[:1]

	for want, edit := range map[string]func(*workflows.RestartOSDsInput){
		`--progress-deadline: "1s": must be between 10s and`: func(in *workflows.RestartOSDsInput) {
			in.ProgressDeadline = time.Second
		},
		`--policy: "a/b": must be the name of a Maintenance`: func(in *workflows.RestartOSDsInput) {
			in.Policy = "a/b"
		},
		`--namespace: "": must be the name of a namespace`: func(in *workflows.RestartOSDsInput) {
			in.Namespace = ""
		},
		`--selector: "a in": must be a label selector`: func(in *workflows.RestartOSDsInput) {
			in.Selector = "a in"
		},
		`--update-domain: "our shelf": must be OSD, Host, or another`: func(in *workflows.RestartOSDsInput) {
			in.UpdateDomain = "our shelf"
		},
		`--max-parallel: "-1": must be between 0`: func(in *workflows.RestartOSDsInput) {
			in.MaxParallel = -1
		},
	} {
		odd := in
		edit(&odd)
		err := c.RestartOSDs(t.Context(), odd, StayOptions{})
		require.ErrorContains(t, err, want)
		assert.Equal(t, ExitUsage, ExitCode(err))
		assert.Len(t, w.restarts, 1)
	}
}

func TestSignalsOfARollout(t *testing.T) {
	paused := func(s *workflows.UpdateStatus) { s.Paused = true }
	for name, test := range map[string]struct {
		looks []Job
		send  func(*Command) error
		sent  []string
		out   string
		err   string
	}{
		"pause": {
			looks: []Job{rollingOut(), rollingOut(), rollingOut(paused)},
			send:  func(c *Command) error { return c.Signal(t.Context(), "ceph/osds", "pause") },
			sent:  []string{"pause " + updateID}, out: "phase AwaitingOSDs, paused, 3/12",
		},
		"resume": {
			looks: []Job{rollingOut(paused), rollingOut()},
			send:  func(c *Command) error { return c.Signal(t.Context(), updateID, "resume") },
			sent:  []string{"resume " + updateID}, out: "phase AwaitingOSDs, 3/12",
		},
		"abort": {
			looks: []Job{rollingOut(), doneRollout()},
			send:  func(c *Command) error { return c.Signal(t.Context(), "ceph/osds", "abort") },
			sent:  []string{"abort " + updateID},
			out:   "ended 02:59:00 (60s): Done, 12 OSDs replaced in 6 batches, after 59m0s, skipped osd.7",
		},
		"approve": {
			looks: []Job{
				rollingOut(canary), rollingOut(canary),
				rollingOut(canary, func(s *workflows.UpdateStatus) { s.Canary.Approved = true }),
			},
			send: func(c *Command) error { return c.Approve(t.Context(), "ceph/osds") }, sent: []string{"approve " + updateID},
			out: "phase JudgingCanary",
		},
		"approve nothing": {
			looks: []Job{rollingOut()}, send: func(c *Command) error { return c.Approve(t.Context(), "ceph/osds") },
			err: "nothing to approve: no canary of this template has gone yet; update-osds/ceph/osds runs",
		},
		"approve another template's": {
			looks: []Job{rollingOut(canary, func(s *workflows.UpdateStatus) { s.Template = "newer" })},
			send:  func(c *Command) error { return c.Approve(t.Context(), "ceph/osds") },
			err:   "nothing to approve: no canary of this template",
		},
		"approve twice": {
			looks: []Job{rollingOut(canary, func(s *workflows.UpdateStatus) { s.Canary.Judged = true })},
			send:  func(c *Command) error { return c.Approve(t.Context(), "ceph/osds") },
			err:   "nothing to approve: the canary osd.0 was judged already",
		},
		"skip": {
			looks: []Job{rollingOut(), rollingOut(func(s *workflows.UpdateStatus) { s.Skip = []string{"osd.7"} })},
			send:  func(c *Command) error { return c.Skip(t.Context(), "ceph/osds", "7") },
			sent:  []string{"skip " + updateID + " osd.7"}, out: "3/12",
		},
		"skip of a drain": {
			looks: []Job{rollingOut()}, send: func(c *Command) error { return c.Skip(t.Context(), "node-a", "7") },
			err: `JOB: "node-a": must be a rollout`,
		},
		"done": {
			looks: []Job{rollingOut()}, send: func(c *Command) error { return c.Signal(t.Context(), "ceph/osds", "done") },
			err: "a rollout sees by itself when it is done",
		},
		"has ended": {
			looks: []Job{doneRollout()}, send: func(c *Command) error { return c.Signal(t.Context(), "ceph/osds", "pause") },
			err: "update-osds/ceph/osds does not run: update-osds/ceph/osds ended 02:59:00 (60s): Done",
		},
		"another one runs": {
			looks: []Job{rollingOut()}, send: func(c *Command) error { return c.Signal(t.Context(), "ceph/others", "pause") },
			err: "update-osds/ceph/others does not run; running:\n  update-osds/ceph/osds runs since",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := rollingWorld(test.looks...)
			c, out, _ := w.command()
			err := test.send(c)
			assert.Equal(t, test.sent, w.signals)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, out.String(), test.out)
		})
	}
}

// A name that no OSD of the rollout has would excuse nobody, and nobody would hear of it.
func TestSkipKnowsTheOSDs(t *testing.T) {
	restart := func(r Rollout) Rollout {
		r.WorkflowID, r.Status.OSDSet = "restart-osds/rook-ceph",
			activities.OSDSetRef{Kind: activities.OSDSetDeployments, Namespace: "rook-ceph", Selector: "app=rook-ceph-osd"}
		return r
	}
	for name, test := range map[string]struct {
		edit           func(*world)
		job, osd       string
		sent, err, out string
	}{
		"by number": {osd: "3", job: "ceph/osds", sent: "osd.3"},
		"by device": {osd: "node-b:/dev/sdb", job: "ceph/osds", sent: "node-b:/dev/sdb"},
		"no such number": {
			osd: "osd.77", job: "ceph/osds",
			err: `OSD: "osd.77": must be an OSD of CephOSD ceph/osds: osd.0 (node-a:/dev/sda), osd.1 (node-a:/dev/sdb)`,
		},
		"no such device": {
			osd: "node-z:/dev/sda", job: "ceph/osds",
			err: `OSD: "node-z:/dev/sda": must be an OSD of CephOSD ceph/osds`,
		},
		"somebody else's": {osd: "rook-ceph-osd-1", job: "ceph/osds", err: "must be an OSD of CephOSD ceph/osds"},
		"without a number": {
			edit: func(w *world) { w.osdPods = w.osdPods[1:] }, osd: "osd.0", job: "ceph/osds",
			sent: "osd.0", out: "warning: not checked whether CephOSD ceph/osds has an osd.0: the pods do not tell all its " +
				"numbers yet",
		},
		"without numbers": {
			edit: func(w *world) { w.osdPods = nil }, osd: "node-q:/dev/sda", job: "ceph/osds",
			err: "must be an OSD of CephOSD ceph/osds: node-a:/dev/sda, ",
		},
		"no answer": {
			edit: func(w *world) { w.kubeAway = errors.New("connection refused") }, osd: "osd.77",
			job: "ceph/osds", sent: "osd.77", out: "warning: not checked whether there is an osd.77: connection refused",
		},
		"of a restart": {osd: "rook-ceph-osd-2", job: "restart-osds/rook-ceph", sent: "rook-ceph-osd-2"},
		"not of a restart": {
			osd: "4", job: "restart-osds/rook-ceph",
			err: `OSD: "osd.4": must be an OSD of the Deployments of restart-osds/rook-ceph: osd.0 (rook-ceph-osd-0), `,
		},
		"of none":         {osd: "4", job: "restart-osds/ceph", err: "restart-osds/ceph does not run; running:"},
		"no such CephOSD": {osd: "4", job: "ceph/others", err: "update-osds/ceph/others does not run; running:"},
	} {
		t.Run(name, func(t *testing.T) {
			w := plannedWorld()
			heard := func(s *workflows.UpdateStatus) { s.Skip = []string{test.sent} }
			w.jobs[updateID], w.jobs["restart-osds/rook-ceph"] = []Job{rollingOut(heard)}, []Job{restart(rollingOut(heard))}
			if test.edit != nil {
				test.edit(w)
			}
			c, _, errOut := w.command()
			err := c.Skip(t.Context(), test.job, test.osd)
			assert.Contains(t, errOut.String(), test.out)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				assert.Empty(t, w.signals)
				return
			}
			require.NoError(t, err)
			require.Len(t, w.signals, 1)
			assert.Contains(t, w.signals[0], "skip ")
			assert.Contains(t, w.signals[0], " "+test.sent)
		})
	}
}

// Scripts get the job as it is after the signal.
func TestSignalsInJSON(t *testing.T) {
	w := rollingWorld(rollingOut(), rollingOut(func(s *workflows.UpdateStatus) { s.Paused = true }))
	c, out, _ := w.command()
	c.Output = "json"
	require.NoError(t, c.Signal(t.Context(), "ceph/osds", jobs.SignalPause))
	var r Rollout
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	assert.Equal(t, updateID, r.WorkflowID)
	assert.True(t, r.Status.Paused)

	w = drained()
	aborting := running("node-a", "Evicting", 4, "", 0)
	aborting.Status.Aborted = true
	w.jobs["drain/node-a"] = []Job{aborting}
	c, out, _ = w.command()
	c.Output = "json"
	require.NoError(t, c.Signal(t.Context(), "node-a", jobs.SignalAbort))
	var j Drain
	require.NoError(t, json.Unmarshal(out.Bytes(), &j))
	assert.Equal(t, "drain/node-a", j.WorkflowID)
}
