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
)

var (
	crashVictim = flag.String("crash-victim", "", "only this victim of TestCrashes; default: each")
	crashEvery  = flag.Int("crash-every", 0, "crash the victim at every n-th moment of a drain; 0: at a few of them")
)

// victims are what dies in the middle of a drain. Each comes back by itself: the lab, the pod's restart policy, or, for
// lockkeeper's own processes, the test starts it again.
var victims = []struct {
	name string
	// few is at how many moments it dies when not told otherwise.
	few  int
	kill func(w *world) error
}{
	{"worker", 4, func(w *world) error { return w.replace("worker") }},
	{"watch", 1, func(w *world) error { return w.replace("watch") }},
	{"temporal", 1, func(w *world) error { return w.fault("component-kill", "temporal") }},
	{"kube-apiserver", 1, func(w *world) error { return w.fault("component-kill", "kube-apiserver") }},
	{"mon", 1, func(w *world) error { return w.signalDaemon("pod-kill", "mon.b") }},
	{"mgr", 1, func(w *world) error { return w.signalDaemon("pod-kill", "mgr") }},
}

// The node that is drained has a mon, and so the third one's death leaves no quorum for a while. The other is in another zone.
const (
	crashNode = "node-a"
	otherNode = "node-e"
)

// TestCrashes lets something die at a moment of a drain: before or after a call, which was found by counting, not by waiting.
// The drain must end all the same, no other zone may open meanwhile, and nothing may be left over.
func TestCrashes(t *testing.T) {
	t.Parallel()
	w := &world{name: "crash-" + fmt.Sprint(os.Getpid())}
	dir := t.TempDir()
	c := &crashes{world: w}
	socket := filepath.Join(dir, "moments")
	l, err := listen(socket, c.hear)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.server.Close() })
	w.moments = socket
	w.up(t, twoNodesPerZone)

	moments, took, err := c.drain(0, nil)
	if err != nil {
		w.describe(t)
		t.Fatalf("a drain in which nothing dies: %v", err)
	}
	t.Logf("a drain has %d moments, and takes %s", len(moments), took.Round(time.Millisecond))
	for _, v := range victims {
		if *crashVictim != "" && *crashVictim != v.name {
			continue
		}
		for _, at := range when(len(moments), v.few, *crashEvery) {
			t.Run(fmt.Sprintf("%s/%d", v.name, at), func(t *testing.T) {
				seen, took, err := c.drain(at, v.kill)
				switch {
				case err != nil:
					w.describe(t)
					t.Fatalf("moment %s: %v", describeMoment(seen, at), err)
				case len(seen) < at:
					t.Logf("the drain was over after %d moments", len(seen))
				default:
					t.Logf("died %s; the drain took %s", describeMoment(seen, at), took.Round(time.Millisecond))
				}
			})
			if t.Failed() {
				t.Fatal("what follows was not run: the cluster is not what it expects")
			}
		}
	}
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

// crashes has somebody die at a moment of a drain.
type crashes struct {
	world *world

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
		c.err = c.kill(c.world)
	}
}

// drain drains a node once. At the given moment, counted from 1, kill is called; 0 is never.
func (c *crashes) drain(at int, kill func(*world) error) (seen []moment, took time.Duration, err error) {
	w := c.world
	w.scenarioBegan = time.Now()
	c.mu.Lock()
	c.seen, c.at, c.kill, c.err = nil, at, kill, nil
	c.mu.Unlock()
	err = c.drainAndBack()
	took = time.Since(w.scenarioBegan)
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen), took, errors.Join(c.err, err)
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

// replace kills one of lockkeeper's processes and starts another one.
func (w *world) replace(process string) error {
	if err := w.stop(process, syscall.SIGKILL); err != nil {
		return err
	}
	return w.start(process)
}
