package cephmon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// threeMons is a world with the mons a, b and c, of which a alone has a pod that runs.
func threeMons() *world {
	w := &world{
		cephMon: &v1alpha1.CephMon{}, policy: &v1alpha1.MaintenancePolicy{},
		endpoints: &corev1.ConfigMap{Data: map[string]string{"data": "a=10.0.0.1:6789,b=10.0.0.2:6789,c=10.0.0.3:6789"}},
	}
	w.policy.Spec.Ceph = &v1alpha1.CephSpec{}
	w.policy.Spec.Ceph.Connection.MonEndpoints.Key = "data"
	w.set.Selector = map[string]string{"app": "rook-ceph-mon"}
	for _, mon := range []string{"a", "b"} {
		w.pods = append(w.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app": "rook-ceph-mon", kube.MonLabel: mon},
		}})
	}
	w.pods[0].Spec.NodeName, w.pods[0].Status.Phase = "node-a", corev1.PodRunning
	w.pods[1].Status.Phase = corev1.PodPending
	return w
}

// TestWithoutAQuorum: nobody knows who lives, and the status says all the same what a person has to do.
func TestWithoutAQuorum(t *testing.T) {
	seen := monplan.Seen{Unproved: "timed out"}
	s := threeMons().status(&seen, activities.MonSurvey{Found: true, Step: monplan.Next(seen)})
	assert.Equal(t, "NoQuorum", s.Reason)
	assert.Equal(t, "Ceph has not committed anything: timed out; 2 of the 3 mons have to answer, and until then no mon "+
		"is changed: no pod runs of mon.b, mon.c. Bring them back; if their stores are lost, rebuild the quorum from a "+
		"survivor's store by Ceph's documentation", s.Message)
}

// TestPending: the status says why a canary does not run, as long as the step waits for that.
func TestPending(t *testing.T) {
	const full = "0/6 nodes are available: 2 node(s) had untolerated taint(s)"
	noNode := corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: full + "."},
	}}
	noImage := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
	}}}}
	const slow = "; claim rook-ceph-mon-d of class slow waits for its volume on node-d; what its storage says is in " +
		"`kubectl -n rook-ceph describe pvc rook-ceph-mon-d`"
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		do     monplan.Do
		claim  corev1.PersistentVolumeClaimPhase // and a node is chosen for its volume; "": there is no claim
		says   string
	}{
		"no node":        {noNode, monplan.Schedule, "", "; no node for its canary: " + full},
		"no image":       {noImage, monplan.Schedule, "", "; its canary does not start: ErrImagePull: no such image"},
		"not seen yet":   {corev1.PodStatus{}, monplan.Schedule, "", ""},
		"not waited on":  {noNode, monplan.Start, "", ""},
		"no volume":      {corev1.PodStatus{}, monplan.ClaimVolume, corev1.ClaimPending, slow},
		"stale news":     {noNode, monplan.Schedule, corev1.ClaimPending, slow},
		"volume is lost": {noNode, monplan.Schedule, corev1.ClaimLost, slow},
		"its node is full": {
			noNode, monplan.Schedule, corev1.ClaimBound, "; no node for its canary: " + full,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := threeMons()
			w.pods = append(w.pods, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{monspec.CanaryLabel: "d"}}, Status: tt.status,
			})
			if tt.claim != "" {
				w.claims = append(w.claims, corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: "rook-ceph", Name: monspec.ResourceName("d"),
						Annotations: map[string]string{volume.AnnSelectedNode: "node-d"},
					},
					Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")},
					Status: corev1.PersistentVolumeClaimStatus{Phase: tt.claim},
				})
			}
			seen := monplan.Seen{}
			s := w.status(&seen, activities.MonSurvey{Found: true, Step: monplan.Step{
				Verdict: monplan.Move, Why: "mon.a: old", Risk: "none", Acts: []monplan.Act{{Do: tt.do, Mon: "d"}},
				Work: &monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a"},
			}})
			assert.Equal(t, "mon.a: old"+tt.says, s.Step.Message)
			assert.Equal(t, "mon.a: old"+tt.says+"; none", s.Message)
		})
	}
}

