package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

var (
	crashVictim = flag.String("crash-victim", "", "only this victim of TestCrashes; default: each")
	crashEvery  = flag.Int("crash-every", 0, "crash the victim at every n-th moment of a job; 0: at a few of them")
)

// victims are what dies in the middle of a job. Each comes back by itself: the lab, the pod's restart policy, or, for
// lockkeeper's own processes, the test starts it again.
var victims = []struct {
	name string
	few  map[string]int // at how many moments of each job it dies when not told otherwise
	kill func(w *world) error
}{
	{"worker", map[string]int{"drain": 4, "rollout": 2, "migration": 1, "failover": 1, "fence": 2}, func(w *world) error {
		return w.replace("worker")
	}},
	{"watch", map[string]int{"drain": 1, "fence": 1}, func(w *world) error { return w.replace("watch") }},
	{"temporal", map[string]int{"drain": 1, "migration": 1, "fence": 1}, func(w *world) error {
		return w.fault("component-kill", "temporal")
	}},
	{"kube-apiserver", map[string]int{"drain": 1, "migration": 1}, func(w *world) error {
		return w.fault("component-kill", "kube-apiserver")
	}},
	{"mon", map[string]int{"drain": 1, "migration": 1}, func(w *world) error { return w.killLeader() }},
	{"mgr", map[string]int{"drain": 1, "migration": 1}, func(w *world) error { return w.signalDaemon("pod-kill", "mgr") }},
}

// The node that is drained has a mon, and so the third one's death leaves no quorum for a while. The other is in
// another zone.
const (
	crashNode = "node-a"
	otherNode = "node-e"
)

// TestCrashes lets something die at a moment of a job: before or after a call, which was found by counting, not by
// waiting. The job must end all the same, no two zones may be open at once, and nothing may be left over.
func TestCrashes(t *testing.T) {
	t.Parallel()
	adopted := append(slices.Clone(twoNodesPerZone), "--mon-storage", "hostpath")
	for _, c := range []*crashes{
		{name: "drain", flags: twoNodesPerZone, job: (*crashes).drainAndBack, takes: 2 * time.Minute},
		{
			name: "rollout", flags: append(slices.Clone(twoNodesPerZone), "--osd-pods", "none"), job: (*crashes).rollOut,
			takes: 3 * time.Minute,
		},
		{name: "migration", flags: adopted, cephMon: true, job: (*crashes).migrate, takes: 4 * time.Minute},
		{name: "failover", flags: adopted, cephMon: true, job: (*crashes).failOver, takes: 4 * time.Minute},
		{
			name: "fence", flags: twoNodesPerZone, fencing: "MachineDisruptionBudget:" + machinesNamespace,
			job: (*crashes).fence, takes: 2 * time.Minute,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// A name is part of the paths of sockets, which have to be short.
			c.world = &world{
				name: fmt.Sprintf("crash-%s-%d", c.name[:2], os.Getpid()), cephMon: c.cephMon, fencing: c.fencing,
			}
			c.test(t)
		})
	}
}

// test does the job in a lab of its own, first in peace, and then with each victim.
func (c *crashes) test(t *testing.T) {
	w := c.world
	dies := c.dies()
	if len(dies) == 0 {
		return
	}
	socket := filepath.Join(t.TempDir(), "moments")
	l, err := listen(socket, c.hear)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.server.Close() })
	w.moments = socket
	w.up(t, c.flags)
	if w.fencing != "" {
		t.Cleanup(w.watchReleases(t))
	}

	moments, took, err := c.once(0, nil)
	if err != nil {
		w.describe(t)
		t.Fatalf("when nothing dies: %v", err)
	}
	t.Logf("it has %d moments, and takes %s", len(moments), took.Round(time.Millisecond))
	for _, v := range victims {
		for i, at := range when(len(moments), v.few[c.name], *crashEvery) {
			if !dies[death{v.name, i}] && !dies[death{v.name, always}] {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", v.name, at), func(t *testing.T) {
				seen, took, err := c.once(at, v.kill)
				switch {
				case err != nil:
					w.describe(t)
					t.Fatalf("moment %s: %v", describeMoment(seen, at), err)
				case len(seen) < at:
					t.Logf("it was over after %d moments", len(seen))
				default:
					t.Logf("died %s; it took %s", describeMoment(seen, at), took.Round(time.Millisecond))
				}
			})
			if t.Failed() {
				t.Fatal("what follows was not run: the cluster is not what it expects")
			}
		}
	}
}

