package cephosd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedfake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

const namespace = "ceph"

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

// bed is a small cluster in which a set is tested: an API server that keeps objects, in which a deleted pod ends
// after it was looked at a few times, and a Ceph that says what a test lets it say. It notices two daemons on one
// device.
type bed struct {
	*testing.T
	typed   *typedfake.Clientset
	api     client.Client
	ceph    *fakeCeph
	osdSets *OSDSets
	ref     activities.OSDSetRef
	log     []string // what became of pods, in order
	ending  map[string]int
	made    int
	says    string // what a program says of its version; "": its pod does not end
}

// newBed has nodes a and b, a policy, and a CephOSD with this spec.
func newBed(t *testing.T, spec string) *bed {
	running := upgrade.Version{Release: 18, Minor: 2, Patch: 4}
	versions := cephcluster.Versions{Mons: 18, Required: "reef", OSDs: map[int]upgrade.Version{0: running, 1: running}}
	b := &bed{
		T: t, says: "ceph version 18.2.7 (6b0e988) reef (stable)",
		ceph: &fakeCeph{domain: "zone", versions: versions}, ending: map[string]int{},
		ref: activities.OSDSetRef{Kind: activities.OSDSetCephOSD, Namespace: namespace, Name: "osds"},
	}
	var nodes []runtime.Object
	for _, name := range []string{"a", "b"} {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	b.typed = typedfake.NewClientset(nodes...)
	b.typed.PrependReactor("create", "pods", b.create)
	b.typed.PrependReactor("delete", "pods", b.remove)
	b.typed.PrependReactor("*", "pods", b.tick)
	policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "policy"}}
	b.api = fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(policy, b.cephOSD(spec)).Build()
	b.osdSets = New(b.typed, b.api, b.ceph)
	return b
}

func (b *bed) cephOSD(spec string) *unstructured.Unstructured {
	fields := map[string]any{}
	require.NoError(b, yaml.Unmarshal([]byte(spec), &fields))
	if fields["podTemplate"] == nil {
		fields["podTemplate"] = map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "osd", "image": "ceph:1"}}},
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(cephv1alpha1.GroupVersion.WithKind(cephv1alpha1.Kind))
	u.SetNamespace(namespace)
	u.SetName("osds")
	u.SetUID("uid-of-osds")
	return u
}

// change gives the CephOSD another spec.
func (b *bed) change(spec string) {
	u := b.cephOSD(spec)
	old := u.DeepCopy()
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKeyFromObject(u), old))
	u.SetResourceVersion(old.GetResourceVersion())
	require.NoError(b, b.api.Update(b.Context(), u))
}

// annotate is what a person writes on the CephOSD.
func (b *bed) annotate(key, value string) {
	u := b.cephOSD(twoOSDs)
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKeyFromObject(u), u))
	u.SetAnnotations(map[string]string{key: value})
	require.NoError(b, b.api.Update(b.Context(), u))
}

func (b *bed) set() podspec.Set {
	set, found, err := cephOSD{OSDSets: b.osdSets, ref: b.ref}.spec(b.Context())
	require.NoError(b, err)
	require.True(b, found)
	return set
}

// serve gives every OSD of the present spec a pod that was released and serves, in the order of their keys: osd.0,
// osd.1, …
func (b *bed) serve() {
	set := b.set()
	desired, _ := set.Desired()
	for i, o := range desired {
		at := map[string]string{"host": o.Host, "zone": "x"}
		b.ceph.osds = append(b.ceph.osds,
			cephcluster.OSD{ID: i, Up: true, UpFrom: 10, Serving: true, Domain: "x", Location: at})
		p := set.Render(o, podspec.Knowledge{ID: &i, FailureDomains: at})
		maps.Copy(p.Annotations, podspec.Release(time.Now()))
		b.add(p)
	}
}

// add puts a pod into the cluster that is ready.
func (b *bed) add(p *corev1.Pod, changes ...func(*corev1.Pod)) {
	b.made++
	p.UID, p.CreationTimestamp = types.UID(fmt.Sprintf("uid-%d", b.made)), metav1.Time{Time: time.Now().Add(-time.Hour)}
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	for _, c := range changes {
		c(p)
	}
	require.NoError(b, b.typed.Tracker().Create(podsResource, p, namespace))
}

