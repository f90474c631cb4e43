package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// patience is how long one step may take before the run is given up.
const patience = 2 * time.Minute

type world struct {
	options
	kube     kubernetes.Interface
	ceph     *cephrados.Conn
	temporal client.Client
	proxy    *proxy
	children []*exec.Cmd
	// run of the keeper that was asked last, and the events of the runs before it.
	run  string
	past int64
}

// newWorld connects to everything and starts lockkeeper behind the proxy.
func newWorld(ctx context.Context, o options) (*world, error) {
	w := &world{options: o}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	if w.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if w.ceph, err = cephrados.NewConn(); err != nil {
		return nil, err
	}
	if err := errors.Join(w.ceph.ReadConfigFile(os.Getenv("CEPH_CONF")), w.ceph.SetConfigOption("rados_mon_op_timeout", "5"), w.ceph.Connect()); err != nil {
		return nil, fmt.Errorf("CEPH_CONF=%q: %w", os.Getenv("CEPH_CONF"), err)
	}
	t, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, err
	}
	t.Logger = quiet{}
	if w.temporal, err = client.DialContext(ctx, t); err != nil {
		return nil, err
	}
	if w.proxy, err = newProxy(cfg); err != nil {
		return nil, err
	}
	err = w.start("worker", "lockkeeper-worker")
	if err == nil {
		err = w.start("watch", "lockkeeper", "watch", "--leader-elect-namespace", "lockkeeper-system", "--health-addr", "0", "--metrics-addr", "0")
	}
	if err != nil {
		w.close()
	}
	return w, err
}

// start runs a program with the rights that its kubeconfig gives, and the proxy in place of the API server.
func (w *world) start(who, program string, args ...string) error {
	cfg, err := clientcmd.LoadFromFile(filepath.Join(w.dir, who+".kubeconfig"))
	if err != nil {
		return err
	}
	for _, c := range cfg.Clusters {
		c.Server, c.CertificateAuthority, c.CertificateAuthorityData = w.proxy.server.URL, "", w.proxy.certificate()
	}
	path := filepath.Join(w.dir, who+"-counted.kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(w.dir, who+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(program, args...) //nolint:noctx // close ends it, gently
	c.Env = append(os.Environ(), "KUBECONFIG="+path)
	c.Stdout, c.Stderr = log, log
	// With us, whatever way we end.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		return err
	}
	w.children = append(w.children, c)
	return nil
}

func (w *world) close() {
	for _, c := range w.children {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	}
	w.proxy.server.CloseClientConnections()
	w.proxy.server.Close()
	w.temporal.Close()
	w.ceph.Shutdown()
}

// storageNodes are the nodes that host OSDs.
func (w *world) storageNodes(ctx context.Context) ([]string, error) {
	pods, err := w.kube.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-osd"})
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

// awaitRest waits until the keeper says that all is well and nobody holds or wants the lease, and its last words are written.
func (w *world) awaitRest(ctx context.Context) error {
	return w.until(ctx, "rest", func() (bool, error) {
		v, err := w.temporal.QueryWorkflow(ctx, w.keeperID(), "", workflows.QueryStatus)
		if err != nil {
			return false, nil //nolint:nilerr // it may have to start yet
		}
		var s workflows.KeeperStatus
		if err := v.Get(&s); err != nil {
			return false, err
		}
		if !s.Clean || len(s.Lease.Holders)+len(s.Lease.Queue)+len(s.Noout) > 0 {
			return false, nil
		}
		before, err := w.spent(ctx)
		if err != nil {
			return false, err
		}
		time.Sleep(time.Second)
		after, err := w.spent(ctx)
		return before == after, err
	})
}

// spent is what lockkeeper has used since it started. A keeper that continued as new has forgotten how many events it had
// before, so these are kept here.
func (w *world) spent(ctx context.Context) (cost, error) {
	d, err := w.temporal.DescribeWorkflowExecution(ctx, w.keeperID(), "")
	if err != nil {
		return cost{}, err
	}
	if run := d.WorkflowExecutionInfo.Execution.RunId; run != w.run {
		if w.run != "" {
			before, err := w.temporal.DescribeWorkflowExecution(ctx, w.keeperID(), w.run)
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
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
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

// cephIsWhole: the mons hold that all OSDs are up, all mons in quorum, and, as the manager last reported, all data clean.
func (w *world) cephIsWhole() (whole, clean bool, err error) {
	out, _, err := w.ceph.MonCommand([]byte(`{"prefix":"status","format":"json"}`))
	if err != nil {
		return false, false, nil //nolint:nilerr // an election is on; it is not whole then
	}
	var s struct {
		Quorum []string `json:"quorum_names"`
		MonMap struct {
			Mons int `json:"num_mons"`
		} `json:"monmap"`
		OSDMap struct {
			Total int `json:"num_osds"`
			Up    int `json:"num_up_osds"`
		} `json:"osdmap"`
		PGMap struct {
			States []struct {
				Name string `json:"state_name"`
			} `json:"pgs_by_state"`
		} `json:"pgmap"`
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return false, false, err
	}
	clean = true
	for _, x := range s.PGMap.States {
		clean = clean && strings.HasPrefix(x.Name, "active+clean")
	}
	return clean && s.OSDMap.Up == s.OSDMap.Total && len(s.Quorum) == s.MonMap.Mons, clean, nil
}

// quiet is a logger of nothing.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