// death is that of a victim at the first, second, … of a few moments, or at each of all.
type death struct {
	victim string
	moment int
}

const always = -1

// dies says who dies this time: at a few moments it takes turns.
func (c *crashes) dies() map[death]bool {
	out := map[death]bool{}
	for _, v := range victims {
		if *crashVictim != "" && *crashVictim != v.name {
			continue
		}
		if *crashEvery > 0 {
			out[death{v.name, always}] = true
		}
		for i := range v.few[c.name] {
			if *crashEvery == 0 && turns.Has(fmt.Sprintf("crash of %s in a %s, %d", v.name, c.name, i+1), c.takes) {
				out[death{v.name, i}] = true
			}
		}
	}
	return out
}

func describeMoment(seen []moment, at int) string {
	if at > len(seen) {
		return fmt.Sprint(at)
	}
	return fmt.Sprintf("%d, %s", at, seen[at-1])
}

// when lists the moments, counted from 1, at which a victim dies: every n-th, or a few, evenly spread.
func when(moments, few, every int) []int {
	var at []int
	if every > 0 {
		for m := 1; m <= moments; m += every {
			at = append(at, m)
		}
		return at
	}
	for i := range few {
		at = append(at, 1+(2*i+1)*moments/(2*few))
	}
	return slices.Compact(at)
}

// crashes has somebody die at a moment of a job.
type crashes struct {
	name    string
	flags   []string             // of its lab
	cephMon bool                 // lockkeeper looks after the mons
	fencing string               // what fences nodes; "": nothing
	job     func(*crashes) error // from its beginning until all is whole again
	takes   time.Duration        // with one death, and the lab
	world   *world
	done    int // jobs

	mu   sync.Mutex
	seen []moment
	at   int
	kill func(*world) error
	err  error
}

// hear is told of each moment, and holds it up while somebody dies.
func (c *crashes) hear(m moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, m)
	if len(c.seen) == c.at {
		if err := c.kill(c.world); err != nil {
			c.err = fmt.Errorf("nobody could be killed: %w", err)
		}
	}
}

// once does the job once. At the given moment, counted from 1, kill is called; 0 is never.
func (c *crashes) once(at int, kill func(*world) error) (seen []moment, took time.Duration, err error) {
	w := c.world
	if err := w.begins(); err != nil {
		return nil, 0, err
	}
	c.mu.Lock()
	c.seen, c.at, c.kill, c.err = nil, at, kill, nil
	c.mu.Unlock()
	err = c.job(c)
	c.done++
	took = time.Since(w.scenarioBegan)
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen), took, errors.Join(c.err, err)
}

// rollOut brings a changed template to all OSDs, zone by zone.
func (c *crashes) rollOut() error {
	w := c.world
	// The API server may be the one that dies.
	err := until(patience, func() error {
		return errors.Join(
			w.patchCephOSD(map[string]any{"updateDomain": "Zone"}),
			w.changeTemplate(func(container map[string]any) error { return setUpdate(container, fmt.Sprint("crash-", c.done)) }),
		)
	})
	if err != nil {
		return err
	}
	if err := w.awaitUpdated(); err != nil {
		return err
	}
	return w.whole()
}

