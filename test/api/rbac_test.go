package api

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestRightsAreWhatIsNeeded asks the API server's own RBAC. The scenarios in the lab run with these accounts, so that
// what is missing shows there; here is what must not be allowed.
func TestRightsAreWhatIsNeeded(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph"}})
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	apply(t, filepath.Join(*root, "deploy", "storage-namespace.yaml"), "rook-ceph")
	for _, more := range []string{"cephosd", "restart-osds", "cephmon", "fencing"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "with-" + more}})
		for _, file := range []string{"storage-namespace.yaml", "storage-namespace-" + more + ".yaml"} {
			apply(t, filepath.Join(*root, "deploy", file), "with-"+more)
		}
	}

	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "machines"}})
	apply(t, filepath.Join(*root, "deploy", "fencing-namespace.yaml"), "machines")
	apply(t, filepath.Join(*root, "deploy", "fencing-nodes.yaml"), "")

	const may, mayNot = true, false
	for _, c := range []struct {
		who, verb, what, where string // what: resource[/subresource][.group][=name]
		allowed                bool
	}{
		{"worker", "patch", "nodes", "", may},
		{"worker", "delete", "nodes", "", mayNot},
		{"worker", "update", "nodes/status", "", mayNot},
		{"worker", "create", "pods/eviction", "shop", may},
		{"worker", "delete", "pods", "shop", mayNot},
		// Who only runs Rook grants nothing that makes pods.
		{"worker", "create", "pods", "rook-ceph", mayNot},
		{"worker", "delete", "pods", "rook-ceph", mayNot},
		{"worker", "patch", "pods", "rook-ceph", may}, // the mark, and by admission.yaml nothing else
		{"worker", "patch", "deployments.apps", "rook-ceph", mayNot},
		{"worker", "list", "deployments.apps", "rook-ceph", may},
		{"worker", "get", "cephosds.ceph.elemental.net", "rook-ceph", mayNot},
		{"worker", "create", "pods", "with-cephosd", may},
		{"worker", "delete", "pods", "with-cephosd", may},
		{"worker", "update", "cephosds/status.ceph.elemental.net", "with-cephosd", may},
		{"worker", "patch", "deployments.apps", "with-cephosd", mayNot},
		{"worker", "patch", "deployments.apps", "with-restart-osds", may},
		{"worker", "delete", "pods", "with-fencing", may},
		{"worker", "create", "pods", "with-fencing", mayNot},
		{"worker", "update", "deployments.apps", "with-restart-osds", mayNot},
		{"worker", "create", "pods", "with-restart-osds", mayNot},
		{"worker", "create", "deployments.apps", "with-cephmon", may},
		{"worker", "create", "pods", "with-cephmon", may}, // that ask an image for its version
		{"worker", "delete", "pods", "with-cephmon", may},
		{"worker", "update", "cephmons/status.lockkeeper.io", "with-cephmon", may},
		{"worker", "patch", "configmaps=rook-ceph-mon-endpoints", "with-cephmon", may},
		{"worker", "patch", "configmaps=rook-ceph-mon-endpoints", "rook-ceph", mayNot},
		{"worker", "patch", "secrets=rook-ceph-config", "with-cephmon", may},
		{"worker", "get", "secrets=rook-ceph-config", "with-cephmon", mayNot},
		{"worker", "get", "secrets=rook-ceph-mons-keyring", "with-cephmon", mayNot}, // pods mount it
		{"worker", "list", "secrets", "with-cephmon", mayNot},
		{"worker", "create", "deployments.apps", "rook-ceph", mayNot},
		{"worker", "create", "persistentvolumeclaims", "rook-ceph", mayNot},
		{"worker", "update", "persistentvolumeclaims", "with-cephmon", mayNot},
		{"worker", "delete", "persistentvolumes", "", mayNot},
		{"worker", "create", "pods", "shop", mayNot},
		{"worker", "create", "pods/exec", "rook-ceph", mayNot},
		{"worker", "patch", "poddisruptionbudgets.policy", "rook-ceph", may},
		{"worker", "patch", "poddisruptionbudgets.policy", "shop", mayNot},
		{"worker", "update", "maintenancepolicies/status.lockkeeper.io", "rook-ceph", may},
		{"worker", "patch", "maintenancepolicies/status.lockkeeper.io", "rook-ceph", may},
		{"worker", "patch", "maintenancepolicies.lockkeeper.io", "no-role-binding-any-more", may}, // the finalizer
		{"worker", "update", "maintenancepolicies.lockkeeper.io", "rook-ceph", mayNot},
		{"worker", "delete", "maintenancepolicies.lockkeeper.io", "rook-ceph", mayNot},
		{"worker", "get", "namespaces", "rook-ceph", may},
		{"worker", "patch", "namespaces", "rook-ceph", mayNot},
		{"worker", "create", "maintenancepolicies.lockkeeper.io", "rook-ceph", mayNot},
		{"worker", "get", "secrets=lockkeeper-ceph-user", "rook-ceph", may},
		{"worker", "get", "secrets=rook-ceph-mon", "rook-ceph", mayNot},
		{"worker", "get", "configmaps=lockkeeper-mon-endpoints", "rook-ceph", may},
		{"worker", "get", "configmaps=lockkeeper-mon-endpoints", "shop", mayNot},
		{"worker", "list", "secrets", "rook-ceph", mayNot},
		{"worker", "get", "secrets=lockkeeper-ceph-user", "shop", mayNot},
		{"worker", "update", "deployments.apps", "rook-ceph", mayNot},
		{"worker", "create", "events", "default", may},

		// It holds Machines, and fences none.
		{"worker", "patch", "machines.cluster.x-k8s.io", "machines", may},
		{"worker", "patch", "machines.machine.openshift.io", "machines", may},
		{"worker", "patch", "machines.cluster.x-k8s.io", "shop", mayNot},
		{"worker", "delete", "machines.cluster.x-k8s.io", "machines", mayNot},
		{"worker", "delete", "machines.machine.openshift.io", "machines", mayNot},
		{"worker", "patch", "machinehealthchecks.cluster.x-k8s.io", "machines", mayNot},
		{"worker", "delete", "machinedisruptionbudgets.healthchecking.openshift.io", "machines", may},
		{"worker", "list", "nodehealthchecks.remediation.medik8s.io", "", may},
		{"worker", "patch", "nodehealthchecks.remediation.medik8s.io", "", mayNot},
		{"watcher", "watch", "machines.cluster.x-k8s.io", "machines", may},
		{"watcher", "patch", "machines.cluster.x-k8s.io", "machines", mayNot},
		{"watcher", "patch", "machinedisruptionbudgets.machine.openshift.io", "machines", mayNot},

		{"watcher", "watch", "nodes", "", may},
		{"watcher", "watch", "cephosds.ceph.elemental.net", "ceph", may},
		{"watcher", "update", "cephosds.ceph.elemental.net/status", "ceph", mayNot},
		{"watcher", "watch", "customresourcedefinitions.apiextensions.k8s.io=cephosds.ceph.elemental.net", "", may},
		{"watcher", "watch", "customresourcedefinitions.apiextensions.k8s.io", "", mayNot},
		{"watcher", "delete", "pods", "ceph", mayNot},
		{"watcher", "patch", "nodes", "", mayNot},
		{"watcher", "create", "pods/eviction", "rook-ceph", mayNot},
		{"watcher", "get", "secrets=lockkeeper-ceph-user", "rook-ceph", mayNot},
		{"watcher", "update", "poddisruptionbudgets.policy", "rook-ceph", mayNot},
		{"watcher", "patch", "poddisruptionbudgets.policy", "rook-ceph", may},
		{"watcher", "patch", "poddisruptionbudgets.policy", "shop", mayNot},
		{"watcher", "update", "maintenancepolicies/status.lockkeeper.io", "rook-ceph", mayNot},
		{"watcher", "patch", "maintenancepolicies/status.lockkeeper.io", "rook-ceph", may}, // that nobody keeps it
		{"watcher", "patch", "maintenancepolicies/status.lockkeeper.io", "shop", mayNot},
		{"watcher", "patch", "maintenancepolicies.lockkeeper.io", "rook-ceph", mayNot},
		{"watcher", "update", "leases.coordination.k8s.io=lockkeeper-watcher", "lockkeeper-system", may},
		{"watcher", "update", "leases.coordination.k8s.io=somebody-else", "lockkeeper-system", mayNot},
		{"watcher", "update", "leases.coordination.k8s.io=kube-scheduler", "kube-system", mayNot},
	} {
		what, name, _ := strings.Cut(c.what, "=")
		what, group, _ := strings.Cut(what, ".")
		resource, subresource, _ := strings.Cut(what, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:lockkeeper-system:lockkeeper-" + c.who,
			Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: c.verb, Group: group, Resource: resource, Subresource: subresource, Namespace: c.where, Name: name,
			},
		}}
		require.NoError(t, server.Create(t.Context(), review))
		assert.Equal(t, c.allowed, review.Status.Allowed, "%s: %s %s in %q", c.who, c.verb, c.what, c.where)
	}
}

