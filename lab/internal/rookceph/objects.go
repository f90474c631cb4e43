package rookceph

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of Rook's objects.
const (
	configMapConfig    = "rook-config-override"
	configMapEndpoints = "rook-ceph-mon-endpoints"
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

func (c cluster) secrets(id identity) []*corev1.Secret {
	secret := func(name string, data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: meta(name, clusterLabels("rook-ceph")), Type: secretType, StringData: data}
	}
	keyrings := map[string]string{}
	for _, e := range c.entities() {
		keyrings[e.name] = id.keyring(e)
	}
	ids := make([]string, 0, c.topo.Mons)
	for _, m := range c.mons() {
		ids = append(ids, m.id)
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
		secret(secretConfig, map[string]string{
			"mon_host":            c.monHost(),
			"mon_initial_members": strings.Join(ids, ","),
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

func (c cluster) configMaps(id identity) ([]*corev1.ConfigMap, error) {
	endpoints, err := c.monEndpoints()
	if err != nil {
		return nil, err
	}
	return []*corev1.ConfigMap{
		{
			ObjectMeta: meta(configMapConfig, clusterLabels("rook-ceph")),
			Data:       map[string]string{"config": c.config(id.FSID, podPlace())},
		},
		{ObjectMeta: meta(configMapEndpoints, clusterLabels("rook-ceph")), Data: endpoints},
	}, nil
}

// monEndpoints is how everybody, Rook included, finds the monitors.
func (c cluster) monEndpoints() (map[string]string, error) {
	type location struct{ Name, Hostname, Address string }
	var endpoints []string
	nodes := map[string]location{}
	for _, m := range c.mons() {
		endpoints = append(endpoints, fmt.Sprintf("%s=127.0.0.1:%d", m.id, m.port))
		nodes[m.id] = location{Name: m.node, Hostname: m.node, Address: "127.0.0.1"}
	}
	mapping, err := json.Marshal(struct {
		Node map[string]location `json:"node"`
	}{nodes})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"data":     strings.Join(endpoints, ","),
		"mapping":  string(mapping),
		"maxMonId": strconv.Itoa(c.topo.Mons - 1),
	}, nil
}

// with is labels and more labels.
func with(labels, more map[string]string) map[string]string {
	all := maps.Clone(labels)
	maps.Copy(all, more)
	return all
}
