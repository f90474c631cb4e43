package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// cephOSD is a CephOSD with the given spec, as a person would write it, and unless that has one, a small template.
func cephOSD(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("spec: "+spec), &u.Object))
	if s, ok := u.Object["spec"].(map[string]any); ok && s["podTemplate"] == nil {
		s["podTemplate"] = map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "osd", "image": "ceph:16"}}},
		}
	}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(v1alpha1.Kind)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// fromServer is what the API server has of it now.
func fromServer(t *testing.T, u *unstructured.Unstructured) (*unstructured.Unstructured, podspec.Set) {
	t.Helper()
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(u.GroupVersionKind())
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(u), got))
	set, err := podspec.Read(got.Object)
	require.NoError(t, err)
	return got, set
}

// asBefore is a manifest of the original operator, in the API server.
func asBefore(t *testing.T) (written map[string]any, _ podspec.Set) {
	t.Helper()
	content, err := os.ReadFile("testdata/cephosd-as-before.yaml")
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(content, &u.Object))
	written = u.DeepCopy().Object
	create(t, u)
	_, set := fromServer(t, u)
	return written, set
}

// Manifests of the original operator apply as they are, down to the last field, and the API server adds nothing to the
// template: by its hash the pods of the original are recognised.
func TestManifestsOfTheOriginalApplyUnchanged(t *testing.T) {
	written, _ := asBefore(t)
	u := &unstructured.Unstructured{Object: written}
	got, set := fromServer(t, u)
	want := written["spec"].(map[string]any)["podTemplate"]
	asJSON := func(v any) string {
		out, err := json.Marshal(v)
		require.NoError(t, err)
		return string(out)
	}
	assert.JSONEq(t, asJSON(want), asJSON(got.Object["spec"].(map[string]any)["podTemplate"]))
	assert.Equal(t, "eb8378bd11f50f5e", set.Hash, "what Python makes of the template in testdata")

	assert.Equal(t, v1alpha1.UpdateDomain("Host"), set.Domain())
	osds, refused := set.Desired()
	assert.Empty(t, refused)
	assert.Len(t, osds, 5)
}

func TestCephOSDDefaults(t *testing.T) {
	u := cephOSD(t, "defaults", `{storage: [{hosts: [a], osds: [{data: /dev/sdb}]}]}`)
	create(t, u)
	_, set := fromServer(t, u)
	assert.Equal(t, v1alpha1.UpdateDomain("OSD"), set.Spec.UpdateDomain)
	assert.Equal(t, v1alpha1.RetainOSDs, set.Spec.DeletionPolicy)
	assert.Equal(t, &metav1.Duration{Duration: 10 * time.Minute}, set.Spec.ProgressDeadline)
	assert.Zero(t, set.Spec.MaxParallel)
	assert.False(t, set.Spec.Paused)
}

// Which types there are only the storage cluster knows. What the API server lets through is what lockkeeper reads.
func TestUpdateDomains(t *testing.T) {
	for _, domain := range []v1alpha1.UpdateDomain{"OSD", "Host", "host", "Zone", "Cage-1", "our_shelf"} {
		require.True(t, domain.Valid(), domain)
		u := cephOSD(t, "domain", `{storage: [], updateDomain: `+string(domain)+`}`)
		require.NoError(t, server.Create(t.Context(), u, client.DryRunAll), domain)
	}
}

