package api

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// osdPods is the pods of one CephOSD with one OSD, in a namespace of their own, as the API server has them.
type osdPods struct {
	t   *testing.T
	ns  string
	set podspec.Set
	osd podspec.OSD
}

func newOSDPods(t *testing.T, ns string) *osdPods {
	t.Helper()
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	u := cephOSD(t, "osds", `{storage: [{hosts: [a], osds: [{data: /dev/sdb}]}]}`)
	u.SetNamespace(ns)
	create(t, u)
	p := &osdPods{t: t, ns: ns}
	_, p.set = fromServer(t, u)
	osds, refused := p.set.Desired()
	require.Empty(t, refused)
	require.Len(t, osds, 1)
	p.osd = osds[0]
	return p
}

// template changes the template to another image, as a person would.
func (p *osdPods) template(image string) {
	p.t.Helper()
	u := cephOSDNamed(p)
	patch := `{"spec":{"podTemplate":{"spec":{"containers":[{"name":"osd","image":"` + image + `"}]}}}}`
	require.NoError(p.t, server.Patch(p.t.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch))))
	_, p.set = fromServer(p.t, u)
}

// cephOSDNamed names the CephOSD of the pods.
func cephOSDNamed(p *osdPods) *unstructured.Unstructured {
	u := cephOSD(p.t, "osds", "{}")
	u.SetNamespace(p.ns)
	return u
}

func (p *osdPods) pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: podspec.PodName(p.osd)}}
}

// make makes the OSD's pod, and gives it a finalizer: so it can be seen to terminate, though no kubelet looks after it.
func (p *osdPods) make() {
	p.t.Helper()
	pod := p.set.Render(p.osd, podspec.Knowledge{})
	pod.Finalizers = []string{"lockkeeper.io/test"}
	require.NoError(p.t, server.Create(p.t.Context(), pod))
}

// remove deletes it; forget lets it go at last.
func (p *osdPods) remove() {
	p.t.Helper()
	require.NoError(p.t, server.Delete(p.t.Context(), p.pod(), client.GracePeriodSeconds(0)))
}

func (p *osdPods) forget() { p.t.Helper(); p.patch(`{"metadata":{"finalizers":null}}`) }

func (p *osdPods) patch(patch string) {
	p.t.Helper()
	require.NoError(p.t, server.Patch(p.t.Context(), p.pod(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (p *osdPods) annotate(annotations map[string]any) {
	p.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	require.NoError(p.t, err)
	p.patch(string(patch))
}

// ready is what a kubelet would say.
func (p *osdPods) ready(is bool) {
	p.t.Helper()
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	pod := p.pod()
	require.NoError(p.t, server.Get(p.t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	require.NoError(p.t, server.Status().Update(p.t.Context(), pod))
}

// look classifies what the API server lists by the owner label, and writes onto the pod what it is worth.
func (p *osdPods) look() podspec.Classified {
	p.t.Helper()
	var list corev1.PodList
	require.NoError(p.t, server.List(p.t.Context(), &list, client.InNamespace(p.ns),
		client.MatchingLabels{podspec.OwnerLabel: podspec.Owner("osds")}))
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	c := p.set.Classify([]podspec.OSD{p.osd}, pods)
	for _, all := range [][]podspec.Pod{c.UpToDate, c.OutOfDate, c.Ready, c.Unready} {
		for _, pod := range all {
			pod.Up = pod.Ready // as Ceph would say
			annotations := map[string]any{}
			for k, v := range pod.Annotations(time.Now()) {
				annotations[k] = v
			}
			if len(annotations) > 0 {
				p.annotate(annotations)
			}
		}
	}
	return c
}

func (p *osdPods) release() {
	p.t.Helper()
	annotations := map[string]any{}
	for k, v := range podspec.Release(time.Now()) {
		annotations[k] = v
	}
	p.annotate(annotations)
}

func (p *osdPods) state() string {
	p.t.Helper()
	pod := p.pod()
	require.NoError(p.t, server.Get(p.t.Context(), client.ObjectKeyFromObject(pod), pod))
	return pod.Annotations[podspec.StateAnnotation]
}

// The life of an OSD's pods, as the API server tells it.
func TestStatesOfAnOSDsPods(t *testing.T) {
	p := newOSDPods(t, "states")
	assert.Len(t, p.look().Missing, 1)

	p.make()
	assert.Len(t, p.look().Unready, 1)
	p.ready(true)
	assert.Len(t, p.look().Ready, 1)
	assert.Equal(t, "ready", p.state())
	p.release()
	c := p.look()
	assert.Len(t, c.UpToDate, 1)
	assert.Empty(t, c.NotReady)

	p.template("ceph:17")
	assert.Len(t, p.look().OutOfDate, 1)
	assert.Equal(t, "out-of-date", p.state())
	p.template("ceph:16")
	assert.Len(t, p.look().UpToDate, 1, "the template is what it was")
	p.template("ceph:17")

	p.remove()
	c = p.look()
	assert.Len(t, c.Terminating, 1)
	assert.Empty(t, c.Missing, "while it terminates nobody else may have the device")
	assert.ErrorContains(t, server.Create(t.Context(), p.set.Render(p.osd, podspec.Knowledge{})),
		"object is being deleted")
	p.forget()
	assert.Len(t, p.look().Missing, 1)
}

// A halt is not forgotten by deleting the pod that does not get ready, and ends by a person's word.
func TestAHaltOutlivesItsPod(t *testing.T) {
	p := newOSDPods(t, "halts")
	p.make()
	p.ready(false)
	assert.Len(t, p.look().Unready, 1)
	p.remove()
	p.forget()
	require.Len(t, p.look().Missing, 1)
	p.make()
	p.ready(false)
	assert.Len(t, p.look().Unready, 1, "it comes back as it was")

	p.template("ceph:17")
	assert.Len(t, p.look().OutOfDate, 1)
	p.template("ceph:16")
	assert.Len(t, p.look().Unready, 1, "nobody released it while it was out of date")

	for _, word := range []any{nil, "up-to-date"} {
		p.annotate(map[string]any{podspec.StateAnnotation: word})
		c := p.look()
		require.Len(t, c.UpToDate, 1)
		assert.True(t, c.UpToDate[0].Overridden)
		assert.Empty(t, c.NotReady)
	}
	p.ready(true)
	p.look()
	p.ready(false)
	c := p.look()
	require.Len(t, c.UpToDate, 1)
	assert.Len(t, c.NotReady, 1, "a word lasts until the OSD has served; what happens then is new")
}
