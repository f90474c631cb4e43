package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/test/hammer"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// patience is how long anything but the hammer may take before the run is given up.
const patience = 3 * time.Minute

type world struct {
	options
	lab.Lab
	lockkeeper lab.Lockkeeper
	nodes      []string // with OSDs
	osds       []hammer.OSD
	marked     int // pods at rest
}

// newWorld connects to everything and starts lockkeeper.
func newWorld(ctx context.Context, o options) (*world, error) {
	l, err := lab.Connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{options: o, Lab: l, lockkeeper: lab.Lockkeeper{Dir: o.dir}}
	pods, err := w.Kube.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-osd"})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		id, err := strconv.Atoi(p.Labels["ceph-osd-id"])
		if err != nil {
			return nil, fmt.Errorf("pod %s: label ceph-osd-id: %w", p.Name, err)
		}
		w.osds, w.nodes = append(w.osds, hammer.NewOSD(id, p.Labels["topology-location-zone"], p.Name)),
			append(w.nodes, p.Spec.NodeName)
	}
	slices.Sort(w.nodes)
	if len(w.nodes) == 0 {
		return nil, fmt.Errorf("there are no OSDs in %s", o.namespace)
	}
	w.marked = len(w.osds)
	if err := w.start(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// awaitRest waits until the keeper says that all is well, nobody holds or wants the lease, and every OSD's pod is
// marked, or none if none may go at rest.
func (w *world) awaitRest(ctx context.Context) error {
	keeper := workflows.KeeperID(storage.ClusterKey{Namespace: w.namespace, Name: w.policy})
	return w.until(ctx, "rest", func() (bool, error) {
		v, err := w.Temporal.QueryWorkflow(ctx, keeper, "", workflows.QueryStatus)
		if err != nil {
			return false, nil //nolint:nilerr // Temporal or the worker may have to start yet
		}
		var s workflows.KeeperStatus
		if err := v.Get(&s); err != nil {
			return false, err
		}
		marks := s.View.Marks
		return s.Clean && len(s.Lease.Holders)+len(s.Lease.Queue)+len(s.Flags) == 0 && s.Decision.Mode == "Default" &&
			marks != nil && marks.Proved == w.marked, nil
	})
}

// start starts lockkeeper.
func (w *world) start() error {
	return w.lockkeeper.Start(lab.Kubeconfig(w.dir, "worker"), lab.Kubeconfig(w.dir, "watch"))
}

func (w *world) close() {
	w.lockkeeper.Stop()
	w.Temporal.Close()
}

// letGoAtRest sets what may go at rest, and returns when the disruption controller goes by it.
func (w *world) letGoAtRest(ctx context.Context, what string) error {
	if w.marked = 0; what == "One" {
		w.marked = len(w.osds)
	}
	patch := fmt.Sprintf(`{"spec":{"ceph":{"atRest":%q}}}`, what)
	if err := lab.Command(ctx, "kubectl", "-n", w.namespace, "patch", "maintenancepolicy", w.policy, "--type=merge", "-p",
		patch); err != nil {
		return err
	}
	return w.until(ctx, "the budget to follow atRest: "+what, func() (bool, error) {
		p, err := w.Kube.PolicyV1().PodDisruptionBudgets(w.namespace).Get(ctx, kube.ProvedBudgetName(w.policy),
			metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		follows := (p.Spec.MaxUnavailable != nil) == (what == "None") // of which the budget says that none may be unavailable
		return follows && p.Status.ObservedGeneration == p.Generation && (p.Status.DisruptionsAllowed > 0) == (what == "One"),
			nil
	})
}

// drain is one that goes on; err is its end.
type drain struct {
	node  string
	ended chan struct{}
	err   *error
}

// beginDrain drains a node, and reboots and uncordons it as soon as it is empty.
func (w *world) beginDrain(ctx context.Context, node string) (drain, error) {
	run, err := w.Temporal.ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: jobs.DrainNode.ID(node), TaskQueue: workflows.TaskQueue},
		jobs.DrainNode.Type, workflows.DrainNodeInput{Node: node, Reason: "bench"})
	if err != nil {
		return drain{}, err
	}
	d := drain{node: node, ended: make(chan struct{}), err: new(error)}
	go func() {
		defer close(d.ended)
		*d.err = w.finishDrain(ctx, node, run)
	}()
	return d, nil
}

func (w *world) finishDrain(ctx context.Context, node string, run client.WorkflowRun) error {
	if err := w.until(ctx, node+" to be empty", func() (bool, error) {
		v, err := w.Temporal.QueryWorkflow(ctx, run.GetID(), run.GetRunID(), workflows.QueryStatus)
		if err != nil {
			return false, err
		}
		var s workflows.DrainStatus
		return v.Get(&s) == nil && s.Phase == workflows.PhaseReturn, nil
	}); err != nil {
		return err
	}
	if err := lab.Command(ctx, "lab", "fault", "node-reboot", node, "--name", w.lab); err != nil {
		return err
	}
	if err := lab.Command(ctx, "kubectl", "uncordon", node); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var result workflows.DrainNodeResult
	if err := run.Get(ctx, &result); err != nil {
		return err
	}
	if result.Outcome != workflows.OutcomeDone {
		return fmt.Errorf("the drain of %s ended with %q", node, result.Outcome)
	}
	return nil
}

func (w *world) until(ctx context.Context, what string, done func() (bool, error)) error {
	return lab.Until(ctx, patience, 50*time.Millisecond, what, done)
}
