package cephosd

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// TestWhatMustStay says why.
func TestWhatMustStay(t *testing.T) {
	three := quorum.Map{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	newer := func(daemon string) kube.StorageWish {
		return kube.StorageWish{Daemon: daemon, Wish: wish.Wish{Node: "n", Newer: true}}
	}
	forGood := func(daemon string) kube.StorageWish {
		return kube.StorageWish{Daemon: daemon, Wish: wish.Wish{Node: "n"}}
	}
	for name, c := range map[string]struct {
		wish   kube.StorageWish
		domain string
		seen   staying
		why    string // "": it goes
	}{
		"an OSD":                     {newer("osd.3"), "x", staying{}, ""},
		"a mon beside OSDs":          {newer("mon.a"), "x", staying{mons: three}, ""},
		"a mon on a node of its own": {newer("mon.a"), "", staying{mons: three}, ""},
		"one of two mons":            {newer("mon.a"), "x", staying{mons: three[:2]}, "of 2 in the monmap a majority is 2"},
		"the only mon":               {newer("mon.a"), "", staying{mons: three[:1]}, "of 1 in the monmap a majority is 1"},
		"a mon for good, in the monmap": {
			forGood("mon.a"), "", staying{mons: three}, "the monmap still has it: Ceph first, `ceph mon remove a`",
		},
		"a mon that left the monmap": {forGood("mon.d"), "", staying{mons: three}, ""},
		"a mon that left one of two": {forGood("mon.d"), "", staying{mons: three[:2]}, ""},
		"an OSD for good, needed": {
			forGood("osd.3"), "x",
			staying{destroy: map[int]storage.Answer{3: {Reason: "osd.3 stores placement groups"}}},
			"does not call it safe to destroy: osd.3 stores placement groups",
		},
		"an OSD for good, not known": {forGood("osd.3"), "x", staying{}, "does not call it safe to destroy"},
		"an OSD for good, needed by nobody": {
			forGood("osd.3"), "x", staying{destroy: map[int]storage.Answer{3: {OK: true}}}, "",
		},
		"an OSD in no failure domain": {
			newer("osd.3"), "",
			staying{destroy: map[int]storage.Answer{3: {Reason: "osd.3 serves placement groups"}}},
			"in no failure domain, so that nothing opens for it, and Ceph does not call it safe to destroy: osd.3 serves",
		},
		"an OSD for good, in no failure domain": {
			forGood("osd.3"), "",
			staying{destroy: map[int]storage.Answer{3: {Reason: "osd.3 serves placement groups"}}},
			"it goes for good, and the CRUSH map has it in no failure domain, so that nothing opens for it, and Ceph does not",
		},
		"an OSD in no failure domain, needed by nobody": {
			forGood("osd.3"), "",
			staying{namespace: "ns", destroy: map[int]storage.Answer{3: {OK: true}}},
			"Ceph calls it safe to destroy, so a person may let it go: `lockkeeper -n ns restart osd.3 --now",
		},
		"an OSD with another ready pod": {
			newer("osd.3"), "x",
			staying{twins: map[string]string{"osd.3": "new"}},
			"pod new is ready as well, and nothing opens",
		},
		"without a home": {
			newer("osd.3"), "x",
			staying{homeless: map[string]string{"osd.3": "its template selects no node"}},
			"its template selects no node: what takes its place would find no home",
		},
		"on a cordoned node": {
			newer("mon.a"), "",
			staying{mons: three, away: map[string]string{"n": "node n is cordoned"}},
			"node n is cordoned: what takes its place would find no home",
		},
		"for good on a cordoned node": {
			forGood("mon.d"), "",
			staying{mons: three, away: map[string]string{"n": "node n is cordoned"}},
			"node n is cordoned: a drain takes it along",
		},
	} {
		t.Run(name, func(t *testing.T) {
			why := c.seen.why(c.wish, c.domain)
			if c.why == "" {
				require.Empty(t, why)
				return
			}
			require.Contains(t, why, c.why)
		})
	}
}

// TestWhatACephOSDLeaves: a CephOSD that is deleted with its OSDs wants their pods gone, as any owner does.
func TestWhatACephOSDLeaves(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	for _, osd := range []string{"osd.0", "osd.1", "osd.2"} {
		b.wants(osd, 1, 1)
	}
	require.NoError(t, b.typed.Tracker().Delete(podsResource, namespace, "osd.0-old"))
	gone := &v1alpha1.CephOSD{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "gone"}}
	b.pod("osd.0", "a", "old", metav1.NewControllerRef(gone, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)))
	b.ceph.needed = func(int) string { return "19 PGs are on it" }
	s := b.look(activities.SurveyInput{})
	require.Len(t, s.Superfluous, 1)
	require.Contains(t, s.Superfluous[0].Why, "19 PGs are on it")
	b.ceph.needed = nil
	next := b.look(activities.SurveyInput{}).Next
	require.Equal(t, []string{"osd.0"}, keysOf(next.OSDs))
	require.True(t, next.OSDs[0].ForGood)
}