// A refusal names the field, and says what is allowed.
func TestBadCephOSDsAreRefused(t *testing.T) {
	const one = `storage: [{hosts: [a], osds: [{data: x}]}]`
	for _, c := range []struct{ name, spec, field, allowed string }{
		{"no-storage", `{updateDomain: OSD}`, "spec.storage", "Required value"},
		{"no-template", `{podTemplate: {}, ` + one + `}`, "spec.podTemplate.spec", "Required value"},
		{"no-containers", `{podTemplate: {spec: {}}, ` + one + `}`, "spec.podTemplate.spec.containers", "Required value"},
		{
			"number-for-image", `{podTemplate: {spec: {containers: [{name: a, image: 7}]}}, ` + one + `}`,
			"spec.podTemplate.spec.containers[0].image", "must be of type string",
		},
		{"no-hosts", `{storage: [{osds: [{data: x}]}]}`, "spec.storage[0].hosts", "Required value"},
		{
			"empty-hosts", `{storage: [{hosts: [], osds: [{data: x}]}]}`, "spec.storage[0].hosts",
			"should have at least 1 items",
		},
		{"empty-host", `{storage: [{hosts: [""], osds: [{data: x}]}]}`, "spec.storage[0].hosts[0]", "at least 1 chars long"},
		{
			"host-twice", `{storage: [{hosts: [a, b, a], osds: [{data: x}]}]}`, "spec.storage[0].hosts[2]",
			`Duplicate value: "a"`,
		},
		{"no-osds", `{storage: [{hosts: [a]}]}`, "spec.storage[0].osds", "Required value"},
		{"empty-osds", `{storage: [{hosts: [a], osds: []}]}`, "spec.storage[0].osds", "should have at least 1 items"},
		{"no-data", `{storage: [{hosts: [a], osds: [{db: x}]}]}`, "spec.storage[0].osds[0].data", "Required value"},
		{
			"empty-data", `{storage: [{hosts: [a], osds: [{data: ""}]}]}`, "spec.storage[0].osds[0].data",
			"at least 1 chars long",
		},
		{
			"empty-db", `{storage: [{hosts: [a], osds: [{data: x, db: ""}]}]}`, "spec.storage[0].osds[0].db",
			"at least 1 chars long",
		},
		{
			"device-twice", `{storage: [{hosts: [a], osds: [{data: x}, {data: z, db: w}, {data: x}]}]}`,
			"spec.storage[0].osds[2]", `Duplicate value: {"data":"x"}`,
		},
		{
			"domain", `{updateDomain: our shelf, ` + one + `}`, "spec.updateDomain",
			"must be OSD, Host, or another type of the cluster's CRUSH map, such as Rack or Zone",
		},
		{"parallel", `{maxParallel: -1, ` + one + `}`, "spec.maxParallel", "greater than or equal to 0"},
		{
			"pause", `{pauseBetween: soon, ` + one + `}`, "spec.pauseBetween",
			"must be a duration between 0s and 168h, such as 5m",
		},
		{
			"soak", `{canary: {soak: -1s}, ` + one + `}`, "spec.canary.soak",
			"must be a duration between 0s and 168h, such as 30m",
		},
		{
			"deadline", `{progressDeadline: 1s, ` + one + `}`, "spec.progressDeadline",
			"must be a duration between 10s and 24h, such as 10m",
		},
		{
			"schedule", `{windows: [{schedule: "@daily", duration: 1h}], ` + one + `}`, "spec.windows[0].schedule",
			"must be the five fields of a crontab",
		},
		{
			"zone-in-schedule", `{windows: [{schedule: "TZ=UTC 0 1 * * *", duration: 1h}], ` + one + `}`,
			"spec.windows[0].schedule", "must be the five fields of a crontab",
		},
		{
			"endless-window", `{windows: [{schedule: "0 1 * * *", duration: 200h}], ` + one + `}`, "spec.windows[0].duration",
			"must be a duration between 1m and 168h, such as 6h",
		},
		{"deletion", `{deletionPolicy: Orphan, ` + one + `}`, "spec.deletionPolicy", `supported values: "Retain", "Delete"`},
		{
			"a-name-that-does-not-fit-into-the-label-with-its-owner-xx", `{` + one + `}`, "metadata.name",
			"must have at most 55 characters",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := server.Create(t.Context(), cephOSD(t, c.name, c.spec))
			require.Error(t, err)
			t.Log(err)
			assert.Contains(t, err.Error(), c.field)
			assert.Contains(t, err.Error(), c.allowed)
		})
	}
}

