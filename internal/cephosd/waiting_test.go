package cephosd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

var replicaSetsResource = appsv1.SchemeGroupVersion.WithResource("replicasets")

// waitingBed is a cluster in which every Deployment was changed: osd.0 on a in zone x, osd.1 and osd.2 on b in zone y,
// and mons a and b beside them. All old pods run, and wait.
type waitingBed struct{ *bed }

func newWaitingBed(t *testing.T) *waitingBed {
	b := &waitingBed{newBed(t, twoOSDs)}
	b.ref = activities.OSDSetRef{Kind: activities.OSDSetWaiting, Namespace: namespace, Name: "waiting", Policy: "policy"}
	b.ceph.epoch = 9
	for _, d := range []struct{ daemon, host, zone string }{
		{"osd.0", "a", "x"}, {"osd.1", "b", "y"}, {"osd.2", "b", "y"}, {"mon.a", "a", ""}, {"mon.b", "b", ""}, {
			"mon.c",
			"c", "",
		},
	} {
		b.workload(d.daemon, d.host)
		if id := osdID(d.daemon); id >= 0 {
			b.ceph.osds = append(b.ceph.osds, cephcluster.OSD{ID: id, Up: true, UpFrom: 5, Serving: true, Domain: d.zone})
		} else {
			b.ceph.mons.Map = append(b.ceph.mons.Map, quorum.Mon{Name: strings.TrimPrefix(d.daemon, "mon."), Alive: true})
		}
	}
	b.ceph.mons.Election = 4
	b.typed.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction)
		b.log = append(b.log, "evict "+e.Name)
		return true, nil, b.evicted(e)
	})
	return b
}

// evicted is what the API server does: it takes the very pod that was named.
func (b *waitingBed) evicted(e *policyv1.Eviction) error {
	x, err := b.typed.Tracker().Get(podsResource, namespace, e.Name)
	if err != nil {
		return err
	}
	var only *metav1.Preconditions
	if e.DeleteOptions != nil {
		only = e.DeleteOptions.Preconditions
	}
	if p := x.(*corev1.Pod); only != nil && only.UID != nil && p.UID != *only.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, e.Name, fmt.Errorf("another UID"))
	}
	return b.typed.Tracker().Delete(podsResource, namespace, e.Name)
}

func labelsOf(daemon string) map[string]string {
	if id := osdID(daemon); id >= 0 {
		return map[string]string{"app": "rook-ceph-osd", podspec.IDLabel: fmt.Sprint(id)}
	}
	return map[string]string{"app": "rook-ceph-mon", "ceph_daemon_id": strings.TrimPrefix(daemon, "mon.")}
}

func (b *waitingBed) workload(daemon, host string) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: daemon, UID: types.UID("d " +
		daemon)}}
	d.Spec.Replicas = new(int32(1))
	d.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "osd", Image: "ceph:1"}}}
	require.NoError(b, b.typed.Tracker().Create(deploymentsResource, d, namespace))
	r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: daemon + "-old",
		UID: types.UID("r " + daemon),
	}}
	r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
		appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	r.Spec.Replicas = new(int32(0))
	require.NoError(b, b.typed.Tracker().Create(replicaSetsResource, r, namespace))
	b.pod(daemon, host, "old", metav1.NewControllerRef(r, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
}

func (b *waitingBed) pod(daemon, host, life string, owner *metav1.OwnerReference) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: daemon + "-" + life, UID: types.UID(life + " " + daemon), Labels: labelsOf(daemon),
	}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	kind, _, _ := strings.Cut(daemon, ".")
	p.Spec = corev1.PodSpec{NodeName: host, Containers: []corev1.Container{{Name: kind, Image: "ceph:1"}}}
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: kind, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	require.NoError(b, b.typed.Tracker().Create(podsResource, p, namespace))
}

// wants has the Deployment of a daemon want so many pods, and its old ReplicaSet, too.
func (b *waitingBed) wants(daemon string, deployment, replicaSet int32) {
	b.deployment(daemon, func(d *appsv1.Deployment) { d.Spec.Replicas = &deployment })
	x, err := b.typed.Tracker().Get(replicaSetsResource, namespace, daemon+"-old")
	require.NoError(b, err)
	r := x.(*appsv1.ReplicaSet).DeepCopy()
	r.Spec.Replicas = &replicaSet
	require.NoError(b, b.typed.Tracker().Update(replicaSetsResource, r, namespace))
}

