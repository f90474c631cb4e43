package mons

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// nodes stand in for the scheduler, the controllers and the kubelets: they make a pod of each Deployment, find it a
// node, bind its claim, and run its programs as processes of this machine. A Service's address is one of the loopback
// network, at which the mon itself serves, so that nothing has to be forwarded.
type nodes struct {
	t         *testing.T
	kube      kubernetes.Interface
	namespace string
	dir       string // has a folder for each node's disk and each claim's volume
	config    string // the folder with ceph.conf and keyring
	log       io.Writer

	mu      sync.Mutex
	running map[string]*process // by the name of a pod
	pids    sync.Map            // of their programs, by the name of a pod
	made    int
}

// process is what runs in a pod.
type process struct {
	stop context.CancelFunc
	done chan struct{}
}

func (n *nodes) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.pass(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			fmt.Fprintln(n.log, "nodes:", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.running {
		p.stop()
		<-p.done
	}
}

// pass brings pods and processes to what the Deployments say.
func (n *nodes) pass(ctx context.Context) error {
	deployments, err := n.kube.AppsV1().Deployments(n.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := n.kube.CoreV1().Pods(n.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		d := slices.IndexFunc(deployments.Items, func(d appsv1.Deployment) bool {
			return p.Labels["deployment"] == d.Name && p.Labels["generation"] == fmt.Sprint(d.Generation) &&
				d.DeletionTimestamp == nil
		})
		if d < 0 {
			return n.end(ctx, p.Name)
		}
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		there := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Labels["deployment"] == d.Name })
		if !there && *d.Spec.Replicas > 0 && d.DeletionTimestamp == nil {
			if begun, err := n.begin(ctx, d, pods.Items); err != nil || begun {
				return err
			}
		}
	}
	return n.unprotect(ctx)
}

