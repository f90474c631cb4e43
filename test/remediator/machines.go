package remediator

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file is OpenShift's present health check, and the controller that carries out what it deletes.

// Finalizer is what keeps a Machine until its instance is gone.
const Finalizer = "machine.machine.openshift.io"

// Annotations of a health check: it does nothing, or has metal started again in place of deleting Machines.
const (
	pausedAnnotation = "cluster.x-k8s.io/paused"
	strategy         = "machine.openshift.io/remediation-strategy"
	metal            = "external-baremetal"
)

func (r *Remediator) lookAtMachines(ctx context.Context) error {
	machines, err := r.list(ctx, machineAPI, "Machine")
	if err != nil {
		return err
	}
	checks, err := r.list(ctx, machineAPI, "MachineHealthCheck")
	if err != nil {
		return err
	}
	failed := r.deleteMachines(ctx, machines)
	for i := range checks {
		if _, paused := checks[i].GetAnnotations()[pausedAnnotation]; !paused {
			failed = errors.Join(failed, r.check(ctx, &checks[i], machines))
		}
	}
	return failed
}

// check deletes the unhealthy Machines of one health check, unless they are too many.
func (r *Remediator) check(
	ctx context.Context, check *unstructured.Unstructured, machines []unstructured.Unstructured,
) error {
	all, err := conditions(check, "timeout")
	if err != nil {
		return err
	}
	of, err := selected(check, machines)
	if err != nil {
		return err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	bad := slices.DeleteFunc(slices.Clone(of), func(m *unstructured.Unstructured) bool {
		if nodeOf(m) != "" && unhealthy(nodes[nodeOf(m)], all, time.Now()) {
			return false
		}
		delete(r.starting, nodeOf(m))
		return true
	})
	most, err := scaled(check, "maxUnhealthy", "100%", len(of), false)
	if err != nil || len(bad) > most {
		return err
	}
	var failed error
	for _, m := range bad {
		switch {
		case check.GetAnnotations()[strategy] == metal: // whatever hooks it has
			failed = errors.Join(failed, r.startAgain(ctx, nodeOf(m)))
		case m.GetDeletionTimestamp() == nil:
			failed = errors.Join(failed, client.IgnoreNotFound(r.Client.Delete(ctx, m)))
		}
	}
	return failed
}

// deleteMachines goes on with the Machines that are being deleted: each waits for its hooks before the drain, and for
// those before its end. Of a node that is lost there is nothing to drain, and the lab's Machines have no others.
func (r *Remediator) deleteMachines(ctx context.Context, machines []unstructured.Unstructured) (failed error) {
	for i := range machines {
		m := &machines[i]
		if m.GetDeletionTimestamp() == nil || !slices.Contains(m.GetFinalizers(), Finalizer) ||
			hooked(m, "preDrain") || hooked(m, "preTerminate") {
			continue
		}
		err := r.fence(ctx, nodeOf(m), true)
		if err == nil {
			before := m.DeepCopy()
			m.SetFinalizers(slices.DeleteFunc(m.GetFinalizers(), func(f string) bool { return f == Finalizer }))
			err = client.IgnoreNotFound(r.Client.Patch(ctx, m, client.MergeFrom(before)))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func hooked(m *unstructured.Unstructured, stage string) bool {
	hooks, _, _ := unstructured.NestedSlice(m.Object, "spec", "lifecycleHooks", stage)
	return len(hooks) > 0
}
