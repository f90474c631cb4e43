package cli

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// threeMons is a world with a CephMon whose mons are in quorum and as it says.
func threeMons() *world {
	w := newWorld()
	asOf, since := agoMeta(time.Minute), agoMeta(2*time.Hour)
	w.cephMon = &v1alpha1.CephMon{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "mons", Generation: 2},
		Spec:       v1alpha1.CephMonSpec{Count: 3, HealthTimeout: &metav1.Duration{Duration: 10 * time.Minute}},
		Status: v1alpha1.CephMonStatus{
			ObservedGeneration: 2, AsOf: &asOf, Since: &since, Quorum: "3/3", AsSpec: "3/3", Reason: "Settled",
		},
	}
	for i, mon := range []string{"a", "b", "c"} {
		at := string("xyz"[i])
		w.cephMon.Status.Mons = append(w.cephMon.Status.Mons, v1alpha1.MonStatus{
			Name: mon, Node: "node-" + mon, Zone: "zone-" + at, Storage: "HostPath /var/lib/rook/mon-" + mon + "/data",
			InQuorum: true, AsSpec: true,
		})
	}
	return w
}

// differentMons is the same where the spec asks for volumes, and nobody has asked to move them.
func differentMons() *world {
	w := threeMons()
	const why = "its store is on HostPath, and the spec says a PVC of class fast"
	s := &w.cephMon.Status
	s.AsSpec, s.Reason = "0/3", "Different"
	s.Message = "mon.a: " + why + "; mon.b: " + why + "; mon.c: " + why +
		"; `lockkeeper migrate-mons` moves and removes mons"
	for i := range s.Mons {
		s.Mons[i].AsSpec, s.Mons[i].Different = false, why
	}
	return w
}

// movingMons is the same while mon.a moves.
func movingMons() *world {
	w := differentMons()
	since := agoMeta(12 * time.Second)
	s := &w.cephMon.Status
	s.Reason, s.Message, s.Since = "Working", "", &since
	s.Step = &v1alpha1.MonStep{Kind: "Migrate", Mon: "d", Replaces: "a", Phase: "AwaitQuorum", Since: &since}
	job := migrating()
	job.Started, job.Status.Phase, job.Status.Since = ago(20*time.Second), workflows.PhaseMonQuorum, ago(5*time.Second)
	w.jobs["migrate-mons/rook-ceph/mons"] = []Job{job}
	return w
}

// monCases are worlds, and who asks there about what.
var monCases = map[string]struct {
	world   func() *world
	mon     string // "": of all
	settled bool
}{
	"settled":        {threeMons, "", true},
	"one-settled":    {threeMons, "b", true},
	"different":      {differentMons, "", false},
	"one-different":  {differentMons, "a", false},
	"moving":         {movingMons, "", false},
	"one-leaves":     {movingMons, "a", false},
	"one-comes":      {movingMons, "d", false},
	"one-waits":      {movingMons, "c", false},
	"temporal-away":  {temporalAwayMons, "", false},
	"not-looked":     {func() *world { w := threeMons(); w.cephMon.Generation++; return w }, "", false},
	"never-looked":   {neverLooked, "", false},
	"job-terminated": {terminatedMons, "a", false},
	"one-out":        {oneOut, "c", false},
	"refused":        {refusedMons, "", false},
	"no-quorum":      {noQuorum, "", false},
	"one-unproved":   {noQuorum, "a", false},
	"one-gone":       {oneGone, "a", false},
	"superfluous":    {superfluous, "c", false},
	"job-is-silent":  {silentMons, "", false},
	"rolled-back":    {rolledBack, "d", false},
}

func temporalAwayMons() *world {
	w := movingMons()
	w.temporalAway = errors.New("Temporal does not answer at 127.0.0.1:7233")
	return w
}

func neverLooked() *world {
	w := threeMons()
	w.cephMon.Status = v1alpha1.CephMonStatus{}
	return w
}

// terminatedMons: somebody has terminated the job in the middle of a step.
func terminatedMons() *world {
	w := movingMons()
	job := migrating()
	job.State, job.Ended, job.Status = "Terminated", ago(5*time.Second), nil
	w.jobs["migrate-mons/rook-ceph/mons"] = []Job{job}
	return w
}

func oneOut() *world {
	w := threeMons()
	since := agoMeta(3 * time.Minute)
	s := &w.cephMon.Status
	s.Reason, s.Message = "Waiting", "mon.c is out of quorum; it is replaced if it stays so"
	s.Since, s.Quorum = &since, "2/3"
	s.Mons[2].InQuorum, s.Mons[2].OutSince = false, &since
	s.FatalZones = []string{"zone-x", "zone-y"}
	job := migrating()
	job.Started, job.Status.Phase, job.Status.WaitsFor = ago(3*time.Minute), workflows.PhaseRest, s.Message
	job.Status.Survey = activities.MonSurvey{Found: true}
	w.jobs["migrate-mons/rook-ceph/mons"] = []Job{job}
	return w
}

