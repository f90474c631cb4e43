package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// osdSet is the set of one CephOSD in a namespace of its own, in the real API server, with a Ceph that says what a
// test wants. There is no kubelet: the test says what its pods do.
type osdSet struct {
	*cephosd.OSDSets
	t    *testing.T
	ns   string
	ref  activities.OSDSetRef
	ceph *ceph
	wire *wire
}

// newOSDSet makes a CephOSD named osds, its MaintenancePolicy, and its nodes. In the spec $a stands for the host a:
// hosts have the namespace in their names, since nodes are everybody's.
func newOSDSet(t *testing.T, ns, spec string, hosts ...string) *osdSet {
	t.Helper()
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	p := policy(t, "storage", `{ceph: {}}`)
	p.SetNamespace(ns)
	create(t, p)
	f := &osdSet{
		t: t, ns: ns, ref: activities.OSDSetRef{Kind: activities.OSDSetCephOSD, Namespace: ns, Name: "osds"},
		ceph: &ceph{osds: map[int]cephcluster.OSD{}, needed: map[int]string{}}, wire: &wire{},
	}
	cr := cephOSD(t, f.ref.Name, os.Expand(spec, f.host))
	cr.SetNamespace(ns)
	create(t, cr)
	for _, h := range hosts {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   f.host(h),
			Labels: map[string]string{corev1.LabelHostname: f.host(h)},
		}}
		create(t, node)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		require.NoError(t, server.Status().Update(t.Context(), node))
	}
	cfg := rest.CopyConfig(config)
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		f.wire.next = next
		return f.wire
	})
	typed, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	f.OSDSets = cephosd.New(typed, server, f.ceph)
	go f.sayVersions(t.Context())
	return f
}

// sayVersions is a kubelet for pods that ask a program for its version.
func (f *osdSet) sayVersions(ctx context.Context) {
	for ctx.Err() == nil {
		var list corev1.PodList
		_ = server.List(ctx, &list, client.InNamespace(f.ns), client.HasLabels{podspec.VersionLabel})
		for i := range list.Items {
			p := &list.Items[i]
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "osd", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: "ceph version 18.2.7 (6b0e988) reef (stable)"},
			}}}
			_ = server.Status().Update(ctx, p)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (f *osdSet) host(short string) string { return f.ns + "-" + short }

func (f *osdSet) osd(host, data string) podspec.OSD {
	f.t.Helper()
	for _, o := range f.desired() {
		if o.Host == f.host(host) && o.Data == data {
			return o
		}
	}
	return podspec.OSD{Host: f.host(host), Data: data} // no longer in the spec
}

func (f *osdSet) set() podspec.Set {
	f.t.Helper()
	u := cephOSD(f.t, f.ref.Name, "{}")
	u.SetNamespace(f.ns)
	_, set := fromServer(f.t, u)
	return set
}

func (f *osdSet) desired() []podspec.OSD {
	f.t.Helper()
	osds, _ := f.set().Desired()
	return osds
}

// write changes the spec, as a person would.
func (f *osdSet) write(patch string) {
	f.t.Helper()
	u := cephOSD(f.t, f.ref.Name, "{}")
	u.SetNamespace(f.ns)
	require.NoError(f.t, server.Patch(f.t.Context(), u,
		client.RawPatch(types.MergePatchType, []byte(os.Expand(patch, f.host)))))
}

func (f *osdSet) image(image string) {
	f.t.Helper()
	f.write(`{"spec":{"podTemplate":{"spec":{"containers":[{"name":"osd","image":"` + image + `"}]}}}}`)
}

