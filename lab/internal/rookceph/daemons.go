package rookceph

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// daemon is one Ceph daemon and what tells it from the others.
type daemon struct {
	kind   string // mon, mgr, osd
	id     string
	labels map[string]string // beyond those of every daemon
	args   []string
	node   string // empty: anywhere
	// port answers as soon as the daemon serves. It is one of the machine's, unless the daemon has an address of its own.
	port       int
	ownAddress bool
	volume     *corev1.Volume // with its data; nil: a folder of the lab
	subPath    string         // of the volume
	// keyring is the Secret with the daemon's key. An OSD has its key on its disk.
	keyring     string
	tolerations []corev1.Toleration
}

func (c cluster) image() string { return image.Name(c.topo.Release()) }

func (d daemon) name() string { return "rook-ceph-" + d.kind + "-" + d.id }

// daemons lists what Deploy starts, in the order in which it is of use to the next.
func (c cluster) daemons() []daemon {
	var all []daemon
	for _, m := range c.mons() {
		all = append(all, c.monDaemon(m))
	}
	all = append(all, c.mgrDaemon())
	if c.topo.OSDPods == instance.OSDPodsNone {
		return all
	}
	for i := range c.topo.OSDs() {
		all = append(all, c.osdDaemon(i))
	}
	return all
}

// monDaemon is bound to its node, if its store is. With a Service it serves at its pod's own address.
func (c cluster) monDaemon(m mon) daemon {
	d := daemon{
		kind: "mon", id: m.id, node: m.node, port: m.port, keyring: secretMonKeyring,
		labels: map[string]string{"mon": m.id, "mon_cluster": Namespace},
	}
	if m.service == "" {
		return d
	}
	d.port, d.ownAddress = portV2, true
	d.args = []string{"--public-addr=" + m.service, "--public-bind-addr=$(ROOK_POD_IP)"}
	store := hostPath(dataVolume, monHostPath(m), corev1.HostPathDirectory)
	if c.topo.MonStorage == instance.MonStoragePVC {
		d.node, d.subPath = "", "data"
		store.VolumeSource = corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: monResource(m)},
		}
	}
	d.volume = &store
	return d
}

// mgrDaemon may run on any node, and leaves an unreachable one after five seconds as Rook has it: nothing of it is
// local.
func (c cluster) mgrDaemon() daemon {
	seconds := int64(5)
	return daemon{
		kind: "mgr", id: mgrName, keyring: secretMgrKeyring,
		labels: map[string]string{"mgr": mgrName, "mgr_role": "active", "instance": mgrName},
		args:   bindArgs(c.mgrPort()),
		tolerations: []corev1.Toleration{{
			Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		}},
	}
}

// osdDaemon is bound to its disk's node and has no tolerations: evicted from a cordoned node, its replacement stays
// Pending.
func (c cluster) osdDaemon(i int) daemon {
	osd := c.topo.OSDs()[i]
	id := strconv.Itoa(osd.ID)
	return daemon{
		kind: "osd", id: id, node: osd.Node, port: c.osdPort(osd.ID),
		labels: map[string]string{
			"ceph-osd-id":            id,
			"osd":                    id,
			"osd-store":              "bluestore",
			"portable":               "false",
			"failure-domain":         osd.Node,
			"topology-location-root": "default",
			"topology-location-zone": osd.Zone,
			"topology-location-host": osd.Node,
		},
		args: append(bindArgs(c.osdPort(osd.ID)),
			"--keyring="+podStateDir+"/osd/ceph-"+id+"/keyring",
			fmt.Sprintf("--crush-location=root=default zone=%s host=%s", osd.Zone, osd.Node)),
	}
}

// bindArgs gives a daemon ports of its own, so that the first of them can be asked whether it serves.
func bindArgs(first int) []string {
	return []string{
		fmt.Sprintf("--ms-bind-port-min=%d", first),
		fmt.Sprintf("--ms-bind-port-max=%d", first+portsPerDaemon-1),
	}
}

func (c cluster) labels(d daemon) map[string]string {
	return with(with(clusterLabels("rook-ceph-"+d.kind), d.labels), map[string]string{
		"ceph_daemon_type":            d.kind,
		"ceph_daemon_id":              d.id,
		"app.kubernetes.io/component": "cephclusters.ceph.rook.io",
		"app.kubernetes.io/name":      "ceph-" + d.kind,
		"app.kubernetes.io/instance":  d.id,
	})
}

func (c cluster) deployment(d daemon) *appsv1.Deployment {
	one, history := int32(1), int32(3)
	labels := c.labels(d)
	return &appsv1.Deployment{
		ObjectMeta: meta(d.name(), labels),
		Spec: appsv1.DeploymentSpec{
			Replicas:             &one,
			RevisionHistoryLimit: &history,
			// Two processes must never open one disk.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
				"app": labels["app"], "rook_cluster": Namespace, "ceph_daemon_id": d.id,
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       c.podSpec(d),
			},
		},
	}
}

