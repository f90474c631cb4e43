package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/deploy"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// This file has the world in which the other guard tests ask a real API server with deploy/guard-deletions who may
// delete which pod. Nearly all questions are dry runs: the guard answers them as it does the others, and the pods stay
// for the next question.

const (
	zone     = "topology-location-zone"
	guarding = "rook-ceph" // the policy's name
)

// guardWorld is a guarded namespace with a policy. Its budgets are written by lockkeeper's worker, with its own rights.
type guardWorld struct {
	*testing.T
	ns     string
	worker *kube.Cluster
}

func newGuardWorld(t *testing.T, ns string) guardWorld {
	t.Helper()
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	applyText(t, deploy.GuardDeletions, "")
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	apply(t, filepath.Join(*root, "deploy", "storage-namespace.yaml"), ns)
	made := policy(t, guarding, `{ceph: {}}`)
	made.SetNamespace(ns)
	create(t, made)
	w := guardWorld{T: t, ns: ns}
	w.bind("Deny")
	var err error
	w.worker, err = kube.New(asAccount(config, "lockkeeper-worker"))
	require.NoError(t, err)
	// The authorizer and the guard learn of what was just made a moment later.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, w.tryBudgets(atRest))
	}, apiserver.Patience, 20*time.Millisecond)
	w.pod("probe", osd("99", "x"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Error(c, w.try(person, "probe"))
	}, apiserver.Patience, 20*time.Millisecond)
	return w
}

// bind makes the bindings of namespace.yaml for this namespace, with an action of one's choice.
func (w guardWorld) bind(action string) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(*root, "deploy", "guard-deletions", "namespace.yaml"))
	require.NoError(w, err)
	require.Equal(w, 1, strings.Count(string(text), "validationActions: [Deny] #"), "one line to edit")
	edited := strings.ReplaceAll(string(text), "rook-ceph", w.ns)
	edited = strings.Replace(edited, "validationActions: [Deny] #", "validationActions: ["+action+"] #", 1)
	file := filepath.Join(w.TempDir(), "namespace.yaml")
	require.NoError(w, os.WriteFile(file, []byte(edited), 0o600))
	apply(w.T, file, "")
}

func (w guardWorld) key() storage.ClusterKey {
	return storage.ClusterKey{Namespace: w.ns, Name: guarding}
}

func (w guardWorld) tryBudgets(specs budget.Specs) error {
	_, err := w.worker.ApplyBudgets(w.Context(), activities.BudgetInput{
		Cluster: w.key(), Specs: specs,
	})
	return err
}

// budgets has the worker write its budgets, and waits until the guard has read them: the API server reads its
// parameters from a cache.
func (w guardWorld) budgets(specs budget.Specs) {
	w.Helper()
	require.NoError(w, w.tryBudgets(specs))
	time.Sleep(100 * time.Millisecond)
}

func leavingOut(zones ...string) budget.Specs {
	s := budget.Spec{MinAvailable: budget.Everything, Key: zone, Except: zones}
	return budget.Specs{Daemons: s, Unproved: &s, Mons: &budget.Spec{MinAvailable: budget.Everything}}
}

// podOption changes a pod before it is made, or its status after that.
type podOption func(*corev1.Pod)

func labelled(labels ...string) podOption {
	return func(p *corev1.Pod) {
		for i := 0; i < len(labels); i += 2 {
			p.Labels[labels[i]] = labels[i+1]
		}
	}
}

func osd(id, in string) podOption {
	return labelled("app", "rook-ceph-osd", "ceph-osd-id", id, zone, in)
}

func phase(is corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = is } }

func without(label string) podOption { return func(p *corev1.Pod) { delete(p.Labels, label) } }

func noContainers(p *corev1.Pod) { p.Status.ContainerStatuses = nil }

func unready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

var (
	running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	ended   = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
)

// containers are those of a pod, in turn with their states.
func containers(all ...any) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers, p.Status.ContainerStatuses = nil, nil
		for i := 0; i < len(all); i += 2 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: all[i].(string), Image: "ceph:20"})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: all[i].(string), Image: "ceph:20", State: all[i+1].(corev1.ContainerState),
			})
		}
	}
}

// pod makes a pod that runs and is ready, unless the options say otherwise.
func (w guardWorld) pod(name string, options ...podOption) {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	containers("osd", running)(p)
	for _, o := range options {
		o(p)
	}
	status := p.Status.DeepCopy()
	require.NoError(w, server.Create(w.Context(), p))
	p.Status = *status
	require.NoError(w, server.Status().Update(w.Context(), p))
}

// who asks.
type who struct {
	user   string
	groups []string
}

func account(namespace, name string) who {
	return who{user: "system:serviceaccount:" + namespace + ":" + name}
}

var (
	person = who{user: "somebody"}
	// Controllers have accounts of their own (kubeadm), or share one (the lab, some distributions).
	shared    = who{user: "system:kube-controller-manager"}
	theWorker = account("lockkeeper-system", "lockkeeper-worker")
)

func own(controller string) who { return account("kube-system", controller) }

// as is a client of somebody who has all rights, so that the guard alone may refuse.
func (w guardWorld) as(by who) client.Client {
	w.Helper()
	c, err := client.New(by.config(), client.Options{Scheme: kube.Scheme})
	require.NoError(w, err)
	return c
}

// config is that of a client of somebody's, who may do everything that the guard lets him.
func (by who) config() *rest.Config {
	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: by.user, Groups: append([]string{"system:masters"}, by.groups...)}
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// try asks whether somebody may delete a pod, and deletes nothing.
func (w guardWorld) try(by who, name string, opts ...client.DeleteOption) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	return w.as(by).Delete(w.Context(), pod, append(opts, client.DryRunAll)...)
}

// refused is what the guard says; another error than the guard's fails the test.
func refused(t *testing.T, err error) (string, bool) {
	t.Helper()
	if err == nil {
		return "", false
	}
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.Contains(t, err.Error(), "ValidatingAdmissionPolicy 'lockkeeper-guard-")
	return err.Error(), true
}
