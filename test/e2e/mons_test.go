package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestMonsMoveByHand does by hand what a job does with mons, in the lab: each mon on HostPath gives way to one on a
// claim that monspec renders, new before old, until nobody is left whom the first list of mons named. Kubernetes' own
// scheduler and volume binder find their places. Then whoever starts anew finds the mons: an OSD, a client, and a lab
// that was stopped.
func TestMonsMoveByHand(t *testing.T) {
	if !turns.Has("mons moved by hand", 3*time.Minute) {
		return
	}
	t.Parallel()
	m := &handMons{world: &world{name: fmt.Sprintf("e2e-%d-mons", os.Getpid())}, T: t}
	m.makeLab(t, append(slices.Clone(twoNodesPerZone), "--mon-storage", "hostpath", "--temporal=false"))
	defer func() {
		if t.Failed() {
			m.describe(t)
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", m.env["KUBECONFIG"])
	require.NoError(t, err)
	m.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	m.fsid = m.said("ceph", "fsid")
	require.NoError(t, m.run("lab", "load", "start", "--name", m.name))

	for _, step := range []struct{ old, newcomer, class string }{
		{"a", "d", "zone-disk"}, {"b", "e", "static-disk"}, {"c", "f", "zone-disk"},
	} {
		m.set = monspec.Set{Namespace: cephNamespace, Name: "mons", Spec: m.spec(step.class)}
		m.join(step.newcomer, step.old)
		m.leave(step.old)
	}
	require.Equal(t, []string{"d", "e", "f"}, slices.Sorted(maps.Keys(m.quorum())))

	require.NoError(t, m.run("kubectl", "-n", cephNamespace, "rollout", "restart", "deployment/rook-ceph-osd-0",
		"deployment/rook-ceph-mgr-a"))
	require.NoError(t, m.run("kubectl", "-n", cephNamespace, "rollout", "status", "deployment/rook-ceph-osd-0",
		"--timeout=2m"))
	require.NoError(t, m.eventually(time.Minute, `"num_up_osds":6`, "ceph", "osd", "stat", "-f", "json"))
	require.NoError(t, m.run("kubectl", "-n", cephNamespace, "rollout", "status", "deployment/rook-ceph-mgr-a",
		"--timeout=2m"))
	require.NoError(t, m.run("kubectl", "-n", cephNamespace, "exec", "deploy/rook-ceph-mgr-a", "--", "ceph", "--name",
		"mgr.a", "--keyring", "/etc/ceph/keyring-store/keyring", "mon", "dump"), "a client in a pod")
	require.NoError(t, m.run("lab", "load", "stop", "--name", m.name), "no write failed or was lost")
	require.NoError(t, m.run("lab", "load", "start", "--name", m.name))

	require.NoError(t, m.run("lab", "down", "--keep", "--name", m.name))
	require.NoError(t, m.run("lab", "up", "--name", m.name))
	require.Equal(t, []string{"d", "e", "f"}, slices.Sorted(maps.Keys(m.quorum())))
	deployments, err := m.kube.AppsV1().Deployments(cephNamespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=rook-ceph-mon"})
	require.NoError(t, err)
	require.Len(t, deployments.Items, 3, "the lab has not brought the first ones back")
}

// handMons are the mons of a lab, moved by hand.
type handMons struct {
	*world
	*testing.T
	kube kubernetes.Interface
	fsid string
	set  monspec.Set
}

func (m *handMons) spec(class string) v1alpha1.CephMonSpec {
	return v1alpha1.CephMonSpec{
		Count: 3, DataDirHostPath: "/var/lib/rook",
		VolumeClaimTemplate: &v1alpha1.MonVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		},
		Zones:       []v1alpha1.MonZone{{Name: "zone-x"}, {Name: "zone-y"}, {Name: "zone-z"}},
		PodTemplate: v1alpha1.MonPodTemplate{Image: m.image()},
		Ceph: v1alpha1.MonObjects{
			Keyring: v1alpha1.KeyReference{Name: "rook-ceph-mons-keyring", Key: "keyring"},
			Config:  v1alpha1.KeyReference{Name: "rook-config-override", Key: "config"},
		},
	}
}

// image is that of the mons.
func (m *handMons) image() string {
	return m.said("kubectl", "-n", cephNamespace, "get", "deployment", "rook-ceph-mgr-a", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}")
}

// said is what a command printed.
func (m *handMons) said(name string, args ...string) string {
	m.Helper()
	out, err := m.command(name, args...).Output()
	require.NoError(m, err, "%s %v", name, args)
	return strings.TrimSpace(string(out))
}

// quorum are the mons in quorum with their addresses. A commit is asked for before, which all of them have to accept.
func (m *handMons) quorum() map[string]string {
	m.Helper()
	require.NoError(m, m.run("ceph", "--connect-timeout", "20", "config-key", "set", "test/proof", "1"))
	var q ceph.QuorumStatus
	require.NoError(m, json.Unmarshal([]byte(m.said("ceph", "--connect-timeout", "20", "quorum_status")), &q))
	names := map[string]string{}
	for _, mon := range q.MonMap.Mons {
		if slices.Contains(q.QuorumNames, mon.Name) {
			names[mon.Name] = mon.Address()
		}
	}
	return names
}

// join has a canary find a place in the zone of the mon that is to go, and then a mon take it.
func (m *handMons) join(name, old string) {
	m.Helper()
	zone := m.zoneOf("rook-ceph-mon-" + old + "-")
	n := monspec.Newcomer{Name: name, FSID: m.fsid, Zones: []string{zone}}
	m.apply(m.set.Canary(n))
	m.running(monspec.CanaryName(name))
	require.Equal(m, zone, m.zoneOf(monspec.CanaryName(name)))
	n.Zone = zone
	_, err := m.kube.CoreV1().PersistentVolumeClaims(cephNamespace).Create(m.Context(), m.set.Claim(name, zone),
		metav1.CreateOptions{})
	require.NoError(m, err)
	m.apply(m.set.Canary(n))
	require.NoError(m, m.eventually(time.Minute, "^Bound$", "kubectl", "-n", cephNamespace, "get", "pvc",
		monspec.ResourceName(name), "-o", "jsonpath={.status.phase}"))
	m.running(monspec.CanaryName(name))
	require.NoError(m, m.run("kubectl", "-n", cephNamespace, "delete", "deployment", monspec.CanaryName(name)))

	service, err := m.kube.CoreV1().Services(cephNamespace).Create(m.Context(), m.set.Service(name),
		metav1.CreateOptions{})
	require.NoError(m, err)
	require.Regexp(m, `^127\.`, service.Spec.ClusterIP)
	n.Address = monspec.AddressOf(service.Spec.ClusterIP)
	n.Hosts = strings.Join(slices.Collect(maps.Values(m.quorum())), ",")
	d, err := m.set.Deployment(n)
	require.NoError(m, err)
	m.apply(d)
	m.running(monspec.ResourceName(name))
	require.NoError(m, until(time.Minute, func() error {
		if at := m.quorum()[name]; at != n.Address {
			return fmt.Errorf("mon.%s is in quorum at %q, not at %s", name, at, n.Address)
		}
		return nil
	}))
	require.NoError(m, m.run("ceph", "-m", n.Address, "--connect-timeout", "10", "mon", "stat"),
		"a client that knows only it")
	m.saveEndpoints(m.quorum())
}

// apply makes a Deployment, or gives it another template.
func (m *handMons) apply(d *appsv1.Deployment) {
	m.Helper()
	deployments := m.kube.AppsV1().Deployments(cephNamespace)
	if _, err := deployments.Create(m.Context(), d, metav1.CreateOptions{}); err == nil {
		return
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": d.Spec.Template}})
	require.NoError(m, err)
	_, err = deployments.Patch(m.Context(), d.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(m, err)
}

func (m *handMons) running(deployment string) {
	m.Helper()
	require.NoError(m, m.run("kubectl", "-n", cephNamespace, "rollout", "status", "deployment", deployment,
		"--timeout=1m"))
}

// zoneOf is the zone of the one pod whose name begins so.
func (m *handMons) zoneOf(prefix string) string {
	m.Helper()
	pods, err := m.pods()
	require.NoError(m, err)
	for _, p := range pods {
		if strings.HasPrefix(p.Metadata.Name, prefix) && p.Metadata.DeletionTimestamp == "" {
			return m.said("kubectl", "get", "node", p.Spec.NodeName, "-o",
				`jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`)
		}
	}
	require.Fail(m, "no pod", prefix)
	return ""
}

// leave takes a mon out of the monmap, and then its pod. Everybody is told before where the others are.
func (m *handMons) leave(name string) {
	m.Helper()
	rest := m.quorum()
	require.Len(m, rest, 4, "all are in quorum, also after the election that the newcomer was not alone in")
	delete(rest, name)
	m.saveEndpoints(rest)
	require.NoError(m, m.run("ceph", "--connect-timeout", "20", "mon", "rm", name))
	require.NoError(m, until(time.Minute, func() error {
		if left := m.quorum(); len(left) != 3 {
			return fmt.Errorf("without mon.%s are in quorum: %v", name, left)
		}
		return nil
	}))
	for _, kind := range []string{"deployment", "service"} {
		require.NoError(m, m.run("kubectl", "-n", cephNamespace, "delete", kind, monspec.ResourceName(name)))
	}
}

// saveEndpoints writes where the mons are, as Rook does.
func (m *handMons) saveEndpoints(mons map[string]string) {
	m.Helper()
	names := slices.Sorted(maps.Keys(mons))
	var endpoints, addresses []string
	for _, name := range names {
		_, v1, _ := strings.Cut(mons[name], "v1:")
		endpoints, addresses = append(endpoints, name+"="+strings.TrimRight(v1, "]")), append(addresses, mons[name])
	}
	for kind, patch := range map[string]map[string]any{
		"configmap/rook-ceph-mon-endpoints": {"data": map[string]string{"data": strings.Join(endpoints, ",")}},
		"secret/rook-ceph-config": {"stringData": map[string]string{
			"mon_host": strings.Join(addresses, ","), "mon_initial_members": strings.Join(names, ","),
		}},
	} {
		text, err := json.Marshal(patch)
		require.NoError(m, err)
		require.NoError(m, m.run("kubectl", "-n", cephNamespace, "patch", kind, "--type=merge", "-p", string(text)))
	}
}
