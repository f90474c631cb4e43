// Package mons moves real mons: ceph-mon processes, a real API server, the adapters of cephmon with the decisions of
// monplan. Only scheduler, controllers and kubelets are stood in for.
package mons

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/rados"
	"github.com/lockkeeper/lockkeeper/internal/cephmon"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

var root = flag.String("root", "../..", "the repository, with lab/bin/lab built")

var config *rest.Config

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// Addresses of Services are of the loopback network, so that mons can serve there.
func run(m *testing.M) int {
	if _, err := exec.LookPath("ceph-mon"); err != nil {
		fmt.Fprintf(os.Stderr, "%v: Ceph is not installed: run make packages\n", err)
		return 1
	}
	started, err := apiserver.StartWith(*root, map[string]string{"service-cluster-ip-range": "127.96.0.0/16"},
		filepath.Join(*root, "deploy", "crds"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := started.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	config = started.Config
	code := m.Run()
	if err := turns.TellLeftOut(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// world is a Ceph cluster of three mons on HostPath, as Rook shapes them, and a CephMon that adopts them.
type world struct {
	*testing.T
	dir, fsid string
	ref       cephmon.Ref
	kube      kubernetes.Interface
	api       client.Client
	nodes     *nodes
	conn      *rados.Conn // lockkeeper's own
	login     rados.Config
	mons      *cephmon.Mons
	memory    cephmon.Memory
	acts      []string
	twice     bool // every act is done again at once
}

func start(t *testing.T, namespace string, zones, perZone int) *world {
	t.Helper()
	typed, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	api, err := client.New(config, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	w := &world{T: t, dir: t.TempDir(), kube: typed, api: api, ref: cephmon.Ref{Namespace: namespace, Name: "mons"}}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.makeNodes(zones, perZone)
	w.bootstrap(zones)
	logFile, err := os.Create(w.path("nodes.log"))
	require.NoError(t, err)
	w.nodes = &nodes{
		t: t, kube: typed, namespace: namespace, dir: w.path("disks"), config: w.path("config"), log: logFile,
		running: map[string]*process{},
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { w.nodes.run(ctx) })
	t.Cleanup(func() {
		stop()
		wg.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(w.path("nodes.log")) // what there is of it
			t.Logf("%s", text[max(0, len(text)-6000):])
		}
	})
	w.connect()
	return w
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *world) create(o client.Object) {
	w.Helper()
	require.NoError(w, w.api.Create(w.Context(), o))
}

func (w *world) makeNodes(zones, perZone int) {
	for i := range zones * perZone {
		name := fmt.Sprintf("%s-node-%d", w.ref.Namespace, i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: w.zone(i % zones), "of": w.ref.Namespace,
		}}}
		w.create(n)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err := w.kube.CoreV1().Nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{})
		require.NoError(w, err)
		w.Cleanup(func() { _ = w.api.Delete(context.Background(), n) }) // another test may have
	}
}

func (w *world) zone(i int) string { return fmt.Sprintf("%s-zone-%d", w.ref.Namespace, i) }

func (w *world) command(name string, args ...string) string {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), name, args...)
	cmd.Env = append(os.Environ(), "CEPH_ARGS=", "CEPH_CONF="+w.path("config", "ceph.conf"))
	output, err := cmd.CombinedOutput()
	require.NoError(w, err, "%s %v: %s", name, args, output)
	return strings.TrimSpace(string(output))
}