func (b *bed) pods() (out []*corev1.Pod) {
	list, err := b.typed.Tracker().List(podsResource, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
	require.NoError(b, err)
	for i := range list.(*corev1.PodList).Items {
		out = append(out, &list.(*corev1.PodList).Items[i])
	}
	return out
}

// pod is that of an OSD.
func (b *bed) pod(key string) *corev1.Pod {
	host, data, _ := strings.Cut(key, ":")
	i := slices.IndexFunc(b.pods(), func(p *corev1.Pod) bool {
		return p.Name == podspec.PodName(podspec.OSD{Host: host, Data: data})
	})
	if i < 0 {
		return nil
	}
	return b.pods()[i]
}

// edit changes the pod of an OSD.
func (b *bed) edit(key string, change func(*corev1.Pod)) {
	p := b.pod(key)
	require.NotNil(b, p, key)
	b.editNamed(p.Name, change)
}

func (b *bed) editNamed(name string, change func(*corev1.Pod)) {
	x, err := b.typed.Tracker().Get(podsResource, namespace, name)
	require.NoError(b, err)
	p := x.(*corev1.Pod).DeepCopy()
	change(p)
	require.NoError(b, b.typed.Tracker().Update(podsResource, p, namespace))
}

// lose takes the pod of an OSD away at once.
func (b *bed) lose(key string) {
	require.NoError(b, b.typed.Tracker().Delete(podsResource, namespace, b.pod(key).Name))
}

func keyOf(p *corev1.Pod) string {
	return p.Annotations[podspec.HostAnnotation] + ":" + p.Annotations[podspec.DataAnnotation]
}

func (b *bed) create(a ktesting.Action) (bool, runtime.Object, error) {
	action := a.(ktesting.CreateActionImpl)
	p := action.Object.(*corev1.Pod)
	if len(p.Spec.Containers) == 0 || p.Spec.Containers[0].Image == "" {
		cause := metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueRequired, Field: "spec.containers[0].env[4].value",
			Message: "must be something else",
		}
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonInvalid, Code: 422,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}},
		}}
	}
	devices := func(p *corev1.Pod) (out []string) {
		for _, a := range []string{podspec.DataAnnotation, podspec.DBAnnotation, podspec.WALAnnotation} {
			if d := p.Annotations[a]; d != "" {
				out = append(out, d)
			}
		}
		return out
	}
	for _, other := range b.pods() {
		if other.Name == p.Name {
			return true, nil, apierrors.NewAlreadyExists(podsResource.GroupResource(), p.Name)
		}
		for _, d := range devices(p) {
			if slices.Contains(devices(other), d) &&
				other.Annotations[podspec.HostAnnotation] == p.Annotations[podspec.HostAnnotation] {
				b.Errorf("%s is made while %s has %s", p.Name, other.Name, d)
			}
		}
	}
	if len(action.CreateOptions.DryRun) > 0 {
		return true, p, nil
	}
	b.made++
	p.UID, p.CreationTimestamp = types.UID(fmt.Sprintf("uid-%d", b.made)), metav1.Time{Time: time.Now()}
	if p.Labels[podspec.VersionLabel] != "" {
		b.log = append(b.log, "ask "+p.Spec.Containers[0].Image)
		if b.says != "" {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:  p.Spec.Containers[0].Name,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: b.says}},
			}}
		}
		return false, nil, nil
	}
	b.log = append(b.log, "make "+keyOf(p))
	return false, nil, nil
}

func (b *bed) remove(a ktesting.Action) (bool, runtime.Object, error) {
	name := a.(ktesting.DeleteAction).GetName()
	x, err := b.typed.Tracker().Get(podsResource, namespace, name)
	if err != nil {
		return true, nil, err
	}
	p := x.(*corev1.Pod).DeepCopy()
	if p.Labels[podspec.VersionLabel] != "" {
		return true, nil, b.typed.Tracker().Delete(podsResource, namespace, name)
	}
	b.log = append(b.log, "stop "+keyOf(p))
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	b.ending[name] = 4
	return true, nil, b.typed.Tracker().Update(podsResource, p, namespace)
}