// TestPendingWithoutItsClaim: a canary whose claim was dropped begins anew, and what the scheduler says of it is stale.
func TestPendingWithoutItsClaim(t *testing.T) {
	w := threeMons()
	canary := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{monspec.CanaryLabel: "d"}}}
	canary.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: `persistentvolumeclaim "rook-ceph-mon-d" not found`,
	}}
	w.pods = append(w.pods, canary)
	assert.Contains(t, w.pending("d"), "no node for its canary")
	w.pods[len(w.pods)-1].Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "rook-ceph-mon-d"},
	}}}
	assert.Empty(t, w.pending("d"))
}

// TestLeftOfANewcomerThatIsTakenBack: what it has made on its node stays there, and is listed. While it comes it is
// not.
func TestLeftOfANewcomerThatIsTakenBack(t *testing.T) {
	w := threeMons()
	d := appsv1.Deployment{}
	d.Spec.Template.Labels = map[string]string{"app": "rook-ceph-mon", kube.MonLabel: "d"}
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-d"}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{
		Name: "ceph-daemon-data", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/rook/mon-d"},
		},
	}}
	w.deployments = []appsv1.Deployment{d}
	work := monplan.Work{Kind: monplan.Add, Newcomer: "d"}
	survey := activities.MonSurvey{Step: monplan.Step{Work: &work}}
	assert.Empty(t, w.left(nil, monplan.Seen{}, survey))
	work.Undo = "it was not in quorum in time"
	left := w.left(nil, monplan.Seen{}, survey)
	if assert.Len(t, left, 1) {
		assert.Equal(t, "/var/lib/rook/mon-d", left[0].Path)
		assert.Equal(t, "d", left[0].Mon)
	}
}

// TestLeftOfAMonThatAddsItselfAgain: a mon that has left, and is in the monmap once more while its pod ends, leaves
// again. Without its Deployment only the status knows where its store is.
func TestLeftOfAMonThatAddsItselfAgain(t *testing.T) {
	w, survey := threeMons(), activities.MonSurvey{}
	before := []v1alpha1.MonStorageLeft{{Mon: "z", Path: "/var/lib/rook/mon-z", Node: "node-z"}}
	again := monplan.Seen{Mons: []monplan.Mon{{Name: "z"}}}
	assert.Equal(t, before, w.left(before, again, survey))
	d := appsv1.Deployment{}
	d.Spec.Template.Labels = map[string]string{"app": "rook-ceph-mon", kube.MonLabel: "z"}
	w.deployments = []appsv1.Deployment{d}
	assert.Empty(t, w.left(before, again, survey), "it is a mon like the others")
}

// TestAdoptedMons: a mon that lockkeeper has not made is restarted for what the spec says anew, not for what it said
// when the mon came under it.
func TestAdoptedMons(t *testing.T) {
	w := threeMons()
	image := func(spec string) string {
		w.set.Spec.PodTemplate.Image = spec
		hash, err := w.set.TemplateHash()
		require.NoError(t, err)
		return hash
	}
	for _, mon := range []string{"a", "b"} {
		d := appsv1.Deployment{}
		d.Spec.Template.Labels = map[string]string{"app": "rook-ceph-mon", kube.MonLabel: mon}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "mon", Image: "ceph:16"}}
		w.deployments = append(w.deployments, d)
	}
	q := ceph.QuorumStatus{QuorumNames: []string{"a", "b"}}
	for _, mon := range q.QuorumNames {
		q.MonMap.Mons = append(q.MonMap.Mons, ceph.Mon{Name: mon})
	}
	look := func(template string) (seen monplan.Seen, templates []string) {
		seen = monplan.Seen{Mons: w.mons(q), Want: monplan.Want{Template: template}}
		w.cephMon.Status = w.status(&seen, activities.MonSurvey{Found: true, Step: monplan.Step{Verdict: monplan.Done}})
		for _, m := range seen.Mons {
			templates = append(templates, m.Template)
		}
		return seen, templates
	}
	first := image("ceph:18")
	seen, templates := look(first)
	assert.Equal(t, []string{first, first}, templates)
	warnings := w.otherImages(seen)
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0], "mon.a has image ceph:16, as it had before lockkeeper looked after it, instead of "+
		"spec.podTemplate.image ceph:18")

	second := image("ceph:20")
	for range 2 { // it stays different for as long as it takes
		seen, templates = look(second)
		assert.Equal(t, []string{first, first}, templates)
		assert.Empty(t, w.otherImages(seen), "they are about to be restarted")
	}
	w.deployments[1].Spec.Template.Spec.Containers[0].Image = "ceph:20"
	_, templates = look(second)
	assert.Equal(t, []string{first, second}, templates, "somebody gave mon.b the image already")
	w.deployments[0].Spec.Template.Annotations = map[string]string{monspec.TemplateAnnotation: second}
	_, templates = look(second)
	assert.Equal(t, []string{second, second}, templates)
	assert.Empty(t, w.cephMon.Status.Mons[0].Adopted, "it has lockkeeper's template now")
}