func (c cluster) podSpec(d daemon) corev1.PodSpec {
	no := false
	spec := corev1.PodSpec{
		// Ceph's addresses are the machine's loopback: daemons without a Service keep theirs over a restart.
		HostNetwork:                  !d.ownAddress,
		AutomountServiceAccountToken: &no,
		Containers:                   []corev1.Container{c.container(d)},
		Volumes:                      c.volumes(d),
		Tolerations:                  d.tolerations,
	}
	if d.node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: d.node}
	}
	if d.ownAddress { // as Rook's are kept apart
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-" + d.kind}},
			}},
		}}
	}
	return spec
}

func (c cluster) container(d daemon) corev1.Container {
	args := []string{"--foreground", "--id=" + d.id}
	if d.keyring != "" {
		args = append(args, "--keyring="+podKeyringDir+"/keyring")
	}
	container := corev1.Container{
		Name:         d.kind,
		Image:        c.image(),
		Command:      []string{c.program("ceph-" + d.kind)},
		Args:         append(args, d.args...),
		VolumeMounts: c.volumeMounts(d),
		Env:          podEnv(),
	}
	if d.port != 0 {
		probe := &corev1.TCPSocketAction{Port: intstr.FromInt(d.port)}
		if !d.ownAddress {
			probe.Host = "127.0.0.1"
			container.Command = append(awaitPort(d.port), container.Command...)
		}
		container.ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: probe}, PeriodSeconds: 1,
		}
	}
	return container
}

// podEnv is the environment of every daemon. An OSD tells Ceph the first three: `ceph osd metadata`.
func podEnv() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: fieldRef("metadata.name")},
		{Name: "POD_NAMESPACE", ValueFrom: fieldRef("metadata.namespace")},
		{Name: "NODE_NAME", ValueFrom: fieldRef("spec.nodeName")},
		{Name: "ROOK_POD_IP", ValueFrom: fieldRef("status.podIP")},
		// Where the monitors are when the container starts, as Rook tells its daemons; and so that a collection of another
		// cluster's settings in the caller's environment does not reach them.
		{Name: "ROOK_CEPH_MON_HOST", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secretConfig}, Key: "mon_host",
		}}},
		{Name: "CEPH_ARGS", Value: "-m $(ROOK_CEPH_MON_HOST)"},
		{Name: "CEPH_CONF", Value: podConfigDir + "/ceph.conf"},
	}
}

// awaitPort is a command that waits until nobody answers at a port and then becomes the command that follows it. The
// pod before may still be ending; an OSD that finds its port taken takes the next ones, where nobody would ask whether
// it serves.
func awaitPort(port int) []string {
	script := fmt.Sprintf(`while (exec 3<>/dev/tcp/127.0.0.1/%d) 2>/dev/null; do sleep 0.05; done; exec "$0" "$@"`, port)
	return []string{"/bin/bash", "-c", script}
}

func fieldRef(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func configVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMapConfig},
		Items:                []corev1.KeyToPath{{Key: "config", Path: "ceph.conf"}},
	}}}
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func hostPath(name, path string, t corev1.HostPathType) corev1.Volume {
	return corev1.Volume{
		Name:         name,
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &t}},
	}
}

// dataVolume is the name of the volume with a daemon's data, which is Rook's.
const dataVolume = "ceph-daemon-data"

func (c cluster) volumes(d daemon) []corev1.Volume {
	volumes := []corev1.Volume{
		configVolume("rook-config-override"),
		// Debian's own folder is closed to all users but Ceph's, so that nothing could be mounted in it.
		emptyDir("ceph-state"),
		hostPath("ceph-daemons-sock-dir", c.path("run"), corev1.HostPathDirectoryOrCreate),
	}
	if d.volume != nil {
		volumes = append(volumes, *d.volume)
	} else {
		volumes = append(volumes, hostPath(dataVolume, c.path(d.kind+"-"+d.id), corev1.HostPathDirectory))
	}
	if d.keyring != "" {
		volumes = append(volumes, corev1.Volume{Name: "keyring", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: d.keyring},
		}})
	}
	return volumes
}

func (c cluster) volumeMounts(d daemon) []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{
		// Not read-only: the mount point of the keyring is made in it.
		{Name: "rook-config-override", MountPath: podConfigDir},
		{Name: "ceph-daemons-sock-dir", MountPath: podRunDir},
		{Name: "ceph-state", MountPath: podStateDir},
		{Name: dataVolume, MountPath: podStateDir + "/" + d.kind + "/ceph-" + d.id, SubPath: d.subPath},
	}
	if d.keyring != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: "keyring", MountPath: podKeyringDir, ReadOnly: true})
	}
	return mounts
}
