package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/hammer"
)

var older = flag.String("older", "",
	"the checkout of an older version with its programs in bin/, to be replaced by this one: make upgrade OLDER=path")

// TestUpgrade replaces an older version by this one: first the objects, then the worker, as a rolling update of its
// Deployment does, so that for a while both run, and then the watcher. An OSD is down all the time, so its zone is open
// and all others are closed, and everything is evicted all the time. Whoever writes the budgets, and however many there
// are: never OSDs of two zones at once, no pod under two budgets, no lost write.
func TestUpgrade(t *testing.T) {
	if *older == "" {
		t.Skip("no older version is given: make upgrade OLDER=path")
	}
	w := &world{name: fmt.Sprintf("e2e-%d-older", os.Getpid()), older: *older}
	w.up(t, twoNodesPerZone)
	osds := w.eachOSD(t)
	defer func() {
		if t.Failed() {
			w.describe(t)
		}
	}()
	require.NoError(t, w.begins())
	deployment := []string{"-n", cephNamespace, "scale", "deployment", "rook-ceph-osd-2"}
	require.NoError(t, w.run("kubectl", append(deployment, "--replicas=0")...))
	require.NoError(t, w.eventually(time.Minute, "NotIn", "kubectl", "-n", cephNamespace, "get", "poddisruptionbudget",
		"lockkeeper-"+policyName+"-osd",
		"-o", "jsonpath={.spec.selector}"), "the zone opens")

	judge, err := hammer.NewJudge(t.Context(), w.environ(), osds)
	require.NoError(t, err)
	defer judge.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var answers hammer.Answers
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if answers, err = hammer.Clients(ctx, w.env["KUBECONFIG"], cephNamespace, "ceph-osd-id", clients); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(10 * time.Second)
	w.procs["older"], w.older = w.procs["worker"], ""
	delete(w.procs, "worker")
	require.NoError(t, w.installObjects())
	require.NoError(t, w.start("worker"))
	time.Sleep(20 * time.Second) // both
	require.NoError(t, w.stop("older", syscall.SIGTERM))
	require.NoError(t, w.stop("watch", syscall.SIGTERM))
	require.NoError(t, w.start("watch"))
	// The keeper's next run splits the pods by their marks.
	require.NoError(t, w.eventually(2*time.Minute, "-osd-proved$", "kubectl", "-n", cephNamespace, "get",
		"poddisruptionbudgets", "-o", "name"))
	time.Sleep(10 * time.Second)
	stop()
	wg.Wait()

	require.NoError(t, w.run("kubectl", append(deployment, "--replicas=1")...))
	require.NoError(t, w.whole())
	v, err := judge.Verdict(t.Context())
	require.NoError(t, err)
	t.Logf("%d OSDs evicted, at most %d zones at once; %s", v.Evictions, v.DomainsMost, answers)
	require.Empty(t, v.Disturbances, "OSDs of two zones at once")
	require.Zero(t, v.Failed, "evictions answered with 500: %s", answers.Example)
	require.Positive(t, answers.Refused, "nobody hammered")
}