// bootstrap makes the stores of three mons and the objects that Rook would have made for them.
func (w *world) bootstrap(zones int) {
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	require.NoError(w, err)
	w.fsid = strings.TrimSpace(string(id))
	require.NoError(w, os.MkdirAll(w.path("config"), 0o700))
	names := []string{"a", "b", "c"}
	var addresses, endpoints []string
	for _, name := range names { // Services give adopted mons their addresses, as Rook's do
		s := monspec.Set{Namespace: w.ref.Namespace, Name: w.ref.Name}.Service(name)
		w.create(s)
		addresses = append(addresses, monspec.AddressOf(s.Spec.ClusterIP))
		endpoints = append(endpoints, name+"="+s.Spec.ClusterIP+":6789")
	}
	require.NoError(w, os.WriteFile(w.path("config", "ceph.conf"), []byte(strings.Join([]string{
		"[global]", "fsid = " + w.fsid, "mon_host = " + strings.Join(addresses, ","), "run_dir = " + w.dir, "admin_socket =",
		"pid_file =", "log_file =", "keyring = " + w.path("config", "keyring"), "mon_lease = 2", "mon_election_timeout = 2",
		"mon_tick_interval = 1", "paxos_propose_interval = 0.1", "mon_data_avail_crit = 1", "mon_data_avail_warn = 2",
		"debug_mon = 0", "debug_paxos = 0", "",
	}, "\n")), 0o600))
	keyring := w.path("config", "keyring")
	w.command("ceph-authtool", keyring, "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
	w.command("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *")
	monmap := []string{"--create", "--fsid", w.fsid, w.path("monmap")}
	for i, name := range names {
		monmap = append(monmap, "--addv", name, addresses[i])
	}
	w.command("monmaptool", monmap...)
	for i, name := range names {
		node := fmt.Sprintf("%s-node-%d", w.ref.Namespace, i%zones)
		store := w.path("disks", node, "var", "lib", "rook", "mon-"+name, "data")
		require.NoError(w, os.MkdirAll(store, 0o700))
		w.command("ceph-mon", "--mkfs", "-i", name, "--mon-data", store, "--monmap", w.path("monmap"), "--keyring", keyring)
		w.create(w.adopted(name, node, addresses[i]))
	}
	w.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ref.Namespace, Name: "rook-ceph-mon-endpoints"},
		Data:       map[string]string{"data": strings.Join(endpoints, ","), "maxMonId": "2", "mapping": "{}"},
	})
	w.write("MaintenancePolicy", "rook-ceph", "{ceph: {}}")
}

// adopted is a mon as Rook runs it: another folder of the node, other names of volumes, its own anti-affinity.
func (w *world) adopted(name, node, address string) *appsv1.Deployment {
	one := int32(1)
	labels := map[string]string{"app": "rook-ceph-mon", "ceph_daemon_id": name, "mon": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ref.Namespace, Name: "rook-ceph-mon-" + name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{corev1.LabelHostname: node},
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
						TopologyKey:   corev1.LabelHostname,
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-mon"}},
					}},
				}},
				Volumes: []corev1.Volume{
					{Name: "ceph-daemon-data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
						Path: "/var/lib/rook/mon-" + name + "/data",
					}}},
					{Name: "conf", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				},
				Containers: []corev1.Container{{
					Name: "mon", Image: "ceph", Command: []string{"ceph-mon"},
					Args: []string{"--foreground", "--id=" + name, "--mon-data=/var/lib/ceph/mon/ceph-" + name},
					Env: []corev1.EnvVar{
						{Name: "CEPH_CONF", Value: "/etc/ceph/ceph.conf"},
						{Name: "MON_ADDRESS", Value: address},
						{Name: "CEPH_ARGS"},
					},
					VolumeMounts: []corev1.VolumeMount{
						{Name: "ceph-daemon-data", MountPath: "/var/lib/ceph/mon/ceph-" + name},
						{Name: "conf", MountPath: "/etc/ceph"},
					},
				}},
			}},
		},
	}
}