// deployment changes a daemon's Deployment.
func (b *waitingBed) deployment(daemon string, edit func(*appsv1.Deployment)) {
	b.writes("kubectl", daemon, edit)
}

// writes has somebody edit a deployment, who then owns what has changed by it.
func (b *waitingBed) writes(manager, daemon string, edit func(*appsv1.Deployment)) {
	x, err := b.typed.Tracker().Get(deploymentsResource, namespace, daemon)
	require.NoError(b, err)
	d := x.(*appsv1.Deployment).DeepCopy()
	edit(d)
	require.NoError(b, b.typed.Tracker().Update(deploymentsResource, d, namespace,
		metav1.UpdateOptions{FieldManager: manager}))
}

func (b *waitingBed) image(daemon, image string) {
	b.deployment(daemon, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

func (b *waitingBed) noMons() {
	for _, m := range []string{"mon.a", "mon.b", "mon.c"} {
		b.wants(m, 1, 1)
	}
}

func (b *waitingBed) look(in activities.SurveyInput) activities.Survey {
	in.OSDSet = b.ref
	s, err := b.osdSets.Survey(b.Context(), in)
	require.NoError(b, err)
	return s
}

func (b *waitingBed) policy(edit func(*v1alpha1.MaintenancePolicy)) {
	p := &v1alpha1.MaintenancePolicy{}
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "policy"}, p))
	edit(p)
	require.NoError(b, b.api.Update(b.Context(), p))
}

func TestWhatWaitsInOrder(t *testing.T) {
	b := newWaitingBed(t)
	s := b.look(activities.SurveyInput{})
	require.Equal(t, []string{"mon.c"}, keysOf(s.Next.OSDs), "mons first, one by one, and those without OSDs beside them")
	require.Equal(t, lease.Mon("c"), s.Next.Domain, "no failure domain opens for it")
	b.wants("mon.c", 1, 1)
	s = b.look(activities.SurveyInput{})
	require.Equal(t, []string{"mon.a"}, keysOf(s.Next.OSDs))
	require.Equal(t, storage.FailureDomain{Type: "zone", Name: "x"}, s.Next.Domain, "that of the OSDs beside it")
	require.True(t, s.Rules.Consent)
	require.Empty(t, s.Superfluous)
	require.Equal(t, 5, s.Counts.OutOfDate)

	b.noMons()
	s = b.look(activities.SurveyInput{})
	require.Equal(t, []string{"osd.0"}, keysOf(s.Next.OSDs), "then OSDs, the very first one alone")
	b.wants("osd.0", 1, 1)
	s = b.look(activities.SurveyInput{Done: 1})
	require.Equal(t, []string{"osd.1", "osd.2"}, keysOf(s.Next.OSDs), "then all of a failure domain")
	done, of := s.Counts.Progress()
	require.Equal(t, []int{1, 3}, []int{done, of})

	b.policy(func(p *v1alpha1.MaintenancePolicy) {
		p.Spec.Ceph = &v1alpha1.CephSpec{Restarts: v1alpha1.RestartsAutomatic}
	})
	require.False(t, b.look(activities.SurveyInput{}).Rules.Consent)
	b.policy(func(p *v1alpha1.MaintenancePolicy) { p.Spec.Ceph.Restarts = v1alpha1.RestartsObserve })
	require.False(t, b.look(activities.SurveyInput{}).Found, "only looked at")
}

// TestWhatIsOpenGoesFirst, although another failure domain comes first by its name.
func TestWhatIsOpenGoesFirst(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	b.policy(func(p *v1alpha1.MaintenancePolicy) {
		p.Status.OpenFailureDomain = &v1alpha1.FailureDomain{Type: "zone", Name: "y"}
	})
	require.Equal(t, []string{"osd.1"}, keysOf(b.look(activities.SurveyInput{}).Next.OSDs))
}

