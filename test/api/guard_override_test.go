package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestOutOfTurn: a person with the right to may let one pod go, in his own name and with a reason; nobody else, no
// other pod, and not for ever.
func TestOutOfTurn(t *testing.T) {
	w := newGuardWorld(t, "out-of-turn")
	allow := func(role string, rules ...rbacv1.PolicyRule) {
		if len(rules) > 0 {
			create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules})
		}
		create(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ada"}},
		})
	}
	allow("pods-and-events", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods", "pods/status", "events"},
		Verbs: []string{"get", "list", "patch", "update", "delete", "create"},
	})
	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "ada"}
	ada, err := kube.New(cfg)
	require.NoError(t, err)
	adas, err := client.New(cfg, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	w.pod("x", osd("1", "x"))
	w.pod("y", osd("2", "y"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := ada.FindPods(t.Context(), w.ns, "osd.1")
		assert.NoError(c, err)
	}, apiserver.Patience, 50*time.Millisecond)
	found, err := ada.FindPods(t.Context(), w.ns, "osd.1")
	require.NoError(t, err)
	require.Len(t, found, 1)
	x := found[0]
	me, err := ada.WhoAmI(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ada", me)

	says, no := refused(t, ada.LetGo(t.Context(), x, me, "hangs"))
	require.True(t, no)
	require.Contains(t, says, "takes the right to override maintenancepolicies.lockkeeper.io")
	// The status of a pod is another way to its annotations.
	pod := &corev1.Pod{}
	require.NoError(t, adas.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "x"}, pod))
	pod.Annotations = map[string]string{kube.GoNowAnnotation: x.UID + " ada: hangs"}
	_, no = refused(t, adas.Status().Update(t.Context(), pod))
	require.True(t, no)

	allow("lockkeeper-override")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, ada.LetGo(t.Context(), x, me, "hangs"))
	}, apiserver.Patience, 50*time.Millisecond)
	require.NoError(t, w.try(person, "x"), "whoever deletes it now")
	_, no = refused(t, w.try(person, "y"))
	require.True(t, no)
	for name, c := range map[string]struct {
		pod        kube.PodRef
		by, reason string
	}{
		"without a reason":        {x, me, ""},
		"in another name":         {x, "admin", "hangs"},
		"for another pod's UID":   {kube.PodRef{Namespace: w.ns, Name: "y", UID: x.UID}, me, "hangs"},
		"for a pod that has gone": {kube.PodRef{Namespace: w.ns, Name: "x", UID: "another"}, me, "hangs"},
	} {
		require.Error(t, ada.LetGo(t.Context(), c.pod, c.by, c.reason), name)
	}
	require.NoError(t, ada.NoteOverride(t.Context(), x, me, "hangs"))
	require.Error(t, ada.DeletePod(t.Context(), kube.PodRef{Namespace: w.ns, Name: "x", UID: "another"}))
	require.NoError(t, ada.DeletePod(t.Context(), x))
	require.NoError(t, server.Delete(t.Context(), pod, client.GracePeriodSeconds(0))) // no kubelet does

	// The next pod of that name, made of a template with the annotation, waits.
	w.pod("x", osd("1", "x"), func(p *corev1.Pod) { p.Annotations = pod.Annotations })
	_, no = refused(t, w.try(person, "x"))
	require.True(t, no)
	// What was allowed can be taken back by who may write the pod.
	again, err := ada.FindPods(t.Context(), w.ns, "pod/x")
	require.NoError(t, err)
	require.Len(t, again, 1)
	require.NoError(t, ada.LetGo(t.Context(), again[0], me, "hangs again"))
	require.NoError(t, w.try(person, "x"))
	require.NoError(t, adas.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "x"}, pod))
	pod.Annotations = nil
	require.NoError(t, adas.Update(t.Context(), pod))
	_, no = refused(t, w.try(person, "x"))
	require.True(t, no)
}