// pods are those of the set that the API server has, by name.
func (f *osdSet) pods() map[string]*corev1.Pod {
	f.t.Helper()
	var list corev1.PodList
	require.NoError(f.t, server.List(f.t.Context(), &list, client.InNamespace(f.ns)))
	out := map[string]*corev1.Pod{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

func (f *osdSet) names() []string { f.t.Helper(); return slices.Sorted(maps.Keys(f.pods())) }

// pod is the one that lockkeeper made for an OSD; nil for none.
func (f *osdSet) pod(o podspec.OSD) *corev1.Pod { f.t.Helper(); return f.pods()[podspec.PodName(o)] }

// has makes the pod of an OSD that was released, and serves. Changes are made before anybody sees it.
func (f *osdSet) has(o podspec.OSD, changes ...func(*corev1.Pod)) *corev1.Pod {
	f.t.Helper()
	pod := f.set().Render(o, podspec.Knowledge{})
	maps.Copy(pod.Annotations, podspec.Release(time.Now()))
	for _, change := range changes {
		change(pod)
	}
	require.NoError(f.t, server.Create(f.t.Context(), pod))
	f.starts(pod)
	return pod
}

// As has wants its changes.
func podNamed(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func notAnnotated(keys ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, key := range keys {
			delete(p.Annotations, key)
		}
	}
}

// ofTheOriginal makes a pod what the original operator would have made of it.
func (f *osdSet) ofTheOriginal(suffix string) func(*corev1.Pod) {
	set := f.set()
	return func(p *corev1.Pod) {
		a := p.Annotations
		p.Name = "osd-" + a[podspec.HostAnnotation] + "-" +
			a[podspec.DataAnnotation][strings.LastIndex(a[podspec.DataAnnotation], "/")+1:] + "-" + suffix
		p.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(set.CephOSD, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)),
		}
		delete(a, podspec.ReleasedAnnotation)
	}
}

// ready is what a kubelet says of a pod.
func (f *osdSet) ready(pod *corev1.Pod, is corev1.ConditionStatus) {
	f.t.Helper()
	now := &corev1.Pod{}
	require.NoError(f.t, server.Get(f.t.Context(), client.ObjectKeyFromObject(pod), now))
	now.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
	require.NoError(f.t, server.Status().Update(f.t.Context(), now))
}

// starts lets a pod get ready, and its OSD come up in Ceph.
func (f *osdSet) starts(pod *corev1.Pod) {
	f.t.Helper()
	f.ready(pod, corev1.ConditionTrue)
	f.ceph.starts(pod)
}

// crashes is what both see of a pod whose process ended.
func (f *osdSet) crashes(pod *corev1.Pod) {
	f.t.Helper()
	f.ready(pod, corev1.ConditionFalse)
	f.ceph.stops(pod)
}

// runs binds a pod to its node: from now on it terminates until a kubelet, that is kill, says that it has ended.
func (f *osdSet) runs(pod *corev1.Pod) {
	f.t.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: pod.Annotations[podspec.HostAnnotation]}}
	require.NoError(f.t, server.SubResource("binding").Create(f.t.Context(), pod, binding))
	// A pod that runs nowhere is gone as soon as it is deleted, so nobody goes on before all know where this one runs.
	f.eventually(func() bool { now := f.pods()[pod.Name]; return now != nil && now.Spec.NodeName != "" }, pod.Name+" runs")
}

func (f *osdSet) kill(pod *corev1.Pod) {
	f.t.Helper()
	require.NoError(f.t, server.Delete(f.t.Context(), pod, client.GracePeriodSeconds(0)))
}