// connect makes lockkeeper's user, with the rights that are shipped.
func (w *world) connect() {
	w.Helper()
	require.Eventually(w, func() bool {
		cmd := exec.CommandContext(w.Context(), "ceph", "--connect-timeout", "5", "quorum_status")
		cmd.Env = append(os.Environ(), "CEPH_CONF="+w.path("config", "ceph.conf"))
		output, err := cmd.Output()
		var q ceph.QuorumStatus
		return err == nil && json.Unmarshal(output, &q) == nil && len(q.QuorumNames) == 3
	}, time.Minute, 200*time.Millisecond)
	w.login, w.conn = w.dial("client.lockkeeper", "mon", w.caps("ceph-caps.txt")+", "+w.caps("ceph-caps-cephmon.txt"))
	w.mons = cephmon.New(w.kube, w.api, oneCluster{w})
}

// oneCluster is the Ceph cluster of each policy.
type oneCluster struct{ w *world }

func (c oneCluster) Client(context.Context, storage.ClusterKey) (cephmon.Ceph, error) {
	return ceph.Client{Commander: c.w.conn}, nil
}

func (c oneCluster) Apart(ctx context.Context, _ storage.ClusterKey) (cephmon.Remover, func(), error) {
	endpoints, err := c.w.kube.CoreV1().ConfigMaps(c.w.ref.Namespace).Get(ctx, "rook-ceph-mon-endpoints",
		metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	login := c.w.login
	if login.MonHost, err = ceph.ParseMonEndpoints("data", endpoints.Data["data"]); err != nil {
		return nil, nil, err
	}
	conn, err := rados.Connect(ctx, login)
	if err != nil {
		return nil, nil, err
	}
	return ceph.Client{Commander: conn}, conn.Close, nil
}

func (w *world) caps(file string) string {
	text, err := os.ReadFile(filepath.Join(*root, "deploy", file))
	require.NoError(w, err)
	return strings.TrimSpace(string(text))
}

func (w *world) dial(user string, caps ...string) (rados.Config, *rados.Conn) {
	w.Helper()
	key := w.command("ceph", append([]string{"auth", "get-or-create-key", user}, caps...)...)
	hosts, err := ceph.ParseMonEndpoints("mon_host", w.command("ceph-conf", "--lookup", "mon_host"))
	require.NoError(w, err)
	login := rados.Config{
		MonHost: hosts, User: strings.TrimPrefix(user, "client."), Key: rados.Key(key), CommandTimeout: 30 * time.Second,
	}
	conn, err := rados.Connect(w.Context(), login)
	require.NoError(w, err)
	w.Cleanup(conn.Close)
	return login, conn
}

// write makes an object of ours as a person would write it; the API server adds what is left out.
func (w *world) write(kind, name, spec string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(w, yaml.Unmarshal([]byte("spec: "+spec), &u.Object))
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(w.ref.Namespace)
	u.SetName(name)
	w.create(u)
}

// anew asks Ceph as a client that starts now, and finds the mons by the endpoints that everybody reads.
func (w *world) anew(question ...string) string {
	w.Helper()
	c, err := w.kube.CoreV1().ConfigMaps(w.ref.Namespace).Get(w.Context(), "rook-ceph-mon-endpoints", metav1.GetOptions{})
	require.NoError(w, err)
	hosts, err := ceph.ParseMonEndpoints("data", c.Data["data"])
	require.NoError(w, err)
	return w.command("ceph", append([]string{"-m", hosts, "--connect-timeout", "10"}, question...)...)
}

// want writes the CephMon with more of a spec.
func (w *world) want(more string) {
	w.Helper()
	w.write("CephMon", w.ref.Name, "{policy: rook-ceph, podTemplate: {image: ceph}, "+
		"placement: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "+
		"[{matchExpressions: [{key: of, operator: In, values: ["+w.ref.Namespace+"]}]}]}}}, "+more+"}")
}

// turn looks and does one act. As a job does, it writes the work down before; crash forgets all that came after.
func (w *world) turn() monplan.Step {
	w.Helper()
	seen, err := w.mons.Look(w.Context(), w.ref, w.memory)
	require.NoError(w, err)
	w.memory.OutSince = map[string]time.Time{}
	for _, m := range seen.Mons {
		if !m.OutSince.IsZero() {
			w.memory.OutSince[m.Name] = m.OutSince
		}
	}
	step := monplan.Next(seen)
	if step.Verdict != monplan.Move {
		w.memory.Work = step.Work
		return step
	}
	work := step.Noted(seen.Now)
	w.memory.Work, w.memory.NextID = &work, seen.NextID
	if id, named := monplan.NumberOf(work.Newcomer); named {
		w.memory.NextID = max(w.memory.NextID, id+1)
	}
	act := fmt.Sprintf("%s %s", step.Acts[0].Do, step.Acts[0].Mon)
	if len(w.acts) == 0 || w.acts[len(w.acts)-1] != act {
		w.acts = append(w.acts, act)
	}
	step.Work = &work
	for range 1 + toInt(w.twice) {
		if a, err := w.mons.Do(w.Context(), w.ref, step); err != nil || !a.OK {
			w.Logf("%s: %s %v", act, a.Reason, err) // the next look says what is next
		}
	}
	return step
}

// until goes on until a verdict.
func (w *world) until(end monplan.Verdict) monplan.Step {
	w.Helper()
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; time.Sleep(100 * time.Millisecond) {
		switch step := w.turn(); step.Verdict {
		case end:
			return step
		case monplan.Refuse, monplan.Done:
			require.Fail(w, string(step.Verdict), "%s\n%s", step.Why, strings.Join(w.acts, "\n"))
		default:
		}
	}
	require.Fail(w, "no end", strings.Join(w.acts, "\n"))
	return monplan.Step{}
}

// quorum is who is in quorum, proved.
func (w *world) quorum() []string {
	w.Helper()
	q, err := ceph.Client{Commander: w.conn}.ProvedQuorum(w.Context())
	require.NoError(w, err)
	names := slices.Clone(q.QuorumNames)
	slices.Sort(names)
	return names
}

// monmap are the mons in the monmap, proved.
func (w *world) monmap() (names []string) {
	w.Helper()
	q, err := ceph.Client{Commander: w.conn}.ProvedQuorum(w.Context())
	require.NoError(w, err)
	for _, mon := range q.MonMap.Mons {
		names = append(names, mon.Name)
	}
	return names
}

// load has a client write to the mons all the time, and tells how long the longest write took, and whether one failed.
func (w *world) load() (stop func() (writes int, longest time.Duration)) {
	_, conn := w.dial("client.writer", "mon", `allow command "config-key set"`)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan struct{})
	writes, longest := 0, time.Duration(0)
	var failed error
	go func() {
		defer close(done)
		for ; ctx.Err() == nil && failed == nil; writes++ {
			begin := time.Now()
			_, _, failed = conn.MonCommand(context.WithoutCancel(ctx),
				fmt.Appendf(nil, `{"prefix":"config-key set","key":"load","val":"%d"}`, writes))
			longest = max(longest, time.Since(begin))
		}
	}()
	return func() (int, time.Duration) {
		cancel()
		<-done
		require.NoError(w, failed, "after %d writes", writes)
		require.Equal(w, fmt.Sprint(writes-1), w.anew("config-key", "get", "load"), "the last write is lost")
		return writes, longest
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// respec changes the CephMon.
func (w *world) respec(patch string) {
	w.Helper()
	require.NoError(w, w.api.Patch(w.Context(), w.cephMon(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (w *world) cephMon() *v1alpha1.CephMon {
	return &v1alpha1.CephMon{ObjectMeta: metav1.ObjectMeta{Namespace: w.ref.Namespace, Name: w.ref.Name}}
}

// class makes a storage class that binds late.
func (w *world) class(name string) {
	w.Helper()
	late := storagev1.VolumeBindingWaitForFirstConsumer
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/disks", VolumeBindingMode: &late,
	}
	w.create(c)
	w.Cleanup(func() { _ = w.api.Delete(context.Background(), c) })
}