// TestNothingGoesBeforeWhatWentIsBack.
func TestNothingGoesBeforeWhatWentIsBack(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	in := b.replacement(b.look(activities.SurveyInput{}))
	require.NoError(t, b.osdSets.Replace(t.Context(), in))
	require.Equal(t, []string{"evict osd.0-old"}, b.log)
	spared, answer, err := b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.True(t, answer.OK)
	require.Equal(t, in.OSDs, spared, "an attempt before this one has stopped it")

	o := in.OSDs[0]
	gone := []activities.LetGo{{Key: o.Key, Pod: o.Pod, Epoch: o.Epoch}}
	require.EqualValues(t, 5, o.Epoch)
	next := func() rollout.Step { return b.look(activities.SurveyInput{LetGo: gone}).Next }
	await := activities.AwaitInput{OSDSet: b.ref, Cluster: in.Cluster, Keys: []string{"osd.0"}, LetGo: gone}
	require.Equal(t, rollout.DoAwait, next().Do, "it has no pod")
	b.pod("osd.0", "a", "new", nil)
	require.Equal(t, rollout.DoAwait, next().Do, "Ceph has not missed it yet")
	b.ceph.osds[0].UpFrom = 12
	a, err := b.osdSets.Await(t.Context(), await, func(activities.Arrival) {})
	require.NoError(t, err)
	require.Equal(t, activities.Arrival{}, a)
	require.Equal(t, rollout.DoReplace, b.look(activities.SurveyInput{Done: 1}).Next.Do)
}

// TestWhatIsTakenBackStays, however late that is.
func TestWhatIsTakenBackStays(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	in := b.replacement(b.look(activities.SurveyInput{}))
	b.wants("osd.0", 1, 1)
	_, answer, err := b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.False(t, answer.OK)
	require.Contains(t, answer.Reason, "osd.0 is not to go any more")
	b.wants("osd.0", 0, 0)
	_, answer, err = b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, answer.Reason, "or in another way", "to be restarted is not to be removed")
}

// TestWhoTakesANodeTakesItsPods: what is on it is not let go, and not waited for.
func TestWhoTakesANodeTakesItsPods(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	in := b.replacement(b.look(activities.SurveyInput{}))
	n, err := b.typed.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	n.Spec.Unschedulable = true
	_, err = b.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, answer, err := b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, storage.Answer{Reason: "node a is cordoned"}, answer)
	s := b.look(activities.SurveyInput{})
	require.Equal(t, []string{"osd.1"}, keysOf(s.Next.OSDs))
	require.Contains(t, s.Superfluous[0].Why, "node a is cordoned: what takes its place would find no home")
}

// TestWhatWouldFindNoHomeStays: nobody is stopped for a pod that no node takes, also if that is so since the look.
func TestWhatWouldFindNoHomeStays(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	in := b.replacement(b.look(activities.SurveyInput{}))
	d, err := b.typed.AppsV1().Deployments(b.ref.Namespace).Get(t.Context(), "osd.0", metav1.GetOptions{})
	require.NoError(t, err)
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
	_, err = b.typed.AppsV1().Deployments(b.ref.Namespace).Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, answer, err := b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, storage.Answer{Reason: "its template selects no node"}, answer)
	s := b.look(activities.SurveyInput{})
	require.Equal(t, []string{"osd.1"}, keysOf(s.Next.OSDs))
	require.Contains(t, s.Superfluous[0].Why, "its template selects no node: what takes its place would find no home")
}

func TestMonsOneAtATime(t *testing.T) {
	b := newWaitingBed(t)
	b.wants("mon.c", 1, 1)
	in := b.replacement(b.look(activities.SurveyInput{}))
	b.ceph.mons.Map[1].Alive = false
	_, answer, err := b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, storage.Answer{Reason: "out of quorum: mon.b"}, answer)
	b.ceph.mons.Map[1].Alive = true
	_, answer, err = b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.True(t, answer.OK)
	require.NoError(t, b.osdSets.Replace(t.Context(), in))
	gone := []activities.LetGo{{Key: "mon.a", Pod: in.OSDs[0].Pod, Epoch: in.OSDs[0].Epoch}}
	b.pod("mon.a", "a", "new", nil)
	s := b.look(activities.SurveyInput{LetGo: gone})
	require.Equal(t, rollout.DoAwait, s.Next.Do, "the quorum of before says nothing of the mon of now")
	require.Equal(t, []string{"mon.a"}, keysOf(s.Next.OSDs))
	b.ceph.mons.Election = 6
	require.Equal(t, rollout.Ready, b.look(activities.SurveyInput{LetGo: gone}).Next.OSDs[0].State)
	require.Equal(t, []string{"mon.b"}, keysOf(b.look(activities.SurveyInput{Done: 1}).Next.OSDs))
}

