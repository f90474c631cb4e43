// mons measures how long it takes lockkeeper to move a mon, and where that time goes. It changes the storage of a
// CephMon back and forth, so that each round moves every mon, and has `lockkeeper migrate-mons` move them. One line
// "name value unit" for each figure, see README.md; each move with its parts is told on standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

// specs are what the storage of the mons is changed to, in turns.
var specs = []string{
	`{"spec":{"volumeClaimTemplate":{"spec":{"storageClassName":"zone-disk"}}}}`,
	`{"spec":{"volumeClaimTemplate":null}}`,
}

func main() {
	w := world{}
	flag.StringVar(&w.namespace, "namespace", "rook-ceph", "of the CephMon and its mons")
	flag.StringVar(&w.cephMon, "cephmon", "mons", "CephMon whose spec changes")
	flag.IntVar(&w.mons, "mons", 3, "how many it has")
	rounds := flag.Int("rounds", 4, "how often every mon is moved")
	figures.Main("mons", func(ctx context.Context) error { return w.run(ctx, *rounds) })
}

type world struct {
	namespace, cephMon string
	mons               int
	lab.Lab
	ceph *cephrados.Conn
}

func (w *world) run(ctx context.Context, rounds int) (err error) {
	if w.Lab, err = lab.Connect(ctx); err != nil {
		return err
	}
	defer w.Temporal.Close()
	if w.ceph, err = lab.Ceph(); err != nil {
		return err
	}
	defer w.ceph.Shutdown()
	rec, err := w.startRecording(ctx)
	if err != nil {
		return err
	}
	var moves []move
	events := 0
	for round := range rounds {
		acts, n, err := w.migrate(ctx, specs[round%len(specs)])
		moved := movesOf(acts)
		if err == nil && len(moved) != w.mons {
			err = fmt.Errorf("of %d mons %d have moved", w.mons, len(moved))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("round %d: %w", round+1, err), rec.end())
		}
		moves, events = append(moves, moved...), events+n
	}
	if err := rec.end(); err != nil {
		return err
	}
	var parts []split
	for _, m := range moves {
		p := rec.seen.split(m)
		fmt.Fprintf(os.Stderr, "%s\n", p)
		parts = append(parts, p)
	}
	printSeconds("mon_move", parts, func(p split) time.Duration { return p.total })
	printSeconds("mon_schedule", parts, func(p split) time.Duration { return p.schedule })
	printSeconds("mon_mkfs", parts, func(p split) time.Duration { return p.mkfs })
	printSeconds("mon_quorum", parts, func(p split) time.Duration { return p.quorum })
	printSeconds("mon_ours", parts, func(p split) time.Duration { return p.ours() })
	fmt.Printf("mon_without_quorum_ms %d ms\n", rec.seen.longestWithoutQuorum().Milliseconds())
	fmt.Printf("mon_client_wait_ms %d ms\n", rec.seen.longestWait.Milliseconds())
	fmt.Printf("events_per_mon_move %.1f events\n", float64(events)/float64(len(moves)))
	return nil
}

// printSeconds prints the median and the worst of one part of all moves.
func printSeconds(name string, parts []split, of func(split) time.Duration) {
	var all []time.Duration
	for _, p := range parts {
		all = append(all, of(p))
	}
	slices.Sort(all)
	fmt.Printf("%s_s %.2f s\n%s_max_s %.2f s\n", name, all[len(all)/2].Seconds(), name, all[len(all)-1].Seconds())
}

// roundTakes is how long all mons may take to move: some 15 s each is usual.
const roundTakes = 5 * time.Minute

// migrate changes the spec, and has every mon moved. events is how many the histories of the job have.
func (w *world) migrate(ctx context.Context, spec string) (acts []act, events int, err error) {
	began := time.Now()
	name := w.namespace + "/" + w.cephMon
	if err := lab.Command(ctx, "kubectl", "-n", w.namespace, "patch", "cephmon", w.cephMon, "--type=merge", "-p",
		spec); err != nil {
		return nil, 0, err
	}
	late := fmt.Errorf("the mons have not moved within %s", roundTakes)
	moving, cancel := context.WithTimeoutCause(ctx, roundTakes, late)
	defer cancel()
	if err := lab.Command(moving, "lockkeeper", "migrate-mons", name, "--follow"); err != nil {
		return nil, 0, errors.Join(context.Cause(moving), err) // err has what the command said it waits for
	}
	return readHistories(ctx, w.Temporal, jobs.MigrateMons.ID(w.namespace, w.cephMon), began)
}