// TestOutOfTouch: who was started before every mon of now has addresses of others.
func TestOutOfTouch(t *testing.T) {
	w, began := threeMons(), time.Now()
	at := func(minute int) metav1.Time { return metav1.NewTime(began.Add(time.Duration(minute) * time.Minute)) }
	var seen monplan.Seen
	for i, mon := range []string{"d", "e"} {
		d := appsv1.Deployment{}
		d.CreationTimestamp = at(10 * (i + 1))
		d.Spec.Template.Labels = map[string]string{"app": "rook-ceph-mon", kube.MonLabel: mon}
		w.deployments = append(w.deployments, d)
		seen.Mons = append(seen.Mons, monplan.Mon{Name: mon})
	}
	daemon := func(name, app string, started int) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(started)}}},
		}
		w.pods = append(w.pods, p)
	}
	daemon("old-mgr", "rook-ceph-mgr", 1)
	daemon("old-osd", "rook-ceph-osd", 1) // whose container ends with it
	daemon("new-mgr", "rook-ceph-mgr", 15)
	daemon("old-mds", "rook-ceph-mds", 1)
	warnings := w.outOfTouch(seen)
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0], "pod old-mgr was started before every mon that there is")
	assert.Contains(t, warnings[1], "pod old-mds")

	w.deployments[0].CreationTimestamp = at(0)
	assert.Empty(t, w.outOfTouch(seen), "mon.d is among those that they know")
	seen.Mons = append(seen.Mons, monplan.Mon{Name: "z"})
	assert.Empty(t, w.outOfTouch(seen), "nobody knows since when mon.z is there")
}

// TestADamagedSpecForgetsNoStep: a job that begins with a spec which makes no sense waits with the step that the job
// before it has begun.
func TestADamagedSpecForgetsNoStep(t *testing.T) {
	w := threeMons()
	refused := []*input.Error{input.Wrong("spec.count", "0", "must be 1 or more")}
	var s activities.MonSurvey
	w.begin(&s, Memory{}, refused)
	assert.Equal(t, monplan.Refuse, s.Step.Verdict)
	assert.Nil(t, s.Work)

	w.cephMon.Status.Step = &v1alpha1.MonStep{Kind: string(monplan.Add), Mon: "d"}
	s = activities.MonSurvey{}
	memory := w.begin(&s, Memory{}, refused)
	assert.Equal(t, monplan.Wait, s.Step.Verdict)
	for _, work := range []*monplan.Work{memory.Work, s.Work, s.Step.Work} {
		if assert.NotNil(t, work) {
			assert.Equal(t, "d", work.Newcomer)
		}
	}
}

// TestNodeOfADroppedCanary: it is remembered until the newcomer is started, unless nobody hears of it any more.
func TestNodeOfADroppedCanary(t *testing.T) {
	w := threeMons()
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-d"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.nodes = []corev1.Node{node}
	work := monplan.Work{
		Kind: monplan.Migrate, Newcomer: "d", Old: "a", Scheduled: true, Claimed: true, Node: "node-d", Zone: "zone-x",
	}
	got := w.work(work, "")
	assert.True(t, got.Scheduled && got.Claimed)
	assert.Equal(t, "node-d", got.Node)

	w.nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
	got = w.work(work, "")
	assert.False(t, got.Scheduled || got.Claimed)
	assert.Empty(t, got.Node+got.Zone)
	work.Started = time.Unix(1, 0)
	assert.True(t, w.work(work, "").Scheduled, "it may be in the monmap already")
}