// TestForGood: what is removed goes when Ceph says that nobody needs it, and waits until then.
func TestForGood(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	b.wants("osd.1", 1, 1)
	b.wants("osd.2", 1, 1)
	b.wants("osd.0", 0, 0)
	b.ceph.needed = func(int) string { return "19 PGs are on it" }
	s := b.look(activities.SurveyInput{})
	require.Equal(t, rollout.DoNothing, s.Next.Do)
	require.Equal(t, []activities.Superfluous{{
		Key: "osd.0", Why: "it goes for good, and Ceph does not call it safe to destroy: 19 PGs are on it",
	}}, s.Superfluous)
	b.ceph.needed = nil
	in := b.replacement(b.look(activities.SurveyInput{}))
	require.Equal(t, []string{"osd.0"}, keysOf(in.OSDs))
	require.NoError(t, b.osdSets.Replace(t.Context(), in))
	gone := []activities.LetGo{{Key: "osd.0", Pod: in.OSDs[0].Pod, ForGood: in.OSDs[0].ForGood}}
	a, err := b.osdSets.Await(t.Context(), activities.AwaitInput{
		OSDSet: b.ref, Cluster: in.Cluster, Keys: []string{"osd.0"}, LetGo: gone,
	}, func(activities.Arrival) {})
	require.NoError(t, err)
	require.Equal(t, []string{"osd.0"}, a.Excused, "nobody waits for it")

	b.wants("mon.b", 0, 0)
	require.Contains(t, b.look(activities.SurveyInput{}).Superfluous[0].Why, "`ceph mon remove b`")
	b.ceph.mons.Map = b.ceph.mons.Map.Without("b")
	next := b.look(activities.SurveyInput{}).Next
	require.Equal(t, []string{"mon.b"}, keysOf(next.OSDs))
	require.Zero(t, next.Domain, "the quorum does without it")

	b.wants("mon.b", 1, 1)
	b.wants("mon.c", 0, 0)
	b.ceph.mons.Map = b.ceph.mons.Map.Without("c")
	require.Equal(t, []string{"mon.c"}, keysOf(b.look(activities.SurveyInput{}).Next.OSDs), "on a node without OSDs, too")
}

// TestABudgetRefusesForAMoment, and no other pod of that name goes instead.
func TestABudgetRefusesForAMoment(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	refusals := 2
	b.typed.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if refusals--; a.GetSubresource() == "eviction" && refusals >= 0 {
			return true, nil, apierrors.NewTooManyRequests("the budget needs 1000000", 0)
		}
		return false, nil, nil
	})
	in := b.replacement(b.look(activities.SurveyInput{}))
	require.NoError(t, b.osdSets.Replace(t.Context(), in))
	require.Equal(t, []string{"evict osd.0-old"}, b.log)
	in.OSDs[0].Pod = "of another life"
	require.NoError(t, b.osdSets.Replace(t.Context(), in))
	require.Len(t, b.log, 1)
}

// TestTheImageIsJudgedBefore: what somebody else upgrades has to be what Ceph can take.
func TestTheImageIsJudgedBefore(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	b.image("osd.0", "ceph:2")
	in := b.replacement(b.look(activities.SurveyInput{}))
	b.says = "ceph version 20.2.4 (2c) tentacle (stable)"
	out, err := b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, out.Waits, "not all monitors are of release 20 yet")
	require.Equal(t, []string{"ask ceph:2"}, b.log)
}