// A field that pods do not have does no harm unless somebody wants to know, as kubectl does.
func TestUnknownFieldsOfATemplate(t *testing.T) {
	const spec = `{storage: [], podTemplate: {spec: {containers: [{name: osd, image: ceph, readynessProbe: {}}]}}}`
	require.NoError(t, server.Create(t.Context(), cephOSD(t, "lenient", spec)))
	err := server.Create(t.Context(), cephOSD(t, "strict", spec), client.FieldValidation(metav1.FieldValidationStrict))
	require.Error(t, err)
	assert.Contains(t, err.Error(), `unknown field "spec.podTemplate.spec.containers[0].readynessProbe"`)
}

// kubectl apply keeps the whole object in an annotation, and an object's annotations have at most 256 KiB.
func TestTheCRDFitsIntoAnAnnotation(t *testing.T) {
	crds, err := filepath.Glob(filepath.Join(*root, "deploy", "crds", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, crds)
	for _, file := range crds {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		asJSON, err := yaml.YAMLToJSON(content)
		require.NoError(t, err)
		assert.Less(t, len(asJSON), 200<<10, file)
	}
}

// Nothing of a status is lost on the way, and writing it leaves the spec alone.
func TestStatusIsKept(t *testing.T) {
	u := cephOSD(t, "status", `{storage: []}`)
	create(t, u)
	at := metav1.Time{Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	want := v1alpha1.CephOSDStatus{
		ObservedGeneration: 1, TemplateHash: "0123456789abcdef", Progress: "3/12", Reason: "Halted",
		Message: "osd.3 does not get ready", Since: &at, Skipped: []string{"osd.7"},
		Superfluous: []v1alpha1.SuperfluousOSD{{OSD: "b:/dev/sdb", Why: "its data is needed"}},
		OSDs: v1alpha1.OSDCounts{
			Total: 12, UpToDate: 1, OutOfDate: 2, Ready: 3, Unready: 4, Missing: 5, NotReady: 6, Invalid: 7, Terminating: 8,
			Superfluous: 9, Skipped: 10,
		},
		Batch: &v1alpha1.BatchStatus{
			FailureDomain: "zone zone-x", OSDs: []string{"a:/dev/sdb"},
			Phase: "Waiting", Since: at,
		},
		Halted:  &v1alpha1.HaltedStatus{Reason: "ProgressDeadlineExceeded", Since: at},
		Refused: []v1alpha1.Refusal{{Field: "spec.storage[0].hosts[0]", Value: "b", Message: "must be a node"}},
		Foreign: []string{"mine"}, Workflow: "update-osds/default/status",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionHalted, Status: metav1.ConditionTrue, Reason: "X",
			LastTransitionTime: at,
		}},
	}
	var err error
	u.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	require.NoError(t, err)
	require.NoError(t, server.Status().Update(t.Context(), u, client.FieldValidation(metav1.FieldValidationStrict)))
	_, set := fromServer(t, u)
	got := set.Status
	got.Since, got.Batch.Since, got.Halted.Since, got.Conditions[0].LastTransitionTime = &at, at, at, at // in another zone
	assert.Equal(t, want, got)
	assert.EqualValues(t, 1, set.Generation)
}

// What is rendered is a pod that the API server takes, and a second one for the same OSD is one that it does not.
func TestRenderedPodsAreTaken(t *testing.T) {
	_, set := asBefore(t)
	create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "ceph-osd"}, Value: 1000000000})
	osds, refused := set.Desired()
	require.Empty(t, refused)
	id := 3
	for _, o := range osds {
		pod := set.Render(o, podspec.Knowledge{ID: &id, FailureDomains: map[string]string{"zone": "zone-x"}})
		require.NoError(t, server.Create(t.Context(), pod, client.FieldValidation(metav1.FieldValidationStrict)))

		other := set
		other.CephOSD = set.DeepCopy()
		other.Name = "another"
		assert.ErrorContains(t, server.Create(t.Context(), other.Render(o, podspec.Knowledge{})), "already exists")
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		assert.Contains(t, required.NodeSelectorTerms[0].MatchExpressions,
			corev1.NodeSelectorRequirement{Key: "ceph-osd", Operator: corev1.NodeSelectorOpIn, Values: []string{"enabled"}},
			"the template's own term")
	}
}
