package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

// This file is what Longhorn alone and lockkeeper are compared by beside times: who may go that should not.

const (
	pairTimes = 5                // how often both nodes of a pair are cordoned at once
	pairLasts = 30 * time.Second // each time: Longhorn's managers need up to 22 s to answer a cordon
)

// beside compares who may go while a volume of two replicas is leaving with both of its nodes, and while one of three
// is attached.
func (b *bench) beside(ctx context.Context, pair string) error {
	nodes := strings.Split(pair, ",")
	if len(nodes) != 2 || nodes[0] == nodes[1] {
		return fmt.Errorf("--pair %q: must be two nodes, as in node-a,node-b", pair)
	}
	both := 0
	for range pairTimes {
		let, err := b.bothLeave(ctx, nodes)
		if err != nil {
			return err
		}
		if let {
			both++
		}
	}
	fmt.Printf("%s %d of_%d_times\n", b.named("both_let_go"), both, pairTimes)
	free, err := b.freeInUse(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s %d of_2_nodes\n", b.named("free_in_use"), free)
	return nil
}

// bothLeave cordons both nodes that hold a volume in the same moment, and tells whether both could have gone.
func (b *bench) bothLeave(ctx context.Context, nodes []string) (let bool, err error) {
	if err := figures.Pause(ctx, settles); err != nil {
		return false, err
	}
	began := time.Now()
	defer func() {
		for _, n := range nodes {
			if undone := b.announce(ctx, n, cordons, false); err == nil {
				err = undone
			}
		}
		if err == nil {
			err = figures.Pause(ctx, pairLasts) // until Longhorn protects them again
		}
	}()
	for _, n := range nodes {
		if err := b.announce(ctx, n, cordons, true); err != nil {
			return false, err
		}
	}
	if err := figures.Pause(ctx, pairLasts); err != nil {
		return false, err
	}
	let = !b.view.since(began, func(now standing) bool { return now[nodes[0]] == free && now[nodes[1]] == free }).IsZero()
	fmt.Fprintf(os.Stderr, "%v are cordoned: both may go: %t\n", nodes, let)
	return let, b.view.failed()
}

// freeInUse counts the nodes that may go although a volume that is attached elsewhere writes to its replica there.
func (b *bench) freeInUse(ctx context.Context) (n int, err error) {
	const node = "node-a"
	if err := lab.Command(ctx, "lab", "volume", "attach", "data", node, "--name", b.lab); err != nil {
		return 0, err
	}
	if err := figures.Pause(ctx, pairLasts); err != nil {
		return 0, err
	}
	now := b.view.last()
	for other, m := range now {
		if other != node && m == free {
			n++
		}
	}
	fmt.Fprintf(os.Stderr, "data is attached to %s: %v\n", node, now)
	return n, lab.Command(ctx, "lab", "volume", "detach", "data", "--name", b.lab)
}
