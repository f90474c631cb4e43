package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"go.temporal.io/api/workflowservice/v1"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/auditlog"
	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file attaches and detaches volumes all the time, each to a node of its own, and counts what lockkeeper does.

const (
	attachEvery = time.Second
	busyVolumes = 6 // busy-0 to busy-5
)

// attach attaches or detaches the next volume every second. A volume that is not done yet has its turn when it is.
func (b *bench) attach(ctx context.Context, times int) error {
	rest, err := b.atRest(ctx)
	if err != nil {
		return err
	}
	nodes := append([]string{rest.keeper}, rest.others...)
	began := time.Now()
	var turns [busyVolumes]chan bool
	work, ctx2 := errgroup.WithContext(ctx)
	for i := range turns {
		turns[i] = make(chan bool, times)
		work.Go(func() error {
			volume, node := fmt.Sprintf("busy-%d", i), nodes[i%len(nodes)]
			for on := range turns[i] {
				args := []string{"volume", "attach", volume, node, "--name", b.lab}
				if !on {
					args = []string{"volume", "detach", volume, "--name", b.lab}
				}
				if err := lab.Command(ctx2, "lab", args...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i := range times {
		turns[i%busyVolumes] <- i/busyVolumes%2 == 0
		if err := figures.Pause(ctx2, attachEvery); err != nil {
			break // work tells why
		}
	}
	for _, turn := range turns {
		close(turn)
	}
	if err := work.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d times a volume was attached or detached, in %s\n", times,
		time.Since(began).Round(time.Second))
	if err := figures.Pause(ctx, auditlog.Delay); err != nil {
		return err
	}
	return b.printCost(ctx, times, began)
}

// printCost prints what attaching has cost since it began.
func (b *bench) printCost(ctx context.Context, times int, began time.Time) error {
	writes, err := lab.WritesSince(began)
	if err != nil {
		return err
	}
	events, longest, err := b.keeperEvents(ctx, began)
	if err != nil {
		return err
	}
	fmt.Printf("api_writes_per_attach %.2f writes\n", float64(writes)/float64(times))
	fmt.Printf("keeper_events_per_attach %.2f events\n", float64(events)/float64(times))
	fmt.Printf("keeper_history_longest %d events\n", longest)
	return nil
}

// keeperEvents counts the events in the keeper's histories since a time, and those of its longest history.
func (b *bench) keeperEvents(ctx context.Context, since time.Time) (n, longest int, err error) {
	id := workflows.KeeperID(storage.ClusterKey{Namespace: b.namespace, Name: b.policy})
	runs, err := b.api.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowId = '%s'", id),
	})
	if err != nil {
		return 0, 0, err
	}
	for _, run := range runs.GetExecutions() {
		length := 0
		history := b.api.Temporal.GetWorkflowHistory(ctx, id, run.GetExecution().GetRunId(), false,
			enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			e, err := history.Next()
			if err != nil {
				return 0, 0, err
			}
			if length++; !e.GetEventTime().AsTime().Before(since) {
				n++
			}
		}
		longest = max(longest, length)
	}
	return n, longest, nil
}