// annotate writes onto a pod as a person would.
func (f *osdSet) annotate(pod *corev1.Pod, key, jsonValue string) {
	f.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, jsonValue)
	require.NoError(f.t, server.Patch(f.t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (f *osdSet) cordon(host string, is bool) {
	f.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, is)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.host(host)}}
	require.NoError(f.t, server.Patch(f.t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (f *osdSet) survey() activities.Survey {
	f.t.Helper()
	s, err := f.Survey(f.t.Context(), activities.SurveyInput{OSDSet: f.ref})
	require.NoError(f.t, err)
	require.True(f.t, s.Found)
	require.Empty(f.t, s.Unavailable)
	return s
}

// next is what is to be done, and to whom.
func (f *osdSet) next() (rollout.Do, []string) {
	f.t.Helper()
	s := f.survey()
	require.Empty(f.t, s.Refused)
	return s.Next.Do, keysOf(s.Next.OSDs)
}

func keysOf(osds []rollout.OSD) []string {
	keys := make([]string, len(osds))
	for i, o := range osds {
		keys[i] = o.Key
	}
	return keys
}

func keys(osds ...podspec.OSD) []string {
	out := make([]string, len(osds))
	for i, o := range osds {
		out[i] = o.Key()
	}
	return out
}

// batch is these OSDs as a rollout to the present template would replace them.
func (f *osdSet) batch(osds ...podspec.OSD) activities.Replacement {
	f.t.Helper()
	in := activities.Replacement{
		OSDSet: f.ref, Cluster: storage.ClusterKey{Namespace: f.ns, Name: "storage"},
		Template: f.set().Hash,
	}
	for _, o := range osds {
		r := rollout.OSD{Key: o.Key(), Host: o.Host, State: rollout.OutOfDate}
		if id, known := f.ceph.id(o.Key()); known {
			r.Name = fmt.Sprintf("osd.%d", id)
		}
		in.OSDs = append(in.OSDs, r)
	}
	return in
}

func (f *osdSet) awaiting(osds ...podspec.OSD) activities.AwaitInput {
	f.t.Helper()
	b := f.batch(osds...)
	return activities.AwaitInput{OSDSet: b.OSDSet, Cluster: b.Cluster, Template: b.Template, Keys: keys(osds...)}
}

func (f *osdSet) creates(osds ...podspec.OSD) activities.Created {
	f.t.Helper()
	made, err := f.Create(f.t.Context(), f.ref, keys(osds...))
	require.NoError(f.t, err)
	return made
}

// replaces replaces a batch, and comes back when it is over.
func (f *osdSet) replaces(osds ...podspec.OSD) {
	f.t.Helper()
	require.NoError(f.t, f.Replace(f.t.Context(), f.batch(osds...)))
}

// replacing replaces a batch beside the test; the test calls ended when it has let go whatever held it.
func (f *osdSet) replacing(osds ...podspec.OSD) (ended func() error) {
	f.t.Helper()
	in := f.batch(osds...)
	ctx, stop := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Replace(ctx, in) }()
	f.t.Cleanup(stop)
	return func() error {
		f.t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(apiserver.Patience):
			f.t.Fatal("Replace does not come back")
			return nil
		}
	}
}

// looksAgain waits until the set has asked for its pods several times more: whatever it does about what it sees, it
// has done.
func (f *osdSet) looksAgain() {
	f.t.Helper()
	seen := f.wire.looks()
	f.eventually(func() bool { return f.wire.looks() >= seen+4 }, "the set looks at its pods again")
}

