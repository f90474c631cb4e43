package api

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// cephMon is a CephMon with the given spec, as a person would write it, and unless that has one, a small template.
func cephMon(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("spec: {policy: rook-ceph, podTemplate: {image: ceph}}"), &u.Object))
	more := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(spec), &more))
	for key, value := range more {
		u.Object["spec"].(map[string]any)[key] = value
	}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("CephMon")
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func TestCephMonDefaults(t *testing.T) {
	require.NoError(t, server.Create(t.Context(), cephMon(t, "mon-defaults", `{}`)))
	var got v1alpha1.CephMon
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "mon-defaults"}, &got))
	assert.Equal(t, v1alpha1.CephMonSpec{
		Policy: "rook-ceph", Count: 3, FailureDomainLabel: "topology.kubernetes.io/zone", DataDirHostPath: "/var/lib/rook",
		HealthTimeout: &metav1.Duration{Duration: 10 * time.Minute}, Migrate: v1alpha1.MigrateManual,
		PodTemplate: v1alpha1.MonPodTemplate{Image: "ceph"},
		Ceph: v1alpha1.MonObjects{
			Keyring: v1alpha1.KeyReference{Name: "rook-ceph-mons-keyring", Key: "keyring"},
			Config:  v1alpha1.KeyReference{Name: "rook-config-override", Key: "config"},
		},
	}, got.Spec)
	assert.Empty(t, monspec.Of(&got).Refusals())
}

// What the API server accepts, lockkeeper does not refuse for what stands in the spec alone, and the other way round.
func TestCephMonIsRefusedInTheSameWay(t *testing.T) {
	const claim = `volumeClaimTemplate: `
	for spec, want := range map[string]string{
		`{count: 5, migrate: Automatic, healthTimeout: 1m}`: "",
		`{failureDomainLabel: topology.rook.io/rack}`:       "",
		`{` + claim + `{}}`: "",
		`{` + claim + `{spec: {storageClassName: fast, resources: {requests: {storage: 5Gi}}}}}`: "",
		`{zones: [{name: a}, {name: b}, {name: c}, {name: d}]}`:                                  "",
		`{dataDirHostPath: /var/lib/ceph-1}`:                                                     "",

		`{policy: ""}`:                                               "spec.policy",
		`{count: 0}`:                                                 "spec.count",
		`{count: 16}`:                                                "spec.count",
		`{count: 3.5}`:                                               "spec.count",
		`{count: three}`:                                             "spec.count",
		`{preferredCount: 5}`:                                        "",
		`{migrate: Sometimes}`:                                       "spec.migrate",
		`{healthTimeout: 30s}`:                                       "spec.healthTimeout",
		`{healthTimeout: soon}`:                                      "spec.healthTimeout",
		`{healthTimeout: 200h}`:                                      "spec.healthTimeout",
		`{failureDomainLabel: rack}`:                                 "topology.rook.io/NAME such as topology.rook.io/rack",
		`{zones: [{name: a}, {name: a}]}`:                            "Duplicate value",
		`{zones: [{name: ""}]}`:                                      "spec.zones[0].name",
		`{dataDirHostPath: /var/../etc}`:                             "must be an absolute path",
		`{dataDirHostPath: var}`:                                     "must be an absolute path",
		`{dataDirHostPath: /}`:                                       "must be an absolute path",
		`{podTemplate: {image: ""}}`:                                 "spec.podTemplate.image",
		`{podTemplate: {}}`:                                          "spec.podTemplate.image",
		`{` + claim + `{metadata: {name: a}}}`:                       "metadata is not honoured",
		`{` + claim + `{spec: {volumeName: a}}}`:                     "spec.volumeName is not honoured",
		`{` + claim + `{spec: {accessModes: [a]}}}`:                  "spec.accessModes is not honoured",
		`{` + claim + `{spec: {selector: {}}}}`:                      "spec.selector is not honoured",
		`{` + claim + `{spec: {volumeMode: Block}}}`:                 "spec.volumeMode is not honoured",
		`{` + claim + `{spec: {dataSource: {kind: a, name: b}}}}`:    "spec.dataSource is not honoured",
		`{` + claim + `{spec: {dataSourceRef: {kind: a, name: b}}}}`: "spec.dataSourceRef is not honoured",
		`{` + claim + `{spec: {volumeAttributesClassName: a}}}`:      "spec.volumeAttributesClassName is not honoured",
		`{zones: [{name: a, ` + claim + `{spec: {volumeName: a}}}]}`: "spec.volumeName is not honoured",
	} {
		u := cephMon(t, "mon-refused", spec)
		err := server.Create(t.Context(), u, client.DryRunAll)
		if want != "" {
			require.ErrorContains(t, err, want, spec)
			continue
		}
		require.NoError(t, err, spec)
		var got v1alpha1.CephMon
		text, err := yaml.Marshal(u.Object)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &got))
		assert.Empty(t, monspec.Of(&got).Refusals(), spec)
	}
}

// Without a preferred count, and without fields that nobody knows.
func TestCephMonHasNoOtherFields(t *testing.T) {
	err := client.WithFieldValidation(server, metav1.FieldValidationStrict).Create(t.Context(),
		cephMon(t, "mon-strict", `{preferredCount: 5}`), client.DryRunAll)
	require.ErrorContains(t, err, `unknown field "spec.preferredCount"`)
}

// The API server takes all that is rendered for a mon, from the worker's account with the rights of
// storage-namespace-cephmon.yaml; and who deletes the CephMon deletes none of it.
func TestWhatAMonIsMadeOf(t *testing.T) {
	const ns = "mons"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	for _, file := range []string{"storage-namespace.yaml", "storage-namespace-cephmon.yaml"} {
		apply(t, filepath.Join(*root, "deploy", file), ns)
	}
	u := cephMon(t, "mons", `{volumeClaimTemplate: {spec: {storageClassName: fast}}, zones: [{name: a}, {name: b}, {name: c}]}`)
	u.SetNamespace(ns)
	create(t, u)
	var mons v1alpha1.CephMon
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(u), &mons))
	set := monspec.Of(&mons)
	worker, err := client.New(asAccount(config, "lockkeeper-worker"), client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)

	n := monspec.Newcomer{Name: "d", FSID: "f", Hosts: monspec.AddressOf("10.0.0.1"), Zones: []string{"a", "b"}}
	service := set.Service("d")
	made := []client.Object{set.Canary(n), set.Claim("d", "a"), service}
	for _, o := range made {
		require.NoError(t, worker.Create(t.Context(), o), "%T", o)
	}
	n.Address, n.Zones, n.Zone = monspec.AddressOf(service.Spec.ClusterIP), []string{"a"}, "a"
	deployment, err := set.Deployment(n)
	require.NoError(t, err)
	require.NoError(t, worker.Create(t.Context(), deployment))
	assert.Equal(t, monspec.AddressOf(service.Spec.ClusterIP), deployment.Annotations[monspec.AddressAnnotation])

	require.NoError(t, server.Delete(t.Context(), &mons))
	for _, o := range append(made, deployment) {
		require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		assert.Nil(t, o.GetDeletionTimestamp(), "%T", o)
		assert.Empty(t, o.GetOwnerReferences(), "%T", o)
	}
	require.NoError(t, worker.Delete(t.Context(), made[0]), "the canary goes")
}
