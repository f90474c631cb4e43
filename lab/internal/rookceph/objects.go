package rookceph

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of Rook's objects.
const (
	configMapConfig    = "rook-config-override"
	configMapEndpoints = "rook-ceph-mon-endpoints"
	configMapCSI       = "rook-ceph-csi-config"
	secretCluster      = "rook-ceph-mon"
	secretConfig       = "rook-ceph-config"
	secretMonKeyring   = "rook-ceph-mons-keyring"
	secretMgrKeyring   = "rook-ceph-mgr-" + mgrName + "-keyring"
	secretClient       = "rook-ceph-client-lockkeeper"

	secretType corev1.SecretType = "kubernetes.io/rook"
)

func clusterLabels(app string) map[string]string {
	return map[string]string{
		"app":                          app,
		"rook_cluster":                 Namespace,
		"app.kubernetes.io/created-by": "rook-ceph-operator",
		"app.kubernetes.io/managed-by": "rook-ceph-operator",
		"app.kubernetes.io/part-of":    Namespace,
	}
}

func meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels}
}

func secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta(name, clusterLabels("rook-ceph")), Type: secretType, StringData: data}
}

func (c cluster) secrets(id identity) []*corev1.Secret {
	keyrings := map[string]string{}
	for _, e := range c.entities() {
		keyrings[e.name] = id.keyring(e)
	}
	return []*corev1.Secret{
		secret(secretCluster, map[string]string{
			"cluster-name":  Namespace,
			"fsid":          id.FSID,
			"ceph-username": "client.admin",
			"ceph-secret":   id.Keys["client.admin"],
			"admin-secret":  id.Keys["client.admin"],
			"mon-secret":    id.Keys["mon."],
		}),
		// The monitors' secret holds the administrator's key, too, as Rook's does.
		secret(secretMonKeyring, map[string]string{"keyring": keyrings["mon."] + keyrings["client.admin"]}),
		secret(secretMgrKeyring, map[string]string{"keyring": keyrings["mgr."+mgrName]}),
		// What Rook's operator makes of a CephClient named lockkeeper.
		secret(secretClient, map[string]string{
			strings.TrimPrefix(ClientName, "client."): id.Keys[ClientName],
			"keyring": keyrings[ClientName],
		}),
	}
}

func (c cluster) configMap(id identity) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: meta(configMapConfig, clusterLabels("rook-ceph")),
		Data:       map[string]string{"config": c.config(id.FSID, "", podPlace())},
	}
}

// with is labels and more labels.
func with(labels, more map[string]string) map[string]string {
	all := maps.Clone(labels)
	maps.Copy(all, more)
	return all
}