// tick lets time go by for pods that end.
func (b *bed) tick(a ktesting.Action) (bool, runtime.Object, error) {
	if a.GetVerb() == "delete" || a.GetVerb() == "create" {
		return false, nil, nil
	}
	for name := range b.ending {
		if b.ending[name]--; b.ending[name] <= 0 {
			delete(b.ending, name)
			require.NoError(b, b.typed.Tracker().Delete(podsResource, namespace, name))
		}
	}
	return false, nil, nil
}

func (b *bed) survey(skip ...string) activities.Survey {
	s, err := b.osdSets.Survey(b.Context(), activities.SurveyInput{OSDSet: b.ref, Skip: skip})
	require.NoError(b, err)
	return s
}

// replacement is the batch that a survey wants.
func (b *bed) replacement(s activities.Survey) activities.Replacement {
	return activities.Replacement{OSDSet: b.ref, Cluster: s.Cluster, Template: s.Template, OSDs: s.Next.OSDs}
}

func keysOf(osds []rollout.OSD) []string {
	var out []string
	for _, o := range osds {
		out = append(out, o.Key)
	}
	return out
}

// fakeCeph says what it is told to.
type fakeCeph struct {
	mons        cephcluster.Mons
	life        storage.Life
	domain      string
	types       []string
	osds        []cephcluster.OSD
	epoch       int64
	unavailable string
	err         error
	spare       func(osds []int) []int // nil: all
	needed      func(id int) string    // nil: nobody needs any
	asked       [][]int
	versions    cephcluster.Versions
	monsAre     map[string]upgrade.Version
	monsUnknown string // why
}

func (f *fakeCeph) MonVersions(
	context.Context, storage.ClusterKey,
) (map[string]upgrade.Version, string, error) {
	return f.monsAre, f.monsUnknown, f.err
}

func (f *fakeCeph) Versions(context.Context, storage.ClusterKey) (cephcluster.Versions, error) {
	return f.versions, f.err
}

func (f *fakeCeph) OSDs(context.Context, storage.ClusterKey, bool) (cephcluster.OSDs, error) {
	if f.unavailable != "" {
		return cephcluster.OSDs{Unavailable: f.unavailable}, f.err
	}
	return cephcluster.OSDs{DomainType: f.domain, ChangeEpoch: f.epoch, Types: f.types, OSDs: f.osds}, f.err
}

func (f *fakeCeph) Mons(context.Context, storage.ClusterKey) (cephcluster.Mons, error) {
	return f.mons, f.err
}

func (f *fakeCeph) OKToStop(_ context.Context, _ storage.ClusterKey, osds []int) ([]int, storage.Answer, error) {
	f.asked = append(f.asked, osds)
	if f.spare == nil {
		return osds, storage.Answer{OK: true}, nil
	}
	if some := f.spare(osds); len(some) > 0 {
		return some, storage.Answer{OK: true}, nil
	}
	return osds, storage.Answer{Reason: "PGs would become unavailable"}, nil
}

func (f *fakeCeph) Life(context.Context, storage.ClusterKey, []int) (storage.Life, error) {
	return f.life, nil
}

func (f *fakeCeph) SafeToDestroy(_ context.Context, _ storage.ClusterKey, osds []int) (map[int]storage.Answer, error) {
	f.asked = append(f.asked, osds)
	out := map[int]storage.Answer{}
	for _, id := range osds {
		reason := ""
		if f.needed != nil {
			reason = f.needed(id)
		}
		out[id] = storage.Answer{OK: reason == "", Reason: reason}
	}
	return out, nil
}

// arrives lets an OSD that was made anew serve, and a release be written.
func (b *bed) arrives(key string) {
	b.edit(key, func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		maps.Copy(p.Annotations, podspec.Release(time.Now()))
		for i := range b.ceph.osds {
			if id := podspec.Known(p).ID; *id == b.ceph.osds[i].ID {
				b.ceph.osds[i].Up = true
				b.ceph.osds[i].UpFrom += 10
			}
		}
	})
}
