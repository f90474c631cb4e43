// evictions has clients evict every OSD, all the time: over a drain, and while nobody watches, with the worker, the
// watcher and Temporal dead. What came of it is judged from the API server's audit log and Ceph's own maps, by code
// that shares nothing with lockkeeper's. One line "name value unit" for each figure; all else goes to standard error.
//
//	domains_at_once                  failure domains that were disrupted at the same moment, in all of it
//	evictions_with_nobody_watching   evictions that were granted in --for; ..._at_rest_none: with atRest: None
//	failed_evictions                 those that were answered with 500, in all of it
//	reaction_alone_ms_p50, _p99      an OSD's pod is deleted → a watcher has closed, with worker and Temporal dead
//
// With --guard it installs the guard of deletions afterwards, and has clients delete everything while nobody watches:
//
//	deletions_with_nobody_watching   deletions that were granted in --for
//	wish_seen_ms_p50, _p99           somebody wants an OSD's pod gone, which waits → the job that lets it go has begun
//	restart_by_hand_s                RestartOSDs, zone by zone
//	restart_all_s                    the same by whoever changes all Deployments at once, without anybody to approve it
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/test/hammer"
)

type options struct {
	during                      time.Duration
	clients                     int
	dir, lab, namespace, policy string
	guard                       string
	guardAlone                  bool
}

func main() {
	var o options
	flag.DurationVar(&o.during, "for", time.Minute, "how long nobody watches")
	flag.IntVar(&o.clients, "clients", 4, "how many evict")
	flag.StringVar(&o.dir, "dir", "", "folder with worker.kubeconfig and watch.kubeconfig (required)")
	flag.StringVar(&o.lab, "lab", "", "name of the lab (required)")
	flag.StringVar(&o.guard, "guard", "", "folder of the guard of deletions: measures that, too")
	flag.BoolVar(&o.guardAlone, "guard-alone", false, "with --guard: measures nothing else")
	flag.StringVar(&o.namespace, "namespace", "rook-ceph", "of the policy and the storage pods")
	flag.StringVar(&o.policy, "policy", "rook-ceph", "MaintenancePolicy")
	figures.Main("evictions", func(ctx context.Context) error { return run(ctx, o) })
}

// most is how long the hammer goes on over a drain, which it may hold up.
const most = time.Minute

func run(ctx context.Context, o options) error {
	switch {
	case o.during < time.Second || o.clients < 1:
		return fmt.Errorf("--for must be 1s or more, and --clients 1 or more")
	case o.dir == "" || o.lab == "":
		return fmt.Errorf("--dir and --lab are required")
	case o.guardAlone && o.guard == "":
		return fmt.Errorf("--guard-alone needs --guard")
	}
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.awaitRest(ctx); err != nil {
		return err
	}
	if o.guardAlone {
		return w.deletions(ctx)
	}
	var all hammer.Verdict
	note := func(v hammer.Verdict) {
		all.DomainsMost, all.Failed = max(all.DomainsMost, v.DomainsMost), all.Failed+v.Failed
		all.Disturbances = append(all.Disturbances, v.Disturbances...)
	}
	v, err := w.overDrain(ctx)
	if err != nil {
		return fmt.Errorf("over a drain: %w", err)
	}
	note(v)
	one, err := w.unwatched(ctx)
	if err != nil {
		return fmt.Errorf("with nobody watching: %w", err)
	}
	note(one)
	if err := w.letGoAtRest(ctx, "None"); err != nil {
		return err
	}
	none, err := w.unwatched(ctx)
	if err != nil {
		return fmt.Errorf("with nobody watching, atRest None: %w", err)
	}
	note(none)
	if err := w.letGoAtRest(ctx, "One"); err != nil {
		return err
	}
	for _, d := range all.Disturbances {
		fmt.Fprintln(os.Stderr, "two at once:", d)
	}
	fmt.Printf("domains_at_once %d domains\n", all.DomainsMost)
	fmt.Printf("evictions_with_nobody_watching %d evictions\n", one.Evictions)
	fmt.Printf("evictions_with_nobody_watching_at_rest_none %d evictions\n", none.Evictions)
	fmt.Printf("failed_evictions %d evictions\n", all.Failed)
	alone, err := w.alone(ctx)
	if err != nil {
		return fmt.Errorf("with a watcher alone: %w", err)
	}
	figures.Print("reaction_alone_ms", alone)
	if w.guard == "" {
		return nil
	}
	return w.deletions(ctx)
}

// hammer evicts everything until the context ends, while something is done, and judges it when all is whole again.
func (w *world) hammer(
	ctx context.Context, what string, do func(context.Context) error, after func() error,
) (hammer.Verdict, error) {
	judge, err := hammer.NewJudge(ctx, os.Environ(), w.osds)
	if err != nil {
		return hammer.Verdict{}, err
	}
	defer judge.Close()
	hammered, stop := context.WithCancel(ctx)
	defer stop()
	var (
		answers hammer.Answers
		lost    error
		wg      sync.WaitGroup
	)
	wg.Go(func() {
		answers, lost = hammer.Clients(hammered, os.Getenv("KUBECONFIG"), w.namespace, "app=rook-ceph-osd", w.clients)
	})
	began := time.Now()
	err = do(ctx)
	took := time.Since(began)
	stop()
	wg.Wait()
	for _, err := range []error{err, lost, after()} {
		if err != nil {
			return hammer.Verdict{}, err
		}
	}
	v, err := judge.Verdict(ctx)
	if err != nil {
		return hammer.Verdict{}, err
	}
	fmt.Fprintf(os.Stderr, "%s, %s: %d OSDs evicted, at most %d failure domains at once, all data whole %d times; %s\n",
		what, took.Round(time.Second), v.Evictions, v.DomainsMost, v.Samples, answers)
	if answers.Granted+answers.Refused == 0 {
		return v, fmt.Errorf("nobody hammered")
	}
	return v, nil
}

// overDrain drains a node, reboots and uncordons it, under the hammer.
func (w *world) overDrain(ctx context.Context) (hammer.Verdict, error) {
	var job drain
	during := func(ctx context.Context) (err error) {
		if job, err = w.beginDrain(ctx, w.nodes[0]); err != nil {
			return err
		}
		select {
		case <-job.ended:
		case <-time.After(most):
			fmt.Fprintf(os.Stderr, "the drain of %s is not over after %s\n", job.node, most)
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	return w.hammer(ctx, "a drain", during, func() error {
		if job.ended != nil {
			<-job.ended
		}
		if job.err != nil && *job.err != nil {
			return *job.err
		}
		return w.awaitRest(ctx)
	})
}

// die waits for rest, and ends worker, watcher and Temporal, which comes back a while after nobody was to watch.
func (w *world) die(ctx context.Context) error {
	if err := w.awaitRest(ctx); err != nil {
		return err
	}
	if err := lab.Command(ctx, "lab", "fault", "component-kill", "temporal", "--down", (w.during + 5*time.Second).String(),
		"--name", w.lab); err != nil {
		return err
	}
	w.lockkeeper.Kill()
	return nil
}

// unwatched lets worker, watcher and Temporal die, and hammers.
func (w *world) unwatched(ctx context.Context) (hammer.Verdict, error) {
	if err := w.die(ctx); err != nil {
		return hammer.Verdict{}, err
	}
	during := func(ctx context.Context) error { return figures.Pause(ctx, w.during) }
	return w.hammer(ctx, "nobody watches", during, func() error {
		if err := w.start(); err != nil {
			return err
		}
		return w.awaitRest(ctx)
	})
}
