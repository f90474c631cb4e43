package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/hammer"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

var hammerAll = flag.Bool("hammer-all", false,
	"hammer in every way there is, and not only in those that have their turn")

// clients of the hammer.
const clients = 4

// TestHammer has four clients evict every OSD, and where deletions are guarded four more delete it, all the time, in
// one situation after the other, with lockkeeper alive and with lockkeeper killed in the midst of it. Whatever they do:
// never OSDs of two zones at once, no eviction that fails, no lost write.
func TestHammer(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		flags      []string
		situations []situation
		guarded    bool // then they delete as well
	}{
		"deployments": {twoNodesPerZone, situations, false},
		"bare-pods":   {append(slices.Clone(twoNodesPerZone), "--osd-pods", "none"), situationsOfBarePods, false},
		"guarded":     {twoNodesPerZone, situationsOfTheGuard, true},
	} {
		played := slices.DeleteFunc(slices.Clone(of.situations), func(s situation) bool {
			return !s.always && !*hammerAll && !turns.Has("hammer, "+name+": "+s.name, time.Minute+s.lasting)
		})
		if len(played) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{name: fmt.Sprintf("e2e-%d-ham-%s", os.Getpid(), name[:4]), guarded: of.guarded}
			hammered(t, w, of.flags, played)
		})
	}
}

func hammered(t *testing.T, w *world, flags []string, situations []situation) {
	w.up(t, flags)
	osds := w.eachOSD(t)
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					w.describe(t)
				}
			}()
			require.NoError(t, w.begins())
			if s.first != nil {
				require.NoError(t, s.first(w))
			}
			judge, err := hammer.NewJudge(t.Context(), w.environ(), osds)
			require.NoError(t, err)
			defer judge.Close()
			if w.guarded || s.deletes {
				judge.CountDeletions()
			}
			ctx, stop := context.WithTimeout(t.Context(), s.lasting)
			defer stop()
			var answers, deletions hammer.Answers
			var wg sync.WaitGroup
			if w.guarded {
				wg.Go(func() {
					var err error
					deletions, err = hammer.Deleters(ctx, w.env["KUBECONFIG"], cephNamespace, "ceph-osd-id", clients)
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				var err error
				answers, err = hammer.Clients(ctx, w.env["KUBECONFIG"], cephNamespace, "ceph-osd-id", clients)
				if err != nil {
					t.Error(err)
				}
			})
			require.NoError(t, s.do(ctx, w))
			wg.Wait()
			w.endsWell(t, s)
			v, err := judge.Verdict(t.Context())
			require.NoError(t, err)
			t.Logf("%s: %d OSDs went, at most %d zones at once; %s; deletions: %s", s.name, v.Evictions, v.DomainsMost, answers,
				deletions)
			require.Equal(t, w.guarded, deletions.Refused > 0)
			require.Empty(t, v.Disturbances, "OSDs of two zones at once")
			if !s.passes {
				require.Zero(t, v.Failed, "evictions answered with 500: %s", answers.Example)
			}
			require.Positive(t, answers.Granted+answers.Refused, "nobody hammered")
			if s.most >= 0 {
				require.LessOrEqual(t, v.Evictions, s.most)
			}
			if s.least {
				require.Positive(t, v.Evictions)
			}
		})
	}
}

// situation is what goes on while everything is evicted.
type situation struct {
	name    string
	always  bool // and not in turns with the others
	lasting time.Duration
	most    int                  // evictions that may be granted; -1: as many as the open zone bears
	least   bool                 // at least one is expected
	passes  bool                 // budgets pass to another policy, so a pod is under two for a moment
	deletes bool                 // lockkeeper has pods deleted, which disrupts as an eviction does
	first   func(w *world) error // before anybody hammers
	do      func(ctx context.Context, w *world) error
	after   func(w *world) error // once nobody hammers any more, and lockkeeper is alive again
}

var allNodes = []string{"node-a", "node-b", "node-c", "node-d", "node-e", "node-f"}

func drainsOf(nodes ...string) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error {
		for _, n := range nodes {
			if err := w.begin("upgrade", n, w.upgrade); err != nil {
				return err
			}
		}
		return nil
	}
}

// ended waits until what was begun has ended well.
func ended(what string, nodes ...string) func(*world) error {
	return func(w *world) error {
		for _, n := range nodes {
			if err := w.ended(what, n); err != nil {
				return err
			}
		}
		return nil
	}
}

// restart restarts all OSDs, zone by zone.
func restart(_ context.Context, w *world) error {
	return w.begin("restart", "all", func(ctx context.Context, b *background, _ string) error {
		return w.beneath(ctx, b, "lockkeeper", "restart-osds", "-n", cephNamespace, "--update-domain", "Zone", "--wait")
	})
}

