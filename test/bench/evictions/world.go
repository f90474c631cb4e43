package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// patience is how long anything but the hammer may take before the run is given up.
const patience = 3 * time.Minute

type world struct {
	options
	kube     kubernetes.Interface
	temporal client.Client
	nodes    []string // with OSDs
	zones    map[int]string
	children []*exec.Cmd
}

// newWorld connects to everything and starts lockkeeper.
func newWorld(ctx context.Context, o options) (*world, error) {
	w := &world{options: o, zones: map[int]string{}}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	if w.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	t, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, err
	}
	t.Logger = quiet{}
	if w.temporal, err = client.DialContext(ctx, t); err != nil {
		return nil, err
	}
	pods, err := w.kube.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-osd"})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		id, err := strconv.Atoi(p.Labels["ceph-osd-id"])
		if err != nil {
			return nil, fmt.Errorf("pod %s: label ceph-osd-id: %w", p.Name, err)
		}
		w.zones[id], w.nodes = p.Labels["topology-location-zone"], append(w.nodes, p.Spec.NodeName)
	}
	slices.Sort(w.nodes)
	if len(w.nodes) == 0 {
		return nil, fmt.Errorf("there are no OSDs in %s", o.namespace)
	}
	if err := w.startAll(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// startAll starts lockkeeper's processes with the rights that their kubeconfigs give.
func (w *world) startAll() error {
	return errors.Join(
		w.start("worker", "lockkeeper-worker"),
		w.start("watch", "lockkeeper", "watch", "--leader-elect-namespace", "lockkeeper-system", "--health-addr", "0", "--metrics-addr", "0"),
	)
}

func (w *world) start(who, program string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(w.dir, who+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                   // the child has its own descriptor
	c := exec.Command(program, args...) //nolint:noctx // kill and close end it
	c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(w.dir, who+".kubeconfig"))
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // with us, whatever way we end
	if err := c.Start(); err != nil {
		return err
	}
	w.children = append(w.children, c)
	return nil
}

// kill ends them as a lost machine would.
func (w *world) kill() { w.end(syscall.SIGKILL) }

func (w *world) end(s syscall.Signal) {
	for _, c := range w.children {
		_ = c.Process.Signal(s)
		_ = c.Wait()
	}
	w.children = nil
}

func (w *world) close() {
	w.end(syscall.SIGTERM)
	w.temporal.Close()
}

// awaitRest waits until the keeper says that all is well, nobody holds or wants the lease, and every OSD's pod is marked.
func (w *world) awaitRest(ctx context.Context) error {
	keeper := workflows.KeeperID(storage.ClusterKey{Namespace: w.namespace, Name: w.policy})
	return w.until(ctx, "rest", func() (bool, error) {
		v, err := w.temporal.QueryWorkflow(ctx, keeper, "", workflows.QueryStatus)
		if err != nil {
			return false, nil //nolint:nilerr // Temporal or the worker may have to start yet
		}
		var s workflows.KeeperStatus
		if err := v.Get(&s); err != nil {
			return false, err
		}
		marks := s.View.Marks
		return s.Clean && len(s.Lease.Holders)+len(s.Lease.Queue)+len(s.Noout) == 0 && s.Decision.Mode == "Default" &&
			marks != nil && marks.Proved == len(w.zones), nil
	})
}

// letGoAtRest sets what may go at rest, and returns when the disruption controller goes by it.
func (w *world) letGoAtRest(ctx context.Context, what string) error {
	patch := fmt.Sprintf(`{"spec":{"atRest":%q}}`, what)
	if err := w.command(ctx, "kubectl", "-n", w.namespace, "patch", "maintenancepolicy", w.policy, "--type=merge", "-p", patch); err != nil {
		return err
	}
	return w.until(ctx, "the budget to follow atRest: "+what, func() (bool, error) {
		p, err := w.kube.PolicyV1().PodDisruptionBudgets(w.namespace).Get(ctx, kube.ProvedBudgetName(w.policy), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return p.Status.ObservedGeneration == p.Generation && (p.Status.DisruptionsAllowed > 0) == (what == "One"), nil
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
	run, err := w.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: workflows.DrainID(node), TaskQueue: workflows.TaskQueue},
		workflows.DrainNodeType, workflows.DrainNodeInput{Node: node, Reason: "bench"})
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
		v, err := w.temporal.QueryWorkflow(ctx, run.GetID(), run.GetRunID(), workflows.QueryStatus)
		if err != nil {
			return false, err
		}
		var s workflows.DrainStatus
		return v.Get(&s) == nil && s.Phase == workflows.PhaseReturn, nil
	}); err != nil {
		return err
	}
	if err := w.command(ctx, "lab", "fault", "node-reboot", node, "--name", w.lab); err != nil {
		return err
	}
	if err := w.command(ctx, "kubectl", "uncordon", node); err != nil {
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
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("in vain for %s", what)
}

func (w *world) command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// quiet is a logger of nothing.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
