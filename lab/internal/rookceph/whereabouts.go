package rookceph

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// This file is about where the monitors are: the objects that say so, as Rook has them, and those who follow when they
// change. Once they are there, they belong to whoever looks after the monitors.

// deployWhereabouts makes the objects that say where the monitors are, unless they are there, and returns the names of
// the monitors that they name.
func (c cluster) deployWhereabouts(ctx context.Context, client kubernetes.Interface) (mons []string, err error) {
	endpoints, err := c.monEndpoints()
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, c.topo.Mons)
	for _, m := range c.mons() {
		ids = append(ids, m.id)
	}
	config := secret(secretConfig, map[string]string{
		"mon_host": c.monHost(), "mon_initial_members": strings.Join(ids, ","),
	})
	_, err = client.CoreV1().Secrets(Namespace).Create(ctx, config, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("secret %s: %w", config.Name, err)
	}
	configMaps := client.CoreV1().ConfigMaps(Namespace)
	for _, m := range []*corev1.ConfigMap{
		{
			ObjectMeta: meta(configMapCSI, clusterLabels("rook-ceph")),
			Data:       map[string]string{csiKey: endpoints[csiKey]},
		},
		{ObjectMeta: meta(configMapEndpoints, clusterLabels("rook-ceph")), Data: endpoints},
	} {
		_, err := configMaps.Create(ctx, m, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("configmap %s: %w", m.Name, err)
		}
	}
	known, err := configMaps.Get(ctx, configMapEndpoints, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	mons, _ = parseEndpoints(known.Data["data"])
	return mons, c.follow(known)
}

// csiKey is where Rook tells the CSI driver about clusters.
const csiKey = "csi-cluster-config-json"

// monEndpoints is how everybody, Rook included, finds the monitors.
func (c cluster) monEndpoints() (map[string]string, error) {
	type location struct{ Name, Hostname, Address string }
	var endpoints, addresses []string
	nodes := map[string]location{}
	for _, m := range c.mons() {
		endpoints, addresses = append(endpoints, m.id+"="+m.endpoint()), append(addresses, m.endpoint())
		nodes[m.id] = location{Name: m.node, Hostname: m.node, Address: "127.0.0.1"}
	}
	mapping, err := json.Marshal(struct {
		Node map[string]location `json:"node"`
	}{nodes})
	if err != nil {
		return nil, err
	}
	csi, err := json.Marshal([]struct {
		ClusterID string   `json:"clusterID"`
		Monitors  []string `json:"monitors"`
		Namespace string   `json:"namespace"`
	}{{Namespace, addresses, Namespace}})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"data":     strings.Join(endpoints, ","),
		"mapping":  string(mapping),
		"maxMonId": strconv.Itoa(c.topo.Mons - 1),
		csiKey:     string(csi),
	}, nil
}

// parseEndpoints takes "a=127.128.0.10:6789,b=…" apart.
func parseEndpoints(data string) (mons, addresses []string) {
	for _, endpoint := range strings.Split(data, ",") {
		if name, address, ok := strings.Cut(strings.TrimSpace(endpoint), "="); ok {
			mons, addresses = append(mons, name), append(addresses, address)
		}
	}
	return mons, addresses
}

// Follow has ceph.conf on the machine name the monitors where they are, until ctx ends: `ceph`, the load, and whoever
// else starts with it.
func Follow(ctx context.Context, client kubernetes.Interface, inst instance.Instance, topo instance.Topology) error {
	c := cluster{inst: inst, topo: topo}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, configMapEndpoints).String()
		}))
	changed := func(o any) {
		if err := c.follow(o.(*corev1.ConfigMap)); err != nil {
			slog.Warn("ceph.conf does not follow the monitors", "error", err)
		}
	}
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

// follow replaces ceph.conf as a whole, if it names others. Endpoints without a monitor are a mistake that is not
// followed.
func (c cluster) follow(endpoints *corev1.ConfigMap) error {
	_, addresses := parseEndpoints(endpoints.Data["data"])
	if len(addresses) == 0 {
		return fmt.Errorf("ConfigMap %s names no monitor: %q", configMapEndpoints, endpoints.Data["data"])
	}
	id, err := c.loadIdentity()
	if err != nil {
		return err
	}
	monHost := strings.Join(addresses, ",")
	if data, _ := c.monEndpoints(); data["data"] == endpoints.Data["data"] {
		monHost = c.monHost() // where they were made: it tells the protocols, too
	}
	text, path := c.config(id.FSID, monHost, c.machinePlace()), AdminConfig(c.inst)
	if now, err := os.ReadFile(path); err == nil && string(now) == text {
		return nil
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// CephMonManifest is the file with a CephMon that takes the monitors over.
func CephMonManifest(inst instance.Instance) string { return inst.Path("ceph", "cephmon.yaml") }

// writeCephMon writes what a person would write to have the monitors looked after, and left as they are.
func (c cluster) writeCephMon() error {
	spec := map[string]any{
		"policy": Namespace, "count": c.topo.Mons, "podTemplate": map[string]any{"image": c.image()},
	}
	if c.topo.MonStorage == instance.MonStoragePVC {
		spec["volumeClaimTemplate"] = map[string]any{"spec": map[string]any{
			"resources": map[string]any{"requests": map[string]any{"storage": monVolumeSize}},
		}}
	}
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "lockkeeper.io/v1alpha1", "kind": "CephMon",
		"metadata": map[string]any{"name": "mons", "namespace": Namespace}, "spec": spec,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(CephMonManifest(c.inst), manifest, 0o600)
}