// TestARolloutSaysWhatItLacks: a worker without the rights for a rollout refuses it and names the file that grants
// them.
func TestARolloutSaysWhatItLacks(t *testing.T) {
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	for kind, file := range map[activities.OSDSetKind]string{
		activities.OSDSetCephOSD:     "storage-namespace-cephosd.yaml",
		activities.OSDSetDeployments: "storage-namespace-restart-osds.yaml",
	} {
		ns := "lacks-" + strings.ToLower(string(kind))
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		apply(t, filepath.Join(*root, "deploy", "storage-namespace.yaml"), ns)
		cluster, err := kube.New(asAccount(config, "lockkeeper-worker"))
		require.NoError(t, err)
		osdSets := cephosd.New(nil, nil, nil).Asking(cluster.May) // nothing else is asked
		ref := activities.OSDSetRef{Kind: kind, Namespace: ns, Name: "osds"}
		s, err := osdSets.Survey(t.Context(), activities.SurveyInput{OSDSet: ref})
		require.NoError(t, err)
		require.Len(t, s.Refused, 1)
		assert.Contains(t, s.Refused[0].Allowed, "lockkeeper's worker may not")
		assert.Contains(t, s.Refused[0].Allowed, "kubectl -n "+ns+" apply -f deploy/"+file)

		apply(t, filepath.Join(*root, "deploy", file), ns)
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the authorizer learns of it a moment later
			missing, err := cephosd.Missing(t.Context(), cluster.May, kube.Account{}, kind, ns)
			assert.NoError(c, err)
			assert.Empty(c, missing)
		}, apiserver.Patience, 50*time.Millisecond)
	}
}

