package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/workflows"
)

func withMons() *world {
	w := newWorld()
	asOf := agoMeta(0)
	w.cephMon = &v1alpha1.CephMon{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "mons", Generation: 2},
		Spec:       v1alpha1.CephMonSpec{Count: 1},
		Status: v1alpha1.CephMonStatus{
			ObservedGeneration: 2, AsOf: &asOf, Mons: []v1alpha1.MonStatus{{Name: "d", InQuorum: true}},
			Left: []v1alpha1.MonStorageLeft{
				{Mon: "a", Path: "/var/lib/rook/mon-a", Node: "node-a"}, {Mon: "b", Claim: "rook-ceph-mon-b"},
			},
		},
	}
	return w
}

func migrating() Migration {
	m := Migration{
		Execution: Execution{WorkflowID: "migrate-mons/rook-ceph/mons", RunID: "1", State: Running, Started: ago(0)},
		Status:    &workflows.MigrateMonsStatus{},
	}
	m.Status.Phase, m.Status.WaitsFor = workflows.PhaseMonQuorum, "mon.d to be in quorum"
	m.Status.Survey = activities.MonSurvey{Found: true, Counts: activities.MonCounts{Mons: 4, InQuorum: 3}}
	m.Status.Survey.Step.Work = &monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a"}
	return m
}

func TestMigrateMons(t *testing.T) {
	w := withMons()
	w.jobs["migrate-mons/rook-ceph/mons"] = []Job{migrating()}
	c, out, _ := w.command()
	require.NoError(t, c.MigrateMons(t.Context(), "rook-ceph/mons", monplan.Mode{Migrate: true, OneLess: true},
		StayOptions{}))
	assert.Equal(t, []string{"migrate-mons/rook-ceph/mons {Migrate:true OneLess:true}"}, w.migrations)
	assert.Contains(t, out.String(), "Migrate mon.d for mon.a, waits for mon.d to be in quorum")

	require.ErrorContains(t, c.MigrateMons(t.Context(), "rook-ceph/none", monplan.Mode{}, StayOptions{}),
		"no such CephMon")
	require.ErrorContains(t, c.MigrateMons(t.Context(), "mons", monplan.Mode{}, StayOptions{}), "NAMESPACE/NAME")
	assert.Len(t, w.migrations, 1)
}

func TestPlanMigration(t *testing.T) {
	w := withMons()
	work := monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a"}
	w.monPlan = activities.MonPlan{
		Mons: []activities.PlannedMon{{Name: "a", Node: "node-a", Storage: "HostPath /x", InQuorum: true, Different: "old"}},
		Course: []monplan.Step{
			{
				Verdict: monplan.Move, Work: &work, Why: "mon.a: old", Risk: "the zone",
				Acts: []monplan.Act{{Do: monplan.Schedule, Mon: "d"}, {Do: monplan.RemoveMon, Mon: "a"}},
			},
			{Verdict: monplan.Done},
		},
	}
	c, _, _ := w.command()
	plan, err := c.PlanMigration(t.Context(), "rook-ceph/mons", monplan.Mode{Migrate: true})
	require.NoError(t, err)
	var text strings.Builder
	plan.Write(&text)
	for _, line := range []string{
		"1. Migrate mon.d for mon.a: mon.a: old", "Schedule mon.d → RemoveMon mon.a", "risk: the zone",
		"2. Nothing is left to do",
	} {
		assert.Contains(t, text.String(), line)
	}
	plan.Elsewhere = "CephCluster rook"
	text.Reset()
	plan.Write(&text)
	assert.Contains(t, text.String(), "refused: CephCluster rook looks after these mons")
	assert.Contains(t, text.String(), "Without it this would be done:\n\n1. Migrate mon.d for mon.a")
	plan.Elsewhere = ""
	plan.Survey.Refused = []input.Error{{Field: "spec.count", Value: "9", Allowed: "too many"}}
	text.Reset()
	plan.Write(&text)
	assert.Contains(t, text.String(), `refused: spec.count: "9": too many`)
	assert.NotContains(t, text.String(), "1. ", "what is refused has no course")
}

func TestCleanMons(t *testing.T) {
	w := withMons()
	c, out, _ := w.command()
	require.NoError(t, c.CleanMons(t.Context(), "rook-ceph/mons", false, false))
	assert.Empty(t, w.deletedClaims)
	assert.Len(t, w.cephMon.Status.Left, 2)
	assert.Contains(t, out.String(), "rook-ceph-mon-b of mon.b would be deleted")

	// The status is of yesterday, and a mon has died since; or nobody can look.
	fresh := func(inQuorum int, err error) {
		w.monPlan, w.planFails = activities.MonPlan{}, err
		w.monPlan.Survey.Counts = activities.MonCounts{Mons: 3, InQuorum: inQuorum, Wanted: 1}
		w.monPlan.Survey.Step.Why = "Ceph has not committed anything"
	}
	for says, set := range map[string]func(){
		"2 of 3 mons are in quorum":       func() { fresh(2, nil) },
		"Ceph has not committed anything": func() { fresh(0, nil) },
		"nobody could look at the mons":   func() { fresh(3, errors.New("no worker")) },
	} {
		set()
		require.ErrorContains(t, c.CleanMons(t.Context(), "rook-ceph/mons", true, true), says)
		assert.Empty(t, w.deletedClaims)
		assert.Len(t, w.cephMon.Status.Left, 2)
	}
	fresh(3, nil)
	require.NoError(t, c.CleanMons(t.Context(), "rook-ceph/mons", false, true))
	require.Len(t, w.cephMon.Status.Left, 1, "what was only listed is not forgotten")
	assert.Equal(t, "rook-ceph-mon-b", w.cephMon.Status.Left[0].Claim)
	w.cephMon.Status.Left = withMons().cephMon.Status.Left

	require.NoError(t, c.CleanMons(t.Context(), "rook-ceph/mons", true, false))
	assert.Equal(t, []string{"rook-ceph-mon-b"}, w.deletedClaims)
	assert.Equal(t, "a", w.cephMon.Status.Left[0].Mon, "a path stays on the list until somebody says that it is gone")
	require.NoError(t, c.CleanMons(t.Context(), "rook-ceph/mons", false, true))
	assert.Empty(t, w.cephMon.Status.Left)

	for what, break_ := range map[string]func(*v1alpha1.CephMon){
		"out of quorum": func(m *v1alpha1.CephMon) { m.Status.Mons[0].InQuorum = false },
		"under way":     func(m *v1alpha1.CephMon) { m.Status.Step = &v1alpha1.MonStep{Kind: "Add", Mon: "e"} },
		"are wanted":    func(m *v1alpha1.CephMon) { m.Spec.Count = 3 },
		"was changed":   func(m *v1alpha1.CephMon) { m.Generation = 3 },
	} {
		w := withMons()
		break_(w.cephMon)
		c, _, _ := w.command()
		require.ErrorContains(t, c.CleanMons(t.Context(), "rook-ceph/mons", true, true), what)
		assert.Empty(t, w.deletedClaims)
	}
}
