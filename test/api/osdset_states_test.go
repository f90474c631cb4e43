package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// The documented state machine of the original operator, case by case as it lists them, as a survey counts the pods of
// the real API server. Where ours is stricter it says so.
func TestStateLogic(t *testing.T) {
	ready, unready := corev1.ConditionTrue, corev1.ConditionFalse
	waiting := annotated(podspec.StateAnnotation, "waiting")
	otherHash := annotated(podspec.HashAnnotation, "0123456789abcdef")
	for _, c := range []struct {
		name    string
		changes []func(*corev1.Pod)
		kubelet corev1.ConditionStatus
		twice   bool // there is another pod of the OSD that serves
		deleted bool
		want    activities.OSDSetCounts
		do      rollout.Do
		state   string // what is on the pod after it was noted; "" for: as it was
	}{
		{
			name: "terminating", deleted: true, kubelet: ready, want: withPods(rollout.Counts{Total: 1, Unready: 1}, 0, 1),
			do: rollout.DoAwait,
		},
		{
			name: "terminating-invalid", deleted: true, kubelet: ready, changes: []func(*corev1.Pod){podNamed("wrong")},
			want: withPods(rollout.Counts{Total: 1, Unready: 1}, 0, 1), do: rollout.DoAwait,
		},
		{
			name: "duplicate", twice: true, kubelet: unready, want: withPods(rollout.Counts{Total: 1, UpToDate: 1}, 1, 0),
			do: rollout.DoNothing,
		},
		{
			name: "duplicate-of-another-template", twice: true, kubelet: unready, changes: []func(*corev1.Pod){otherHash},
			want: withPods(rollout.Counts{Total: 1, UpToDate: 1}, 1, 0), do: rollout.DoNothing,
		},
		// The original deletes it at once; it is all that serves the OSD's data, so it goes as one that is out of date does.
		{
			name: "wrong-name", kubelet: ready, changes: []func(*corev1.Pod){podNamed("wrong")},
			want: withPods(rollout.Counts{Total: 1, OutOfDate: 1}, 1, 0), do: rollout.DoReplace,
		},
		{
			name: "wrong-name-of-another-template", kubelet: ready, changes: []func(*corev1.Pod){podNamed("wrong"), otherHash},
			want: withPods(rollout.Counts{Total: 1, OutOfDate: 1}, 1, 0), do: rollout.DoReplace,
		},
		{
			name: "ready", kubelet: ready, changes: []func(*corev1.Pod){waiting},
			want: counts(rollout.Counts{Total: 1, Ready: 1}), do: rollout.DoAwait,
		},
		{
			name: "unready", kubelet: unready, changes: []func(*corev1.Pod){waiting},
			want: counts(rollout.Counts{Total: 1, Unready: 1}), do: rollout.DoAwait, state: "unready",
		},
		{
			name: "unready-as-the-code-calls-it", kubelet: unready,
			changes: []func(*corev1.Pod){annotated(podspec.StateAnnotation, "wait-for-ready")},
			want:    counts(rollout.Counts{Total: 1, Unready: 1}), do: rollout.DoAwait, state: "unready",
		},
		{name: "up-to-date", kubelet: ready, want: counts(rollout.Counts{Total: 1, UpToDate: 1}), do: rollout.DoNothing},
		{
			name: "up-to-date-without-a-state", kubelet: ready,
			changes: []func(*corev1.Pod){notAnnotated(podspec.StateAnnotation)},
			want:    counts(rollout.Counts{Total: 1, UpToDate: 1}), do: rollout.DoNothing, state: "up-to-date",
		},
		// The original has no look at it any more.
		{
			name: "up-to-date-and-crashed", kubelet: unready, want: counts(rollout.Counts{Total: 1, UpToDate: 1, Down: 1}),
			do: rollout.DoAwait, state: "unready",
		},
		{
			name: "out-of-date", kubelet: ready, changes: []func(*corev1.Pod){otherHash},
			want: counts(rollout.Counts{Total: 1, OutOfDate: 1}), do: rollout.DoReplace, state: "out-of-date",
		},
		{
			name: "out-of-date-while-waiting", kubelet: unready, changes: []func(*corev1.Pod){otherHash, waiting},
			want: counts(rollout.Counts{Total: 1, OutOfDate: 1}), do: rollout.DoReplace, state: "out-of-date",
		},
		{
			name: "without-its-template", kubelet: ready, changes: []func(*corev1.Pod){notAnnotated(podspec.HashAnnotation)},
			want: withPods(rollout.Counts{Total: 1, OutOfDate: 1}, 1, 0), do: rollout.DoReplace,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newOSDSet(t, "state-"+c.name, oneOSD, "a")
			a := f.osd("a", "/dev/sdb")
			var other *corev1.Pod
			if c.twice {
				other = f.has(a, f.ofTheOriginal("x7f3q"))
			}
			pod := f.has(a, c.changes...)
			if c.kubelet == unready {
				f.ready(pod, unready)
				if !c.twice {
					f.ceph.stops(pod)
				}
			}
			if c.deleted {
				f.runs(pod)
				require.NoError(t, server.Delete(t.Context(), pod.DeepCopy()))
				f.terminating(pod)
			}
			s := f.survey()
			assert.Equal(t, c.want, s.Counts)
			assert.Equal(t, c.do, s.Next.Do)
			if c.do != rollout.DoNothing {
				assert.Equal(t, keys(a), keysOf(s.Next.OSDs))
			}
			assert.Equal(t, c.twice, len(s.Discard) == 1, s.Discard)

			had := f.pods()[pod.Name].Annotations[podspec.StateAnnotation]
			require.NoError(t, f.Note(t.Context(), f.ref))
			if c.state == "" {
				c.state = had
			}
			assert.Equal(t, c.state, f.pods()[pod.Name].Annotations[podspec.StateAnnotation])
			if other != nil {
				f.same(other)
			}
		})
	}
}

func withPods(c rollout.Counts, invalid, terminating int) activities.OSDSetCounts {
	return activities.OSDSetCounts{Counts: c, Invalid: invalid, Terminating: terminating}
}

// A pod that has ended, evicted by its kubelet say, runs nothing, and is made anew. Not at once: what ended it as soon
// as it began would end the next one, too.
func TestAnEndedPod(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "ended", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	pod := f.has(a)
	now := f.pod(a)
	now.Status.Phase, now.Status.Reason = corev1.PodFailed, "Evicted"
	now.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	require.NoError(t, server.Status().Update(t.Context(), now))
	f.ceph.stops(pod)
	s := f.survey()
	assert.Equal(t, 1, s.Counts.Invalid)
	assert.Empty(t, s.Discard)
	assert.Positive(t, s.LookAgain, "it is looked at again when it may go")
	require.NoError(t, f.Discard(t.Context(), f.ref, []string{pod.Name}))
	f.same(pod)

	f.kill(pod)
	do, who := f.next()
	assert.Equal(t, rollout.DoCreate, do)
	assert.Equal(t, keys(a), who)
}
