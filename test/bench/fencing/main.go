// fencing measures how soon Machines are held back when an OSD stops serving, and how soon one is released that takes
// nothing with it. The API is the MachineDisruptionBudget. Pods of OSDs are deleted, and nodes lose their power or
// hang; a node whose Machine is released is started again, as fencing does on metal. Every release is judged from what
// the API server and Ceph say, by code of this package alone. One line "name value unit" for each figure, see
// README.md; each event is told on standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/lockkeeper/lockkeeper/test/auditlog"
	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

func main() {
	b := bench{}
	flag.StringVar(&b.namespace, "namespace", "rook-ceph", "of the policy and the storage pods")
	flag.StringVar(&b.policy, "policy", "rook-ceph", "MaintenancePolicy, after which the budget and its label are named")
	flag.StringVar(&b.machines, "machines", "machines", "namespace of the Machines")
	flag.StringVar(&b.lab, "lab", "", "name of the lab, whose nodes fail (required)")
	flag.DurationVar(&b.timeout, "timeout", 2*time.Second, "of the health check's conditions")
	events := flag.Int("events", 20, "how many pods of OSDs are deleted, and how many nodes fail")
	figures.Main("fencing", func(ctx context.Context) error { return b.run(ctx, *events) })
}

type bench struct {
	namespace, policy, machines, lab string
	timeout                          time.Duration

	api  lab.Lab
	dyn  dynamic.Interface
	ceph *cephrados.Conn
	rec  *recorder
}

// Pauses and patience of an event.
const (
	patience = 3 * time.Minute
	glance   = 2 * time.Millisecond // between looks at what was recorded, which has the times
	settles  = time.Second          // at rest, before something happens
	// hangs is how often a node hangs instead of losing its power: its OSDs are up in the map for the heartbeats' grace
	// period while the node is unready.
	hangs = 5
)

func (b *bench) run(ctx context.Context, events int) (err error) {
	switch {
	case events < 1:
		return fmt.Errorf("--events %d: must be 1 or more", events)
	case b.lab == "":
		return errors.New("--lab is required")
	}
	if b.api, err = lab.Connect(ctx); err != nil {
		return err
	}
	defer b.api.Temporal.Close()
	if b.dyn, err = dynamic.NewForConfig(b.api.Config); err != nil {
		return err
	}
	if b.ceph, err = lab.Ceph(); err != nil {
		return err
	}
	defer b.ceph.Shutdown()
	if b.rec, err = b.startRecording(ctx); err != nil {
		return err
	}
	f, err := b.measure(ctx, events)
	if err := errors.Join(err, b.rec.end()); err != nil {
		return err
	}
	figures.Print("hold_ms", f.holds)
	figures.Print("release_ms", f.releases)
	wrong := b.rec.journal.wrong
	for _, w := range wrong {
		fmt.Fprintln(os.Stderr, "wrong:", w)
	}
	fmt.Printf("wrong_releases %d releases\n", len(wrong))
	fmt.Printf("api_writes_per_event %.1f writes\n", float64(f.writes)/float64(2*events))
	return nil
}

// found is what all events have shown.
type found struct {
	holds, releases []time.Duration
	writes          int
}

func (b *bench) measure(ctx context.Context, events int) (f found, err error) {
	began := time.Now()
	for i := range events {
		hold, err := b.stopOSD(ctx, i)
		if err != nil {
			return f, fmt.Errorf("stop %d: %w", i+1, err)
		}
		f.holds = append(f.holds, hold)
		hold, release, err := b.failNode(ctx, i)
		if err != nil {
			return f, fmt.Errorf("failure %d: %w", i+1, err)
		}
		f.holds, f.releases = append(f.holds, hold), append(f.releases, release)
	}
	if err := figures.Pause(ctx, auditlog.Delay); err != nil {
		return f, err
	}
	f.writes, err = lab.WritesSince(began)
	return f, err
}

// stopOSD deletes the pod of an OSD, which its Deployment replaces at once, and tells how long it took until the budget
// let nobody go.
func (b *bench) stopOSD(ctx context.Context, i int) (hold time.Duration, err error) {
	osd, began, err := b.atRest(ctx, i)
	if err != nil {
		return 0, err
	}
	pods := b.api.Kube.CoreV1().Pods(b.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: osdsOnly + ",ceph_daemon_id=" + osd[len("osd."):]})
	if err != nil {
		return 0, err
	}
	if len(list.Items) != 1 {
		return 0, fmt.Errorf("%s has %d pods", osd, len(list.Items))
	}
	if err := pods.Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	if hold, err = b.held(ctx, osd, began); err == nil {
		down := b.rec.journal.first(change{serves, osd, false}, began)
		fmt.Fprintf(os.Stderr, "%s: down %s after its pod was to go, held %s after that\n", osd, down.Sub(began), hold)
	}
	return hold, err
}

// failNode has a node fail, and starts it again when its Machine is released. It tells how long it took from the
// moment from which it could be known that the release takes nothing.
func (b *bench) failNode(ctx context.Context, i int) (hold, release time.Duration, err error) {
	osd, began, err := b.atRest(ctx, i)
	if err != nil {
		return 0, 0, err
	}
	j := b.rec.journal
	node, fault := j.homeOf(osd), "node-lost"
	if i%hangs == hangs-1 {
		fault = "node-hang"
	}
	if err := lab.Command(ctx, "lab", "fault", fault, node, "--name", b.lab); err != nil {
		return 0, 0, err
	}
	if hold, err = b.held(ctx, osd, began); err != nil {
		return 0, 0, err
	}
	var released, known time.Time
	if err := b.until(ctx, "the release of "+node, func() bool {
		released = j.first(change{what: hasHold, of: node, is: false}, began)
		known = j.costless(node, began, b.timeout)
		return !released.IsZero() && !known.IsZero()
	}); err != nil {
		return 0, 0, err
	}
	release = max(0, released.Sub(known))
	fmt.Fprintf(os.Stderr, "%s: %s, held after %s, known after %s that its fence takes nothing, released %s after that\n",
		node, fault, hold, known.Sub(began).Round(time.Millisecond), release)
	return hold, release, lab.Command(ctx, "lab", "fault", "node-return", node, "--name", b.lab)
}

// held waits until the budget lets nobody go, and tells how long that took since the OSD was down in the map.
func (b *bench) held(ctx context.Context, osd string, began time.Time) (took time.Duration, err error) {
	err = b.until(ctx, "the budget to let nobody go", func() bool {
		j := b.rec.journal
		down := j.first(change{what: serves, of: osd, is: false}, began)
		closed := j.first(change{what: letsOneGo, is: false}, began)
		took = max(0, closed.Sub(down))
		return !down.IsZero() && !closed.IsZero()
	})
	return took, err
}

// atRest waits for the world to be whole, and chooses the OSD to which something happens next.
func (b *bench) atRest(ctx context.Context, i int) (osd string, began time.Time, err error) {
	j := b.rec.journal
	if err := b.until(ctx, "the world to be whole", func() bool { return j.wholeFor(settles) }); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %s", err, j.missing())
	}
	osds := j.osds()
	return osds[i%len(osds)], time.Now(), nil
}

func (b *bench) until(ctx context.Context, what string, is func() bool) error {
	return lab.Until(ctx, patience, glance, what, func() (bool, error) { return is(), b.rec.failed() })
}