// TestOutOfTheCRUSHMap: Ceph is asked whether an OSD is needed that is nowhere, whether or not it goes for good.
func TestOutOfTheCRUSHMap(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	b.ceph.osds[0].Domain = ""
	s := b.look(activities.SurveyInput{})
	require.Equal(t, []string{"osd.1"}, keysOf(s.Next.OSDs), "it keeps nobody from his turn")
	require.Len(t, s.Superfluous, 1)
	require.Contains(t, s.Superfluous[0].Why, "restart osd.0 --now", "nobody needs it")
	b.ceph.needed = func(int) string { return "19 PGs are on it" }
	require.Contains(t, b.look(activities.SurveyInput{}).Superfluous[0].Why, "safe to destroy: 19 PGs are on it")
}

// TestADeploymentThatIsMadeAgain, as by `kubectl replace --force`, has its pod beside the old one, whose owner is gone.
// The OSD is to be restarted then, and not to go for good. While both pods are ready nothing opens, so it is said how a
// person ends that.
func TestADeploymentThatIsMadeAgain(t *testing.T) {
	b := newWaitingBed(t)
	b.noMons()
	for _, osd := range []string{"osd.0", "osd.1", "osd.2"} {
		b.wants(osd, 1, 1)
	}
	require.NoError(t, b.typed.Tracker().Delete(podsResource, namespace, "osd.0-old"))
	b.pod("osd.0", "a", "old", by("ReplicaSet", "of before"))
	b.ceph.needed = func(int) string { return "19 PGs are on it" }
	s := b.look(activities.SurveyInput{})
	require.Contains(t, s.Superfluous[0].Why, "it goes for good, and Ceph does not call it safe to destroy")

	x, err := b.typed.Tracker().Get(replicaSetsResource, namespace, "osd.0-old")
	require.NoError(t, err)
	b.pod("osd.0", "a", "new", metav1.NewControllerRef(x.(*appsv1.ReplicaSet),
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
	s = b.look(activities.SurveyInput{})
	require.Len(t, s.Superfluous, 1)
	require.Contains(t, s.Superfluous[0].Why, "pod osd.0-new is ready as well")
	require.Contains(t, s.Superfluous[0].Why, "restart pod/osd.0-old --now")

	x, err = b.typed.Tracker().Get(podsResource, namespace, "osd.0-new")
	require.NoError(t, err)
	crashes := x.(*corev1.Pod).DeepCopy()
	crashes.Status.Conditions = nil
	crashes.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff",
	}}
	require.NoError(t, b.typed.Tracker().Update(podsResource, crashes, namespace))
	s = b.look(activities.SurveyInput{})
	require.Empty(t, s.Superfluous)
	require.Equal(t, []string{"osd.0"}, keysOf(s.Next.OSDs))
	require.False(t, s.Next.OSDs[0].ForGood, "it comes back")
	require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))
	require.Equal(t, []string{"evict osd.0-old"}, b.log)
}

func by(kind, name string) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind, Name: name, UID: types.UID(name), Controller: new(true),
	}
}
