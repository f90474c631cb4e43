package mons

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// left is what there is in the namespace, by kind.
func (w *world) left() (deployments, services, claims []string) {
	w.Helper()
	d, err := w.kube.AppsV1().Deployments(w.ref.Namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, o := range d.Items {
		deployments = append(deployments, strings.TrimPrefix(o.Name, "rook-ceph-mon-"))
	}
	s, err := w.kube.CoreV1().Services(w.ref.Namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, o := range s.Items {
		services = append(services, strings.TrimPrefix(o.Name, "rook-ceph-mon-"))
	}
	c, err := w.kube.CoreV1().PersistentVolumeClaims(w.ref.Namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, o := range c.Items {
		claims = append(claims, strings.TrimPrefix(o.Name, "rook-ceph-mon-"))
	}
	return deployments, services, claims
}

// named are the mons that have a Deployment, a Service and a claim.
func (w *world) named(deployments, services, claims string) {
	w.Helper()
	// A pod's end and a claim's may take a moment after the job's.
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		d, s, p := w.left()
		assert.Equal(c, []string{deployments, services, claims},
			[]string{strings.Join(d, " "), strings.Join(s, " "), strings.Join(p, " ")}, "Deployments, Services, claims")
	}, 10*time.Second, 100*time.Millisecond)
}

// done are the acts, without the waits for the scheduler, of which there may be several.
func (w *world) done() []string {
	return slices.DeleteFunc(slices.Clone(w.acts), func(act string) bool { return strings.HasPrefix(act, "Schedule ") })
}

const threeZones = "zones: [{name: move-zone-0}, {name: move-zone-1}, {name: move-zone-2}]"

// TestHostPathToClaims adopts three mons on HostPath, and moves each of them to a claim in its zone, under write load.
// Every act is done twice, as after a crash.
func TestHostPathToClaims(t *testing.T) {
	turns.Await(t, "TestHostPathToClaims", time.Minute)
	w := start(t, "move", 3, 2)
	w.want(threeZones)
	assert.Empty(t, w.until(monplan.Done).Why)
	assert.Empty(t, w.acts, "adopted mons are left alone")
	w.named("a b c", "a b c", "")

	w.respec(`{"spec":{"volumeClaimTemplate":{"spec":{"storageClassName":"zone-disk"}}}}`)
	assert.Contains(t, w.until(monplan.Done).Why, "its store is on HostPath", "nobody asked to migrate")
	w.memory.Mode.Migrate = true
	for len(w.acts) == 0 || w.acts[len(w.acts)-1] != "ClaimVolume d" {
		w.turn()
	}
	w.respec(`{"spec":{"volumeClaimTemplate":{"spec":{"storageClassName":"other-disk"}}}}`)
	for w.acts[len(w.acts)-1] != "DropTraces d" {
		w.turn()
	}
	w.named("a b c", "a b c", "") // nothing is left of what was begun by another spec

	w.twice, w.acts = true, nil
	stop := w.load()
	w.until(monplan.Done)
	writes, longest := stop()
	t.Logf("%d writes, the longest took %s", writes, longest)
	assert.Equal(t, []string{"e", "f", "g"}, w.quorum(), "no name is given twice")
	w.named("e f g", "e f g", "e f g")
	assert.Equal(t, []string{
		"ClaimVolume e", "DropCanary e", "Start e", "AwaitQuorum e", "SaveEndpoints e", "RemoveMon a", "StopMon a",
		"SaveEndpoints a",
	}, w.done()[:8])
	require.NoError(t, w.api.Delete(t.Context(), w.cephMon()))
	w.named("e f g", "e f g", "e f g") // whoever deletes a CephMon deletes no mon
	assert.Len(t, w.quorum(), 3)
}

// TestARemovalThatNobodyWaitsForAnyMore: mons without a quorum keep what they were asked for, and carry it out when
// they have one again, as long as the connection is there. On a connection of its own it is dropped.
func TestARemovalThatNobodyWaitsForAnyMore(t *testing.T) {
	turns.Await(t, "TestARemovalThatNobodyWaitsForAnyMore", time.Minute)
	w := start(t, "late", 3, 1)
	w.login.CommandTimeout = 3 * time.Second
	inVain := func(closes bool) {
		c, done, err := oneCluster{w}.Apart(t.Context(), storage.ClusterKey{})
		require.NoError(t, err)
		t.Cleanup(done)
		w.nodes.hang(syscall.SIGSTOP, "b", "c")
		time.Sleep(6 * time.Second) // for as long as their lease lasts, those that are left do not know
		require.True(t, ceph.IsTimeout(c.RemoveMon(t.Context(), "b")))
		if closes {
			done()
			time.Sleep(time.Second) // it is closed aside
		}
		w.nodes.hang(syscall.SIGCONT, "b", "c")
	}
	inVain(true)
	for range 10 {
		assert.Contains(t, w.monmap(), "b")
		time.Sleep(time.Second)
	}
	if !turns.OnlyWithAll("what mons without a quorum keep") { // it tells of Ceph, and not of lockkeeper
		return
	}
	inVain(false)
	require.Eventually(t, func() bool { return !slices.Contains(w.monmap(), "b") }, time.Minute, time.Second,
		"if they drop it by themselves no connection of its own is needed")
}

// TestADeadMonLeavesFirst: its node is deleted with its store. All is made ready, then it leaves, then its successor
// joins; and a mon whose node has other labels meanwhile stays where it is.
func TestADeadMonLeavesFirst(t *testing.T) {
	turns.Await(t, "TestADeadMonLeavesFirst", time.Minute)
	w := start(t, "dead", 3, 2)
	w.want("count: 3")
	w.until(monplan.Done)
	w.nodes.lose("dead-node-1") // mon.b's
	relabelled := []byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"elsewhere"}}}`)
	_, err := w.kube.CoreV1().Nodes().Patch(t.Context(), "dead-node-0", types.MergePatchType, relabelled,
		metav1.PatchOptions{})
	require.NoError(t, err)
	stop := w.load()
	w.until(monplan.Done)
	writes, longest := stop()
	t.Logf("%d writes, the longest took %s", writes, longest)
	assert.Equal(t, []string{"a", "c", "d"}, w.quorum())
	assert.Equal(t, []string{
		"RemoveMon b", "StopMon b", "DropCanary d", "Start d", "AwaitQuorum d", "SaveEndpoints d",
	}, w.done())
	w.named("a c d", "a c d", "")
}

// TestThreeNodes is the commonest cluster: there is no place for a fourth mon, and the adopted ones refuse it, too.
func TestThreeNodes(t *testing.T) {
	turns.Await(t, "TestThreeNodes", time.Minute)
	w := start(t, "three", 3, 1)
	w.want("count: 3, volumeClaimTemplate: {}")
	w.memory.Mode.Migrate = true
	step := w.turn()
	require.Equal(t, monplan.Refuse, step.Verdict)
	assert.Contains(t, step.Why, "no node is free: three-node-0 has mon.a, three-node-1 has mon.b, three-node-2 has mon.c")
	assert.Contains(t, step.Why, "--one-less")
	w.named("a b c", "a b c", "") // refused before anything was changed

	w.memory.Mode.OneLess = true
	stop := w.load()
	w.until(monplan.Done)
	writes, longest := stop()
	t.Logf("%d writes, the longest took %s", writes, longest)
	assert.Equal(t, []string{"d", "e", "f"}, w.quorum())
	w.named("d e f", "d e f", "d e f")
	assert.Equal(t, []string{
		"RemoveMon a", "StopMon a", "DropCanary d", "Start d", "AwaitQuorum d", "SaveEndpoints d", "RemoveMon b",
	}, w.done()[:7])
}