// rollOut brings a new template to all OSDs, zone by zone.
func rollOut(_ context.Context, w *world) error {
	if err := w.patchCephOSD(map[string]any{"updateDomain": "Zone"}); err != nil {
		return err
	}
	return w.changeTemplate(func(container map[string]any) error {
		return setUpdate(container, fmt.Sprint("hammered-", time.Now().UnixNano()))
	})
}

// killing does something, and kills worker and watcher at a moment that nobody chose.
func killing(do func(context.Context, *world) error) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := do(ctx, w); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Millisecond)
		if err := w.stop("worker", syscall.SIGKILL); err != nil {
			return err
		}
		return w.stop("watch", syscall.SIGKILL)
	}
}

func nothing(context.Context, *world) error { return nil }

func faults(args ...string) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error { return w.fault(args...) }
}

var (
	temporalAway  = faults("component-kill", "temporal", "--down", "12s")
	managerKilled = faults("component-kill", "kube-controller-manager", "--down", "3s")
)

var situations = []situation{
	{
		name: "nobody watches", always: true, lasting: 20 * time.Second, most: 1, least: true,
		do: func(_ context.Context, w *world) error {
			if err := w.stop("worker", syscall.SIGKILL); err != nil {
				return err
			}
			return w.stop("watch", syscall.SIGKILL)
		},
	},
	{name: "at rest", lasting: 15 * time.Second, most: -1, least: true, do: nothing},
	{name: "at rest, killed", lasting: 20 * time.Second, most: -1, least: true, do: killing(nothing)},
	{
		name: "a drain", lasting: 20 * time.Second, most: -1, least: true, do: drainsOf("node-a"),
		after: ended("upgrade", "node-a"),
	},
	{
		name: "a drain, killed", lasting: 20 * time.Second, most: -1, do: killing(drainsOf("node-b")),
		after: ended("upgrade", "node-b"),
	},
	{
		name: "six drains", lasting: 25 * time.Second, most: -1, least: true, do: drainsOf(allNodes...),
		after: ended("upgrade", allNodes...),
	},
	{
		name: "six drains, killed", lasting: 25 * time.Second, most: -1, do: killing(drainsOf(allNodes...)),
		after: ended("upgrade", allNodes...),
	},
	{name: "Temporal is away", lasting: 20 * time.Second, most: -1, do: temporalAway},
	{name: "the controller manager is killed", lasting: 20 * time.Second, most: -1, do: managerKilled},
	{
		name: "a drain, Temporal is away", lasting: 30 * time.Second, most: -1,
		do: soon(0, 8*time.Second, drainsOf("node-c"), temporalAway), after: ended("upgrade", "node-c"),
	},
	{
		name: "a drain, the controller manager is killed", lasting: 30 * time.Second, most: -1,
		do: soon(0, 8*time.Second, drainsOf("node-d"), managerKilled), after: ended("upgrade", "node-d"),
	},
	{name: "an unready pod", lasting: 15 * time.Second, most: -1, first: makeUnready, do: nothing, after: makeReady},
	{
		name: "an unready pod, killed", lasting: 15 * time.Second, most: -1, first: makeUnready, do: killing(nothing),
		after: makeReady,
	},
	{
		name: "an unready pod, Temporal is away", lasting: 20 * time.Second, most: -1, first: makeUnready, do: temporalAway,
		after: makeReady,
	},
	{
		name: "an unready pod, the controller manager is killed", lasting: 15 * time.Second, most: -1, first: makeUnready,
		do: managerKilled, after: makeReady,
	},
	{
		name: "a rollout", lasting: 40 * time.Second, most: -1, least: true, deletes: true, do: restart,
		after: ended("restart", "all"),
	},
	{
		name: "a rollout, killed", lasting: 40 * time.Second, most: -1, deletes: true, do: killing(restart),
		after: ended("restart", "all"),
	},
	{
		name: "six drains, killed when they return", lasting: 45 * time.Second, most: -1,
		do:    soon(8*time.Second, 24*time.Second, drainsOf(allNodes...), killing(nothing)),
		after: ended("upgrade", allNodes...),
	},
	{
		name: "six drains, Temporal is away", lasting: 40 * time.Second, most: -1,
		do:    soon(0, 10*time.Second, drainsOf(allNodes...), temporalAway),
		after: ended("upgrade", allNodes...),
	},
	{
		name: "six drains, the controller manager is killed", lasting: 40 * time.Second, most: -1,
		do: soon(0, 15*time.Second, drainsOf(allNodes...),
			managerKilled),
		after: ended("upgrade", allNodes...),
	},
	{
		name: "a rollout, Temporal is away", lasting: 45 * time.Second, most: -1, deletes: true,
		do:    soon(0, 10*time.Second, restart, temporalAway),
		after: ended("restart", "all"),
	},
	{
		name: "a rollout, the controller manager is killed", lasting: 45 * time.Second, most: -1, deletes: true,
		do: soon(0, 10*time.Second, restart, managerKilled), after: ended("restart", "all"),
	},
	{
		name: "another policy takes over", lasting: 30 * time.Second, most: -1, passes: true, first: makeOlder,
		do: takeOver, after: endOlder,
	},
	{
		name: "nobody at rest, killed", lasting: 20 * time.Second, most: 0, first: nobodyAtRest, do: killing(nothing),
		after: somebodyAtRest,
	},
}