// eventually asks in the test's own goroutine, so that what is asked may fail the test.
func (f *osdSet) eventually(is func() bool, what string) {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.t.Context(), apiserver.Patience)
	defer stop()
	for !is() {
		select {
		case <-ctx.Done():
			f.t.Fatal("still not true: " + what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// terminating waits until a pod is on its way.
func (f *osdSet) terminating(pod *corev1.Pod) {
	f.t.Helper()
	f.eventually(func() bool {
		now := f.pods()[pod.Name]
		return now != nil && now.DeletionTimestamp != nil
	}, pod.Name+" terminates")
}

// same says that a pod is still that very pod, and that nobody asked it to go.
func (f *osdSet) same(pod *corev1.Pod) {
	f.t.Helper()
	now := f.pods()[pod.Name]
	if assert.NotNil(f.t, now, "pod %s is gone", pod.Name) {
		assert.Equal(f.t, pod.UID, now.UID, "pod %s is another one", pod.Name)
		assert.Nil(f.t, now.DeletionTimestamp, "pod %s terminates", pod.Name)
	}
}

// ceph says what the test wants. An OSD gets its number when its pod starts for the first time.
type ceph struct {
	mu     sync.Mutex
	osds   map[int]cephcluster.OSD
	epoch  int64
	needed map[int]string // whose data somebody needs, and why
	firm   string         // why none may stop; "" if all may
	asked  []int          // about whom safe-to-destroy was asked
	silent string         // why there is no answer
}

func (c *ceph) id(key string) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, o := range c.osds {
		if o.Host+":"+o.Data == key {
			return id, true
		}
	}
	return 0, false
}

func (c *ceph) starts(pod *corev1.Pod) {
	host, data := pod.Annotations[podspec.HostAnnotation], pod.Annotations[podspec.DataAnnotation]
	id, known := c.id(host + ":" + data)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !known {
		id = len(c.osds)
	}
	c.epoch++
	zone := "zone-of-" + host
	c.osds[id] = cephcluster.OSD{
		ID: id, Up: true, UpFrom: c.epoch, Serving: true, Location: map[string]string{"zone": zone, "host": host},
		Domain: zone, Pod: pod.Name, Host: host, Data: data,
	}
}

func (c *ceph) stops(pod *corev1.Pod) {
	id, known := c.id(pod.Annotations[podspec.HostAnnotation] + ":" + pod.Annotations[podspec.DataAnnotation])
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.osds[id]; known {
		c.epoch++
		o.Up = false
		c.osds[id] = o
	}
}

// needs says why somebody needs the data of the OSD of a pod; "": nobody does.
func (c *ceph) needs(o podspec.OSD, why string) {
	id, _ := c.id(o.Key())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needed[id] = why
}

func (c *ceph) OSDs(_ context.Context, _ storage.ClusterKey, metadata bool) (cephcluster.OSDs, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent != "" {
		return cephcluster.OSDs{Unavailable: c.silent}, nil
	}
	out := cephcluster.OSDs{DomainType: "zone", ChangeEpoch: c.epoch}
	for _, id := range slices.Sorted(maps.Keys(c.osds)) {
		o := c.osds[id]
		if !metadata {
			o.Pod, o.Host, o.Data = "", "", ""
		}
		out.OSDs = append(out.OSDs, o)
	}
	return out, nil
}

// Versions: everything is of 18.
func (c *ceph) Versions(context.Context, storage.ClusterKey) (cephcluster.Versions, error) {
	return cephcluster.Versions{Mons: 18, Required: "reef"}, nil
}

// MonVersions: no mon is restarted here.
func (c *ceph) MonVersions(context.Context, storage.ClusterKey) (map[string]upgrade.Version, string, error) {
	return nil, "", nil
}

func (c *ceph) OKToStop(_ context.Context, _ storage.ClusterKey, osds []int) ([]int, storage.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return osds, storage.Answer{OK: c.firm == "", Reason: c.firm}, nil
}

func (c *ceph) SafeToDestroy(_ context.Context, _ storage.ClusterKey, osds []int) (map[int]storage.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := map[int]storage.Answer{}
	for _, id := range osds {
		c.asked = append(c.asked, id)
		answers[id] = storage.Answer{OK: c.needed[id] == "", Reason: c.needed[id]}
	}
	return answers, nil
}

// wire hears what the set says to the API server.
type wire struct {
	next   http.RoundTripper
	mu     sync.Mutex
	reads  int // of pods, one or all
	writes []request
	// before is called with every request that changes something, before it is sent.
	before func(request)
}

type request struct{ method, path, query, body string }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	said := request{r.Method, r.URL.Path, r.URL.RawQuery, string(body)}
	w.mu.Lock()
	before := w.before
	switch {
	case r.Method != http.MethodGet:
		w.writes = append(w.writes, said)
	case strings.Contains(r.URL.Path, "/pods"):
		w.reads++
	}
	w.mu.Unlock()
	if before != nil && r.Method != http.MethodGet {
		before(said)
	}
	return w.next.RoundTrip(r)
}

func (w *wire) looks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// said are the requests with a method, in their order.
func (w *wire) said(method string) (out []request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.writes {
		if r.method == method {
			out = append(out, r)
		}
	}
	return out
}

func (w *wire) hook(before func(request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// Life: every OSD lives.
func (c *ceph) Life(context.Context, storage.ClusterKey, []int) (storage.Life, error) {
	return storage.Life{}, nil
}

var _ cephosd.Ceph = (*ceph)(nil)

// Mons is not asked: no rollout here is about mons.
func (c *ceph) Mons(context.Context, storage.ClusterKey) (cephcluster.Mons, error) {
	return cephcluster.Mons{}, nil
}
