package starter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var (
	noon     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	fine     = v1alpha1.MaintenancePolicyStatus{MayDrain: "any node"}
	disowned = v1alpha1.MaintenancePolicyStatus{
		MayDrain:   kube.NotKept,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionKept, Status: metav1.ConditionFalse}},
	}
	errAway = errors.New("no worker answers")
)

func TestRemedy(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	for name, c := range map[string]struct {
		keeping Keeping
		says    v1alpha1.MaintenancePolicyStatus
		want    Remedy
	}{
		"kept":                  {Keeping{Good: at(-1)}, fine, Leave},
		"not kept for a moment": {Keeping{Good: at(-14), Why: "?"}, fine, Leave},
		"not kept":              {Keeping{Good: at(-15), Why: "?"}, fine, Disown},
		"not kept, and never reported": {
			Keeping{Good: at(-15), Why: "?"},
			v1alpha1.MaintenancePolicyStatus{},
			Disown,
		},
		"said already": {Keeping{Good: at(-99), Why: "?"}, disowned, Leave},
		"back":         {Keeping{Good: at(0)}, disowned, Recall},
		"back, and only a condition is left": {
			Keeping{Good: at(0)},
			v1alpha1.MaintenancePolicyStatus{MayDrain: "no", Conditions: disowned.Conditions},
			Recall,
		},
		"cannot go on, and nobody says so yet": {Keeping{Good: at(-15), Why: "?", Stuck: true}, fine, Disown},
		"cannot go on":                         {Keeping{Good: at(-20), Why: "?", Stuck: true}, disowned, Restart},
		"cannot go on even so": {
			Keeping{Good: at(-20), Why: "?", Stuck: true, Recalled: at(-5), Recalls: 1},
			disowned, Leave,
		},
		"recalled just now":                     {Keeping{Good: at(0), Recalled: at(-5), Recalls: 1}, disowned, Leave},
		"recalled a while ago":                  {Keeping{Good: at(0), Recalled: at(-20), Recalls: 1}, disowned, Recall},
		"recalled often, and not for long":      {Keeping{Good: at(0), Recalled: at(-299), Recalls: 99}, disowned, Leave},
		"recalled often, and not for very long": {Keeping{Good: at(0), Recalled: at(-300), Recalls: 99}, disowned, Recall},
	} {
		assert.Equal(t, c.want, c.keeping.Remedy(noon, c.says), name)
	}
}

// TestSinceWhen: a watcher that never heard a word of the keeper goes by the status, if that is older.
func TestSinceWhen(t *testing.T) {
	asOf := metav1.NewTime(noon.Add(-time.Hour))
	k := Keeping{}.Heard(noon, workflows.Kept{}, errAway)
	assert.Equal(t, noon, k.Since(fine))
	assert.Equal(t, asOf.Time, k.Since(v1alpha1.MaintenancePolicyStatus{AsOf: &asOf}))
	k = k.Heard(noon.Add(time.Second), workflows.Kept{OK: true}, nil)
	assert.Equal(t, noon.Add(time.Second), k.Since(v1alpha1.MaintenancePolicyStatus{AsOf: &asOf}))
}

// TestKeepingProperty: however answers come and go, a status is disowned only after notKeptFor without a good one,
// within that and two questions of the last good one, and recalled only when the last answer was good.
func TestKeepingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k Keeping
		now, good, says := noon, noon, fine
		for range rapid.IntRange(1, 100).Draw(t, "questions") {
			asked, ok := now, rapid.Bool().Draw(t, "ok")
			took := time.Duration(rapid.IntRange(0, 9000).Draw(t, "ms")) * time.Millisecond
			now = now.Add(took)
			var err error
			if !ok {
				err = errAway
			} else {
				good = asked
			}
			k = k.Heard(asked, workflows.Kept{OK: ok}, err)
			r := k.Remedy(now, says)
			switch {
			case r == Disown && (ok || now.Sub(good) < notKeptFor):
				t.Fatalf("disowned %s after a good answer", now.Sub(good))
			case r == Recall && (!ok || !kube.Disowned(says)):
				t.Fatalf("recalled, and there is nothing to recall")
			case r != Disown && !ok && !kube.Disowned(says) && now.Sub(good) >= notKeptFor:
				t.Fatalf("not disowned %s after the last good answer", now.Sub(good))
			}
			switch k = k.Done(now, r); r {
			case Disown:
				says = disowned
			case Recall:
				says = fine
			case Leave:
			}
			now = now.Add(max(askEvery-took, 0))
		}
	})
}

// statuses remembers what was disowned.
type statuses struct {
	err  error
	said []string
}

func (s *statuses) Disown(_ context.Context, p *v1alpha1.MaintenancePolicy, _ time.Time, why string) error {
	if s.err == nil {
		s.said = append(s.said, p.Name+": "+why)
	}
	return s.err
}

func TestAuditor(t *testing.T) {
	w, says := newWorld(t), &statuses{}
	key := storage.ClusterKey{Namespace: "rook-ceph", Name: "ceph"}
	a := &Auditor{Objects: w.client, Temporal: w.temporal, Statuses: says, Log: logr.Discard()}
	long := func() { // ago was the last good answer
		k := a.keeping[key]
		k.Good = k.Good.Add(-notKeptFor)
		a.keeping[key] = k
	}
	w.temporal.away = errAway
	a.Audit(t.Context())
	require.Empty(t, says.said, "not yet")
	long()
	says.err = apierrors.NewConflict(schema.GroupResource{}, "ceph", errAway)
	a.Audit(t.Context())
	says.err = nil
	a.Audit(t.Context())
	require.Equal(t, []string{"ceph: no worker answers"}, says.said)

	w.temporal.away, w.temporal.kept = nil, workflows.Kept{Why: "the keeper cannot look"}
	a.Audit(t.Context())
	require.Equal(t, "ceph: the keeper cannot look", says.said[1], "the cache does not show yet what was written")

	a.keeping[key] = a.keeping[key].Heard(noon, workflows.Kept{}, fmt.Errorf("keeper: %w", ErrCannotGoOn))
	require.True(t, a.keeping[key].Stuck)
	a.keeping[key] = a.keeping[key].Heard(noon, workflows.Kept{}, errAway)
	require.False(t, a.keeping[key].Stuck, "nobody knows now")

	w.temporal.kept = workflows.Kept{OK: true}
	a.Audit(t.Context())
	require.Empty(t, w.temporal.take(), "the status does not say that nobody keeps it")
	var p v1alpha1.MaintenancePolicy
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &p))
	p.Status = disowned
	require.NoError(t, w.client.Update(t.Context(), &p))
	a.Audit(t.Context())
	a.Audit(t.Context())
	require.Equal(t, []string{"signal rook-ceph/ceph: the status says unknown: nobody keeps this up to date"},
		w.temporal.take(), "once")
	require.True(t, w.temporal.hints[0].Disowned)

	w.temporal.cannot = fmt.Errorf("keeper: %w", ErrCannotGoOn)
	a.keeping[key] = Keeping{Good: noon}
	a.Audit(t.Context())
	a.Audit(t.Context())
	require.Equal(t, []string{"restart rook-ceph/ceph"}, w.temporal.take(), "once")
	w.temporal.cannot = nil

	require.NoError(t, w.client.Delete(t.Context(), &p))
	a.Audit(t.Context())
	require.Empty(t, a.keeping)
}