// unprotect lets deleted claims go that no pod uses.
func (n *nodes) unprotect(ctx context.Context) error {
	claims, err := n.kube.CoreV1().PersistentVolumeClaims(n.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range claims.Items {
		if c := &claims.Items[i]; c.DeletionTimestamp != nil && len(c.Finalizers) > 0 {
			c.Finalizers = nil
			if _, err := n.kube.CoreV1().PersistentVolumeClaims(n.namespace).Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lose deletes a node with all that is on it.
func (n *nodes) lose(node string) {
	n.t.Helper()
	ctx := n.t.Context()
	require.NoError(n.t, n.kube.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}))
	pods, err := n.kube.CoreV1().Pods(n.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	require.NoError(n.t, err)
	for i := range pods.Items {
		require.NoError(n.t, n.end(ctx, pods.Items[i].Name))
	}
}

// end kills the processes of a pod, and then deletes it.
func (n *nodes) end(ctx context.Context, pod string) error {
	n.mu.Lock()
	p := n.running[pod]
	delete(n.running, pod)
	n.mu.Unlock()
	if p != nil {
		p.stop()
		<-p.done
	}
	now := int64(0)
	return n.kube.CoreV1().Pods(n.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// begin makes a pod, if there is a node for it.
func (n *nodes) begin(ctx context.Context, d *appsv1.Deployment, others []corev1.Pod) (begun bool, err error) {
	n.made++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", d.Name, n.made), Namespace: n.namespace, Annotations: d.Spec.Template.Annotations,
			Labels: map[string]string{"deployment": d.Name, "generation": fmt.Sprint(d.Generation)},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	for key, value := range d.Spec.Template.Labels {
		pod.Labels[key] = value
	}
	all, err := n.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range all.Items {
		if fits, err := fits(pod, &all.Items[i], others); err != nil {
			return false, err
		} else if fits {
			pod.Spec.NodeName = all.Items[i].Name
			return true, n.place(ctx, pod)
		}
	}
	return false, nil
}

// fits is what the scheduler would say of node selectors, node affinities and anti-affinities, also those of others.
func fits(pod *corev1.Pod, node *corev1.Node, others []corev1.Pod) (bool, error) {
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !match || node.Spec.Unschedulable {
		return false, err
	}
	for i := range others {
		other := &others[i]
		if other.Spec.NodeName == node.Name && (repels(pod, other) || repels(other, pod)) {
			return false, nil
		}
	}
	return true, nil
}

func repels(pod, other *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err != nil || selector.Matches(labels.Set(other.Labels)) {
			return true
		}
	}
	return false
}

func (n *nodes) place(ctx context.Context, pod *corev1.Pod) error {
	pods := n.kube.CoreV1().Pods(n.namespace)
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, v := range made.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			if err := n.bind(ctx, v.PersistentVolumeClaim.ClaimName); err != nil {
				return err
			}
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &process{stop: stop, done: make(chan struct{})}
	n.mu.Lock()
	n.running[made.Name] = p
	n.mu.Unlock()
	go func() {
		defer close(p.done)
		n.containers(ctx, made)
	}()
	made.Status.Phase = corev1.PodRunning
	made.Status.PodIP = "127.0.0.1"
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

func (n *nodes) bind(ctx context.Context, name string) error {
	claims := n.kube.CoreV1().PersistentVolumeClaims(n.namespace)
	c, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil || c.Status.Phase == corev1.ClaimBound {
		return err
	}
	c.Status.Phase = corev1.ClaimBound
	_, err = claims.UpdateStatus(ctx, c, metav1.UpdateOptions{})
	return err
}

// containers runs the programs of a pod one after the other, each again when it fails.
func (n *nodes) containers(ctx context.Context, pod *corev1.Pod) {
	if strings.HasSuffix(pod.Labels["deployment"], "-canary") {
		<-ctx.Done()
		return
	}
	for _, c := range pod.Spec.InitContainers {
		for n.program(ctx, pod, c) != nil && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond)
		}
	}
	for ctx.Err() == nil {
		_ = n.program(ctx, pod, pod.Spec.Containers[0]) // why is in the log
		time.Sleep(200 * time.Millisecond)
	}
}

// program runs one container until it ends. Its paths are those of this machine, since nothing is mounted.
func (n *nodes) program(ctx context.Context, pod *corev1.Pod, c corev1.Container) error {
	var paths []string
	mounts := slices.Clone(c.VolumeMounts) // the longest first: /etc/ceph-keyring is not in /etc/ceph
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) })
	for _, m := range mounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		paths = append(paths, m.MountPath, n.volume(pod, pod.Spec.Volumes[i]))
	}
	here := strings.NewReplacer(paths...)
	words := slices.Concat(c.Command, c.Args)
	env := os.Environ()
	for _, e := range c.Env {
		value := e.Value
		if e.Name == "POD_IP" { // the Service's address is the pod's
			value = strings.TrimPrefix(strings.Split(address(pod), ":3300")[0], "[v2:")
		}
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "$("+e.Name+")", value)
		}
		env = append(env, e.Name+"="+here.Replace(value))
	}
	for i := range words {
		words[i] = here.Replace(words[i])
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, n.log, n.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Start()
	if err == nil {
		n.pids.Store(pod.Name, cmd.Process.Pid)
		err = cmd.Wait()
		n.pids.Delete(pod.Name)
	}
	fmt.Fprintf(n.log, "%s: %s ended: %v\n", pod.Name, c.Name, err)
	return err
}

// hang stops mons where they are, or lets them go on.
func (n *nodes) hang(signal syscall.Signal, mons ...string) {
	n.t.Helper()
	for pod, pid := range n.pids.Range {
		if slices.ContainsFunc(mons, func(mon string) bool {
			return strings.HasPrefix(pod.(string), "rook-ceph-mon-"+mon+"-")
		}) {
			require.NoError(n.t, syscall.Kill(-pid.(int), signal))
		}
	}
}

func address(pod *corev1.Pod) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == "MON_ADDRESS" {
			return e.Value
		}
	}
	return ""
}

// volume is where a volume's files are.
func (n *nodes) volume(pod *corev1.Pod, v corev1.Volume) string {
	var path string
	switch {
	case v.HostPath != nil:
		path = filepath.Join(n.dir, pod.Spec.NodeName, v.HostPath.Path)
	case v.PersistentVolumeClaim != nil:
		path = filepath.Join(n.dir, "claims", v.PersistentVolumeClaim.ClaimName)
	default:
		return n.config
	}
	require.NoError(n.t, os.MkdirAll(path, 0o700))
	return path
}
