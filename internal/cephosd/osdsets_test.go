package cephosd

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// TestPatchLeavesTheRestAlone: null in a merge patch removes the whole field, with the annotations that say whose OSD a
// pod is.
func TestPatchLeavesTheRestAlone(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "osd", UID: "u"}}
	for name, c := range map[string]struct {
		note note
		want string
	}{
		"labels only": {
			note{pod: pod, labels: map[string]string{"ceph-osd-id": "3"}},
			`{"metadata":{"uid":"u","labels":{"ceph-osd-id":"3"}}}`,
		},
		"annotations only": {
			note{pod: pod, annotations: map[string]string{"a": "b"}},
			`{"metadata":{"uid":"u","annotations":{"a":"b"}}}`,
		},
		"no owner": {note{pod: pod, disowned: true}, `{"metadata":{"uid":"u","ownerReferences":null}}`},
		"nothing":  {note{pod: pod}, `{"metadata":{"uid":"u"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := c.note.patch()
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(patch))
		})
	}
}

func TestIdentify(t *testing.T) {
	osd := func(host, data string) podspec.OSD { return podspec.OSD{Host: host, Data: data} }
	podOf := func(o podspec.OSD, name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{
			podspec.HostAnnotation: o.Host, podspec.DataAnnotation: o.Data,
		}}}
	}
	a0, a1, b0, c0 := osd("a", "/dev/0"), osd("a", "/dev/1"), osd("b", "/dev/0"), osd("c", "/dev/0")
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		ceph []cephcluster.OSD
		want map[string]int
		lone bool
	}{
		"by label": {
			pods: []*corev1.Pod{podOf(a0, "x", map[string]string{podspec.IDLabel: "7"})},
			ceph: []cephcluster.OSD{{ID: 7, Serving: true}}, want: map[string]int{a0.Key(): 7}, lone: true,
		},
		"by what it said of its pod": {
			pods: []*corev1.Pod{podOf(a0, "x", nil)}, ceph: []cephcluster.OSD{{ID: 7, Pod: "x", Serving: true}},
			want: map[string]int{a0.Key(): 7}, lone: true,
		},
		"by host and store, though its pod is gone": {
			ceph: []cephcluster.OSD{{ID: 7, Host: "a", Data: "/dev/1", Pod: "gone", Serving: true}},
			want: map[string]int{a1.Key(): 7}, lone: true,
		},
		"the only one of its host": {
			ceph: []cephcluster.OSD{{ID: 4, Host: "b", Serving: true}}, want: map[string]int{b0.Key(): 4}, lone: true,
		},
		"one of two of a host can be told from no other": {
			pods: []*corev1.Pod{podOf(a0, "x", nil), podOf(a1, "y", nil)},
			ceph: []cephcluster.OSD{{ID: 1, Host: "a", Serving: true}, {ID: 2, Host: "a", Serving: true}},
			want: map[string]int{},
		},
		"one that never served is missed by nobody": {
			pods: []*corev1.Pod{podOf(c0, "z", nil)}, ceph: []cephcluster.OSD{{ID: 1}}, want: map[string]int{}, lone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{desired: []podspec.OSD{a0, a1, b0, c0}, ceph: cephcluster.OSDs{OSDs: c.ceph}}
			s.identify(c.pods)
			require.Equal(t, c.want, s.ids)
			require.Equal(t, c.lone, s.lone)
		})
	}
}

func TestJudgement(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	invalid := apierrors.NewInvalid(kind, "osd",
		field.ErrorList{field.Invalid(field.NewPath("spec", "containers").Index(0).Child("name"), "X", "must be lower case")})
	e, err := judgement(invalid)
	require.NoError(t, err)
	require.Equal(t, "spec.podTemplate.spec.containers[0].name", e.Field)
	require.Contains(t, e.Allowed, "must be lower case")

	e, err = judgement(apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, "osd"))
	require.NoError(t, err)
	require.Nil(t, e, "that there is one says that it would be fine")

	_, err = judgement(apierrors.NewServiceUnavailable("later"))
	require.Error(t, err, "no answer is no judgement")
}
