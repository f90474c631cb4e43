package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// patience is how long one step may take before the run is given up.
const patience = 2 * time.Minute

type world struct {
	options
	lab.Lab
	lockkeeper lab.Lockkeeper
	ceph       *cephrados.Conn
	proxy      *proxy
	// run of the keeper that was asked last, and the events of the runs before it.
	run  string
	past int64
}

// newWorld connects to everything and starts lockkeeper behind the proxy.
func newWorld(ctx context.Context, o options) (*world, error) {
	l, err := lab.Connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{options: o, Lab: l, lockkeeper: lab.Lockkeeper{Dir: o.dir}}
	if w.ceph, err = lab.Ceph(); err != nil {
		return nil, err
	}
	if w.proxy, err = newProxy(w.Config); err != nil {
		return nil, err
	}
	worker, lost := w.counted("worker")
	watch, err := w.counted("watch")
	if err = errors.Join(lost, err); err == nil {
		err = w.lockkeeper.Start(worker, watch)
	}
	if err != nil {
		w.close()
	}
	return w, err
}

// counted is a kubeconfig with the rights of one of the processes, and the proxy in place of the API server.
func (w *world) counted(who string) (string, error) {
	cfg, err := clientcmd.LoadFromFile(lab.Kubeconfig(w.dir, who))
	if err != nil {
		return "", err
	}
	for _, c := range cfg.Clusters {
		c.Server, c.CertificateAuthority, c.CertificateAuthorityData = w.proxy.server.URL, "", w.proxy.certificate()
	}
	path := lab.Kubeconfig(w.dir, who+"-counted")
	return path, clientcmd.WriteToFile(*cfg, path)
}

func (w *world) close() {
	w.lockkeeper.Stop()
	w.proxy.server.CloseClientConnections()
	w.proxy.server.Close()
	w.Temporal.Close()
	w.ceph.Shutdown()
}

// storageNodes are the nodes that host OSDs.
func (w *world) storageNodes(ctx context.Context) ([]string, error) {
	pods, err := w.Kube.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-osd"})
	if err != nil {
		return nil, err
	}
	var nodes []string
	for i := range pods.Items {
		nodes = append(nodes, pods.Items[i].Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

func (w *world) keeperID() string {
	return workflows.KeeperID(storage.ClusterKey{Namespace: w.namespace, Name: w.policy})
}

// awaitRest waits until the keeper says that all is well and nobody holds or wants the lease, and its last words are
// written.
func (w *world) awaitRest(ctx context.Context) error {
	last := "nothing"
	err := w.until(ctx, "rest", func() (bool, error) {
		v, err := w.Temporal.QueryWorkflow(ctx, w.keeperID(), "", workflows.QueryStatus)
		if err != nil {
			last = err.Error()
			return false, nil //nolint:nilerr // it may have to start yet
		}
		var s workflows.KeeperStatus
		if err := v.Get(&s); err != nil {
			return false, err
		}
		last = fmt.Sprintf("clean %t, %d hold the lease, %d wait for it, noout on %v: %s %s", s.Clean,
			len(s.Lease.Holders), len(s.Lease.Queue), s.Flags, s.Decision.Reason, s.Trouble)
		if !s.Clean || len(s.Lease.Holders)+len(s.Lease.Queue)+len(s.Flags) > 0 {
			return false, nil
		}
		before, err := w.spent(ctx)
		if err != nil {
			return false, err
		}
		time.Sleep(time.Second)
		after, err := w.spent(ctx)
		last = fmt.Sprintf("within a second %d requests and %d events", after.requests-before.requests,
			after.events-before.events)
		return before == after, err
	})
	if err != nil {
		return fmt.Errorf("%w; last seen: %s", err, last)
	}
	return nil
}

// spent is what lockkeeper has used since it started. A keeper that continued as new has forgotten how many events it
// had before, so these are kept here.
func (w *world) spent(ctx context.Context) (cost, error) {
	d, err := w.Temporal.DescribeWorkflowExecution(ctx, w.keeperID(), "")
	if err != nil {
		return cost{}, err
	}
	if run := d.WorkflowExecutionInfo.Execution.RunId; run != w.run {
		if w.run != "" {
			before, err := w.Temporal.DescribeWorkflowExecution(ctx, w.keeperID(), w.run)
			if err != nil {
				return cost{}, err
			}
			w.past += before.WorkflowExecutionInfo.HistoryLength
		}
		w.run = run
	}
	return cost{requests: w.proxy.total(), events: w.past + d.WorkflowExecutionInfo.HistoryLength}, nil
}

func (w *world) until(ctx context.Context, what string, done func() (bool, error)) error {
	return lab.Until(ctx, patience, 20*time.Millisecond, what, done)
}

// cephIsWhole: the mons hold that all OSDs are up, all mons in quorum, and, as the manager last reported, all data
// clean.
func (w *world) cephIsWhole() (whole, clean bool) {
	var s lab.Status
	if lab.Ask(w.ceph, "status", &s) != nil {
		return false, false // an election is on; it is not whole then
	}
	clean = s.Clean()
	return clean && s.OSDMap.Up == s.OSDMap.Total && len(s.Quorum) == s.MonMap.Mons, clean
}
