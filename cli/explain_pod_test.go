package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// TestExplainPod: the guard's own answer comes first, and then what it waits for.
func TestExplainPod(t *testing.T) {
	const sentence = "osd.1 has to wait for its turn: nothing is deleted until its failure domain opens, says " +
		"PodDisruptionBudget lockkeeper-rook-ceph-osd"
	osd := kube.Deletion{Found: true, Node: "node-b", Daemon: "osd.1", Owner: "ReplicaSet/rook-ceph-osd-1-5d94"}
	for name, c := range map[string]struct {
		world  func() *world
		answer func(*kube.Deletion)
		may    bool
	}{
		"goes":        {newWorld, func(*kube.Deletion) {}, true},
		"terminating": {newWorld, func(d *kube.Deletion) { d.Terminating = true }, true},
		"somebody-elses": {newWorld, func(d *kube.Deletion) {
			*d = kube.Deletion{Found: true}
		}, true},
		"at-rest": {newWorld, func(d *kube.Deletion) { d.Refused = sentence }, false},
		"wanted": {func() *world {
			w := newWorld()
			w.wishes = []kube.StorageWish{{Daemon: "osd.1", Wish: wish.Wish{
				Pod: "rook-ceph-osd-1-5d94-x", Owner: "Deployment/rook-ceph-osd-1", Newer: true,
			}}}
			return w
		}, func(d *kube.Deletion) { d.Refused = sentence }, false},
		"tainted": {func() *world {
			w := newWorld()
			w.driven = []kube.DrivenDaemon{{Daemon: "osd.1", Driven: wish.Driven{
				Pod: "rook-ceph-osd-1-5d94-x", Node: "node-b", Taint: "example.com/repair",
			}}}
			return w
		}, func(d *kube.Deletion) { d.Refused = sentence }, false},
		"lease-held": {drained, func(d *kube.Deletion) { d.Refused = sentence }, false},
		"warned":     {newWorld, func(d *kube.Deletion) { d.Warned = sentence }, true},
		"refused-by-others": {newWorld, func(d *kube.Deletion) {
			d.Other = `admission webhook "vault.example.com" denied the request: no`
		}, false},
		"temporal-away": {func() *world {
			w := newWorld()
			w.temporalAway = errors.New("Temporal does not answer at 127.0.0.1:7233")
			return w
		}, func(d *kube.Deletion) { d.Refused = sentence }, false},
		"nobody-knows": {func() *world {
			w := newWorld()
			delete(w.nodes, "node-b")
			return w
		}, func(d *kube.Deletion) { d.Refused = sentence }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world()
			w.deletion = osd
			c.answer(&w.deletion)
			command, out, _ := w.command()
			e, err := command.ExplainPod(t.Context(), "rook-ceph", "rook-ceph-osd-1-5d94-x", "", "lockkeeper-system")
			require.NoError(t, err)
			assert.Equal(t, c.may, e.MayDelete)
			e.Write(out)
			golden(t, "explain-pod-"+name+".txt", out.String())
		})
	}
}

// TestExplainPodRefuses what makes no sense, and what nobody could answer.
func TestExplainPodRefuses(t *testing.T) {
	w := newWorld()
	command, _, _ := w.command()
	for pod, says := range map[string]string{
		"Rook Ceph": "no name of a pod", "": "no name of a pod", "gone": "no such pod in namespace rook-ceph",
	} {
		_, err := command.ExplainPod(t.Context(), "rook-ceph", pod, "", "lockkeeper-system")
		require.ErrorContains(t, err, says)
		require.True(t, strings.HasPrefix(err.Error(), "POD"), err)
	}
	w.deletionAway = errors.New("pods is forbidden")
	_, err := command.ExplainPod(t.Context(), "rook-ceph", "a", "", "lockkeeper-system")
	require.ErrorContains(t, err, "ask whether pod rook-ceph/a may be deleted: pods is forbidden")
}

func TestExplainsPod(t *testing.T) {
	for arg, pod := range map[string]string{"pod/a": "a", "pod/": "", "node-a": "", "pod": ""} {
		got, ok := ExplainsPod(arg)
		assert.Equal(t, strings.HasPrefix(arg, "pod/"), ok, arg)
		if ok {
			assert.Equal(t, pod, got)
		}
	}
}