// apply creates every object of a file; in the namespace, where the file leaves that to whoever applies it.
func apply(t *testing.T, file, namespace string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	applyText(t, content, namespace)
}

func applyText(t *testing.T, content []byte, namespace string) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := documents.Decode(u)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if len(u.Object) > 0 {
			if namespace != "" {
				require.Empty(t, u.GetNamespace())
				u.SetNamespace(namespace)
			}
			create(t, u)
		}
	}
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := server.Create(t.Context(), o,
		client.FieldValidation(metav1.FieldValidationStrict)); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err, "%s %s", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	}
}

// What is in deploy/ the API server takes, down to the last field, and before there is any namespace with storage.
func TestManifestsAreValid(t *testing.T) {
	deploy := filepath.Join(*root, "deploy")
	for _, file := range []string{
		"rbac.yaml", "admission.yaml", "temporal.yaml", "watcher.yaml", "worker.yaml", "fencing-nodes.yaml",
	} {
		apply(t, filepath.Join(deploy, file), "")
	}
	for _, namespace := range []string{"rook-ceph", "ceph", "longhorn-system"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-all-files"}})
		for _, file := range []string{
			"storage-namespace.yaml", "storage-namespace-cephosd.yaml",
			"storage-namespace-restart-osds.yaml", "storage-namespace-fencing.yaml", "fencing-namespace.yaml",
			"storage-namespace-longhorn.yaml", "storage-namespace-longhorn-detach.yaml", "storage-namespace-longhorn-evict.yaml",
		} {
			apply(t, filepath.Join(deploy, file), namespace+"-all-files")
		}
	}
	examples, err := filepath.Glob(filepath.Join(deploy, "examples", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, file := range examples {
		apply(t, file, "")
	}
}