// TestTheImageOfAMonIsJudgedBefore, by rules of its own: none goes back, and none leaves out a release.
func TestTheImageOfAMonIsJudgedBefore(t *testing.T) {
	for says, want := range map[string]struct{ refused, waits string }{
		"ceph version 16.2.15 (2c) pacific (stable)": {refused: "none can go back to Ceph 16.2.15"},
		"ceph version 18.2.7 (2c) reef (stable)":     {},
		"ceph version 20.2.4 (2c) tentacle (stable)": {},
		"ceph version 21.2.0 (2c) umbrella (stable)": {refused: "more than 2 releases newer than 18"},
		"nothing of the kind":                        {waits: "to say which version it is"},
	} {
		b := newWaitingBed(t)
		b.image("mon.c", "ceph:2")
		in := b.replacement(b.look(activities.SurveyInput{}))
		require.Equal(t, []string{"mon.c"}, keysOf(in.OSDs))
		b.says = says
		out, err := b.osdSets.Rehearse(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want.refused != "", out.Refused != nil, "%s: %+v", says, out)
		if out.Refused != nil {
			require.Equal(t, "image of Deployment mon.c", out.Refused.Field)
			require.Contains(t, out.Refused.Allowed, want.refused)
		}
		require.Equal(t, want.waits != "", out.Waits != "", "%s: %+v", says, out)
		require.Contains(t, out.Waits, want.waits)
		require.Equal(t, []string{"ask ceph:2"}, b.log)
	}
}

// TestAMonDoesNotGoBackInMidUpgrade: what the oldest of them may be says nothing of the one that has gone ahead.
func TestAMonDoesNotGoBackInMidUpgrade(t *testing.T) {
	b := newWaitingBed(t)
	b.image("mon.c", "ceph:2")
	in := b.replacement(b.look(activities.SurveyInput{}))
	b.says = "ceph version 18.2.7 (2c) reef (stable)"
	b.ceph.monsAre = map[string]upgrade.Version{"b": {Release: 20}, "c": {Release: 18}}
	out, err := b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out)
	b.ceph.monsAre["c"] = upgrade.Version{Release: 20, Minor: 2, Patch: 4}
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, out.Refused.Allowed, "mon.c runs Ceph 20.2.4, and its store cannot go back to 18.2.7")
	b.ceph.monsUnknown = "the Ceph user lacks a right"
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, activities.Rehearsal{Waits: "the Ceph user lacks a right"}, out)
}

// TestRooksWordCountsWhereNobodyMayAsk: Rook has run the image to learn its version, and says it on what it gives that
// image to.
func TestRooksWordCountsWhereNobodyMayAsk(t *testing.T) {
	const asked = "annotate deployment mon.c lockkeeper.io/version-of-image=18.2.7"
	for _, test := range []struct{ writer, says, refused, waits string }{
		{writer: "rook", says: "", waits: asked},
		{writer: "rook", says: "nonsense", waits: asked},
		{writer: "rook", says: "18.2.7-0"},
		{writer: "rook", says: "16.2.15-0", refused: "none can go back to Ceph 16.2.15"},
		{writer: "helm", says: "18.2.7-0", waits: asked},
	} {
		b := newWaitingBed(t)
		b.writes(test.writer, "mon.c", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "ceph:2"
			d.Labels = map[string]string{kube.RookVersionLabel: test.says}
		})
		b.typed.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("no right"))
		})
		in := b.replacement(b.look(activities.SurveyInput{}))
		out, err := b.osdSets.Rehearse(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, test.refused != "", out.Refused != nil, "%+v: %+v", test, out)
		if out.Refused != nil {
			require.Contains(t, out.Refused.Allowed, test.refused)
		}
		require.Equal(t, test.waits != "", out.Waits != "", "%+v: %+v", test, out)
		require.Contains(t, out.Waits, test.waits)
	}
}