// soon does one thing, and at a moment that nobody chose, not before first and not after last, another one.
func soon(first, last time.Duration, do, then func(context.Context, *world) error) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := do(ctx, w); err != nil {
			return err
		}
		time.Sleep(first + rand.N(last-first)) //nolint:gosec // not a secret
		return then(ctx, w)
	}
}

func nobodyAtRest(w *world) error { return w.atRest("None", "^0$") }

func somebodyAtRest(w *world) error { return w.atRest("One", "^[1-9]") }

// atRest changes the policy, and waits until the budget over marked pods lets as many go as that says.
func (w *world) atRest(who, allows string) error {
	if err := w.run("kubectl", "-n", cephNamespace, "patch", "maintenancepolicy", "rook-ceph", "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"ceph":{"atRest":%q}}}`, who)); err != nil {
		return err
	}
	return w.eventually(patience, allows, "kubectl", "-n", cephNamespace, "get", "pdb",
		"lockkeeper-rook-ceph-osd-proved", "-o", "jsonpath={.status.disruptionsAllowed}")
}

var situationsOfTheGuard = []situation{
	{name: "at rest, killed", lasting: 20 * time.Second, most: -1, least: true, do: killing(nothing)},
	{
		name: "six drains", lasting: 25 * time.Second, most: -1, least: true, do: drainsOf(allNodes...),
		after: ended("upgrade", allNodes...),
	},
}

var situationsOfBarePods = []situation{
	{name: "a rollout", lasting: 40 * time.Second, most: -1, least: true, do: rollOut, after: (*world).awaitUpdated},
	{name: "a rollout, killed", lasting: 40 * time.Second, most: -1, do: killing(rollOut), after: (*world).awaitUpdated},
	{
		name: "a rollout beside a drain, killed", lasting: 40 * time.Second, most: -1,
		do: killing(func(ctx context.Context, w *world) error {
			return errors.Join(rollOut(ctx, w), drainsOf("node-a")(ctx, w))
		}), after: func(w *world) error { return errors.Join(w.ended("upgrade", "node-a"), w.awaitUpdated()) },
	},
}

// makeUnready gives an OSD a probe that fails. Its Deployment deletes the pod for that, whatever the budgets say, so
// nobody hammers yet; and all is to be whole again but for that pod.
func makeUnready(w *world) error {
	err := w.run("kubectl", "-n", cephNamespace, "patch", "deployment", "rook-ceph-osd-1", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/template/spec/containers/0/readinessProbe","value":{"exec":{"command":["false"]},"periodSeconds":1}}]`)
	if err != nil {
		return err
	}
	if err := w.eventually(patience, "^Running false$", "kubectl", "-n", cephNamespace, "get", "pod",
		"-l", "ceph-osd-id=1",
		"-o", "jsonpath={.items[*].status.phase} {.items[*].status.containerStatuses[0].ready}"); err != nil {
		return err
	}
	return w.eventually(patience, `"num_up_osds":6`, "ceph", "osd", "stat", "-f", "json")
}

func makeReady(w *world) error {
	return w.run("kubectl", "-n", cephNamespace, "rollout", "undo", "deployment", "rook-ceph-osd-1")
}

// endsWell starts what was killed, and waits until everything has come to rest by itself.
func (w *world) endsWell(t *testing.T, s situation) {
	t.Helper()
	for _, p := range []string{"worker", "watch"} {
		if w.procs[p] == nil {
			require.NoError(t, w.start(p))
		}
	}
	if s.after != nil {
		require.NoError(t, s.after(w))
	}
	require.NoError(t, w.whole())
}

// eachOSD is all OSDs, each with its zone.
func (w *world) eachOSD(t *testing.T) []hammer.OSD {
	t.Helper()
	osds, err := w.osds()
	require.NoError(t, err)
	return osds
}

func (w *world) osds() (osds []hammer.OSD, err error) {
	pods, err := w.pods()
	if err != nil {
		return nil, err
	}
	zones := map[string]bool{}
	for _, p := range pods {
		if id, err := strconv.Atoi(p.Metadata.Labels["ceph-osd-id"]); err == nil {
			zone := p.Metadata.Labels["topology-location-zone"]
			osds, zones[zone] = append(osds, hammer.NewOSD(id, zone, p.Metadata.Name)), true
		}
	}
	if len(zones) != 3 {
		return nil, fmt.Errorf("the OSDs are in %d zones, not in 3", len(zones))
	}
	return osds, nil
}