func (c *crashes) drainAndBack() error {
	w := c.world
	begun := func(job) bool { return true }
	if err := w.run("lockkeeper", "drain", crashNode); err != nil {
		// Temporal may have died with the answer on its lips.
		if again := w.awaitJob(crashNode, begun); again != nil {
			return errors.Join(err, again)
		}
	}
	if err := w.awaitJob(crashNode, func(j job) bool { return j.in("AwaitingNode") }); err != nil {
		return err
	}
	if err := w.refused(otherNode); err != nil {
		return fmt.Errorf("%s, while the OSD of %s is down: %w", otherNode, crashNode, err)
	}
	// Whoever was told may have died before it could answer. To say it twice does no harm, and one who has ended says so.
	done := func(j job) bool { return j.Result.Outcome == "Done" }
	err := until(patience, func() error {
		err := w.run("lockkeeper", "done", crashNode)
		if err != nil && w.askJob(crashNode, done) == nil {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := w.awaitJob(crashNode, done); err != nil {
		return err
	}
	return w.whole()
}

// migrate has all mons move to other storage, one after the other.
func (c *crashes) migrate() error {
	w := c.world
	var storage string
	// Whoever is asked may be the one that dies. To ask twice does no harm.
	if err := until(patience, func() (err error) {
		storage, err = w.changeStorage()
		return err
	}); err != nil {
		return err
	}
	if err := until(patience, func() error {
		return w.run("lockkeeper", "migrate-mons", cephNamespace+"/"+cephMonName)
	}); err != nil {
		return err
	}
	if err := w.awaitMons("3", storage); err != nil {
		return err
	}
	return w.whole()
}

// failOver has a mon die for good, and another one take its place.
func (c *crashes) failOver() error {
	w := c.world
	mons, err := w.monmap()
	if err != nil {
		return err
	}
	dead := "mon." + mons[c.done%len(mons)]
	if err := until(patience, func() error { return w.failDaemon(dead) }); err != nil {
		return err
	}
	if err := w.awaitGone(dead); err != nil {
		return err
	}
	if err := w.awaitMons("3", ""); err != nil {
		return err
	}
	return w.whole()
}

// fence has a node lose its power, until its health check has had it started again. Who dies meanwhile may be the one
// that would close the budget; then the node may go by the budget alone, and no job is needed.
func (c *crashes) fence() error {
	w := c.world
	if err := until(patience, w.allHeld); err != nil {
		return err
	}
	zone := []string{"zone-x", "zone-y", "zone-z"}[c.done%3]
	m, err := w.doom(zone)
	if err != nil {
		return err
	}
	if err := w.fault("node-lost", m.Status.NodeRef.Name); err != nil {
		return err
	}
	if err := w.awaitFenced(zone); err != nil {
		return err
	}
	if err := until(patience, w.noFence); err != nil {
		return err
	}
	return errors.Join(until(patience, w.allHeld), w.budgetSays("1"), w.whole())
}

// noFence: no node is to be fenced any more, and no job is about one.
func (w *world) noFence() error {
	var said struct {
		Policies []struct{ Status struct{ Nodes []any } }
		Fences   []struct{ WorkflowID string }
	}
	if err := w.read(&said, "lockkeeper", "fence", "status", "-o", "json"); err != nil {
		return err
	}
	for _, p := range said.Policies {
		if len(p.Status.Nodes) > 0 {
			return fmt.Errorf("to be fenced: %v", p.Status.Nodes)
		}
	}
	if len(said.Fences) > 0 {
		return fmt.Errorf("fences that run: %v", said.Fences)
	}
	return nil
}

// killLeader kills the mon that leads the others. Its container is started again.
func (w *world) killLeader() error {
	// The leader may be the very mon that is being evicted: then its pod is gone before it dies, and the next one leads.
	return until(patience, func() error {
		var q struct {
			Leader string `json:"quorum_leader_name"`
		}
		if err := w.ask(&q, "quorum_status"); err != nil {
			return err
		}
		return w.signalDaemon("pod-kill", "mon."+q.Leader)
	})
}

// replace kills one of lockkeeper's processes and starts another one.
func (w *world) replace(process string) error {
	if err := w.stop(process, syscall.SIGKILL); err != nil {
		return err
	}
	return w.start(process)
}