// TestRestartWindows: in between nothing goes, a window that makes no sense is named, and nothing goes because of it.
func TestRestartWindows(t *testing.T) {
	b := newWaitingBed(t)
	require.False(t, b.look(activities.SurveyInput{}).Rules.Shut, "without windows always")
	during := func(schedule string, lasts time.Duration) activities.Survey {
		b.policy(func(p *v1alpha1.MaintenancePolicy) {
			p.Spec.Ceph = &v1alpha1.CephSpec{RestartWindows: []cephv1alpha1.Window{
				{Schedule: schedule, Duration: metav1.Duration{Duration: lasts}},
			}}
		})
		return b.look(activities.SurveyInput{})
	}
	s := during("* * * * *", time.Hour)
	require.Empty(t, s.Refused)
	require.False(t, s.Rules.Shut)
	next := time.Now().UTC().Add(36 * time.Hour)
	s = during(fmt.Sprintf("0 0 %d %d *", next.Day(), next.Month()), time.Minute)
	require.Empty(t, s.Refused)
	require.True(t, s.Rules.Shut)
	require.WithinDuration(t, next, s.Rules.WindowChanges, 36*time.Hour)
	require.NotEmpty(t, s.Next.OSDs, "it says what will go then")
	s = during("0 25 * * *", time.Minute)
	require.Len(t, s.Refused, 1)
	require.Equal(t, "spec.ceph.restartWindows[0].schedule", s.Refused[0].Field)
	require.Empty(t, s.Next.OSDs)
	s = b.look(activities.SurveyInput{LetGo: []activities.LetGo{{Key: "osd.0"}}})
	require.Empty(t, s.Refused, "what went is awaited all the same")
	require.True(t, s.Rules.Shut)
}

// TestAnotherPodOfTheNameStays: a StatefulSet makes the next pod under the name of the last one. Between the look and
// the eviction that may have happened.
func TestAnotherPodOfTheNameStays(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	in := b.replacement(b.look(activities.SurveyInput{}))
	replaced := false
	b.typed.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" || replaced {
			return false, nil, nil
		}
		replaced = true
		require.NoError(t, b.typed.Tracker().Delete(podsResource, namespace, "osd.0-old"))
		b.pod("osd.0", "a", "old", nil)
		x, err := b.typed.Tracker().Get(podsResource, namespace, "osd.0-old")
		require.NoError(t, err)
		next := x.(*corev1.Pod).DeepCopy()
		next.UID = "the next one"
		require.NoError(t, b.typed.Tracker().Update(podsResource, next, namespace))
		return false, nil, nil
	})
	require.NoError(t, b.osdSets.Replace(t.Context(), in), "what was to go has gone")
	x, err := b.typed.Tracker().Get(podsResource, namespace, "osd.0-old")
	require.NoError(t, err, "the next one was not named")
	require.EqualValues(t, "the next one", x.(*corev1.Pod).UID)
}

// TestWhatLooksBackIsAwaited: for a while after a daemon has gone Ceph calls it up, or in quorum, as it was before. Its
// next pod is there by then, and ready.
func TestWhatLooksBackIsAwaited(t *testing.T) {
	for _, daemon := range []string{"osd.0", "mon.a"} {
		t.Run(daemon, func(t *testing.T) {
			b := newWaitingBed(t)
			b.noMons()
			if rollout.IsMon(daemon) {
				b.wants(daemon, 1, 0)
			}
			in := b.replacement(b.look(activities.SurveyInput{}))
			require.Equal(t, []string{daemon}, keysOf(in.OSDs))
			require.NoError(t, b.osdSets.Replace(t.Context(), in))
			b.pod(daemon, "a", "new", nil)
			gone := []activities.LetGo{{Key: daemon, Pod: in.OSDs[0].Pod, Epoch: in.OSDs[0].Epoch}}
			s := b.look(activities.SurveyInput{LetGo: gone})
			require.Equal(t, rollout.DoAwait, s.Next.Do)
			require.False(t, s.Next.OSDs[0].Serves)
			ctx, cancel := context.WithCancel(t.Context())
			var heard activities.Arrival
			_, err := b.osdSets.Await(ctx, activities.AwaitInput{
				OSDSet: b.ref, Cluster: in.Cluster, Keys: []string{daemon}, LetGo: gone,
			}, func(a activities.Arrival) { heard = a; cancel() })
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, heard.Waiting, 1)
			require.Regexp(t, `is not (up in Ceph|in quorum) yet`, heard.Waiting[0].Why)
		})
	}
}