func refusedMons() *world {
	w := differentMons()
	s := &w.cephMon.Status
	s.Reason = "Refused"
	s.Message = "mon.a: its store is on HostPath, and the spec says a PVC of class fast; no node is free: node-a has " +
		"mon.a, node-b has mon.b, node-c has mon.c; with --one-less mon.a would leave before its successor joins, and for " +
		"that time none of the other 2 mons could be spared"
	return w
}

func noQuorum() *world {
	w := oneOut()
	s := &w.cephMon.Status
	s.Reason = "NoQuorum"
	s.Message = "Ceph has not committed anything: timed out; 2 of the 3 mons have to answer: no pod runs of mon.b, mon.c"
	return w
}

func oneGone() *world {
	w := threeMons()
	s := &w.cephMon.Status
	s.Mons[0].Name = "d"
	s.Left = []v1alpha1.MonStorageLeft{{Mon: "a", Path: "/var/lib/rook/mon-a/data", Node: "node-a"}}
	return w
}

func superfluous() *world {
	w := threeMons()
	s := &w.cephMon.Status
	s.Reason, s.Message = "Different", "mon.c is superfluous; `lockkeeper migrate-mons` moves and removes mons"
	return w
}

func silentMons() *world {
	w := movingMons()
	job := migrating()
	job.Status, job.Silent = nil, "no worker answers"
	w.jobs["migrate-mons/rook-ceph/mons"] = []Job{job}
	return w
}

func rolledBack() *world {
	w := movingMons()
	w.cephMon.Status.Step.Undo = "the spec was changed"
	w.cephMon.Status.Step.Phase = "DropTraces"
	return w
}

func TestExplainMons(t *testing.T) {
	for name, c := range monCases {
		t.Run(name, func(t *testing.T) {
			command, out, _ := c.world().command()
			var e MonsExplanation
			var err error
			if c.mon == "" {
				e, err = command.ExplainCephMon(t.Context(), "rook-ceph/mons")
			} else {
				e, err = command.ExplainMon(t.Context(), "rook-ceph", c.mon)
			}
			require.NoError(t, err)
			assert.Equal(t, c.settled, e.Settled)
			assert.Equal(t, c.settled, len(e.Why) == 0)
			e.Write(out)
			golden(t, "explain-mons-"+name+".txt", out.String())
			text, err := json.Marshal(e)
			require.NoError(t, err)
			assert.Contains(t, string(text), `"why":[`, "a list, also when it is empty")
		})
	}
}

// TestExplainMonsPod: who asks about a mon's pod is told what MigrateMons says of the mon.
func TestExplainMonsPod(t *testing.T) {
	w := movingMons()
	w.deletion = kube.Deletion{Found: true, Node: "node-a", Daemon: "mon.a", Owner: "ReplicaSet/rook-ceph-mon-a-5d94"}
	command, out, _ := w.command()
	e, err := command.ExplainPod(t.Context(), "rook-ceph", "rook-ceph-mon-a-5d94-x", "", "lockkeeper-system")
	require.NoError(t, err)
	assert.True(t, e.MayDelete)
	require.NotNil(t, e.Mon)
	e.Write(out)
	golden(t, "explain-pod-of-a-mon.txt", out.String())

	w.cephMon = nil
	e, err = command.ExplainPod(t.Context(), "rook-ceph", "rook-ceph-mon-a-5d94-x", "", "lockkeeper-system")
	require.NoError(t, err, "where nobody has a CephMon pods are explained all the same")
	assert.Nil(t, e.Mon)
}

func TestExplainMonsRefuses(t *testing.T) {
	command, _, _ := threeMons().command()
	_, err := command.ExplainMon(t.Context(), "rook-ceph", "z")
	require.ErrorContains(t, err, "none of the 1 CephMons in namespace rook-ceph knows of it")
	_, err = command.ExplainMon(t.Context(), "elsewhere", "a")
	require.ErrorContains(t, err, "none of the 0 CephMons")
	_, err = command.ExplainCephMon(t.Context(), "rook-ceph/others")
	require.ErrorContains(t, err, "no such CephMon")
	_, err = command.ExplainCephMon(t.Context(), "mons")
	require.ErrorContains(t, err, "NAMESPACE/NAME")

	w := threeMons()
	w.kubeAway = errors.New("forbidden")
	command, _, _ = w.command()
	_, err = command.ExplainMon(t.Context(), "rook-ceph", "a")
	require.ErrorContains(t, err, "forbidden")
}

func TestExplainsMon(t *testing.T) {
	for arg, mon := range map[string]string{"mon/a": "a", "mon/mon.a": "a", "mon.a": "", "pod/a": "", "node-a": ""} {
		got, ok := ExplainsMon(arg)
		assert.Equal(t, mon != "", ok, arg)
		if ok {
			assert.Equal(t, mon, got)
		}
	}
	name, ok := ExplainsCephMon("cephmon/mons")
	assert.True(t, ok)
	assert.Equal(t, "mons", name)
}
