package rookceph

import (
	_ "embed"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// cephOSDName is the name of the CephOSD with all OSDs of a lab.
const cephOSDName = "ceph-osds"

// cephOSD is what the operator elemental-lf/ceph-osd-operator makes OSD pods of, and whoever takes over from it.
type cephOSD struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              cephOSDSpec `json:"spec"`
}

type cephOSDSpec struct {
	Storage      []storage              `json:"storage"`
	UpdateDomain string                 `json:"updateDomain"`
	PodTemplate  corev1.PodTemplateSpec `json:"podTemplate"`
}

// storage means every one of these devices on every one of these hosts.
type storage struct {
	Hosts []string `json:"hosts"`
	OSDs  []device `json:"osds"`
}

type device struct {
	Data string `json:"data"`
}

// CephOSDManifest is the file with the CephOSD of a lab that runs no OSDs itself.
func CephOSDManifest(inst instance.Instance) string { return inst.Path("ceph", "cephosd.yaml") }

func (c cluster) writeCephOSD() error {
	manifest, err := yaml.Marshal(c.cephOSD())
	if err != nil {
		return err
	}
	return os.WriteFile(CephOSDManifest(c.inst), manifest, 0o600)
}

func (c cluster) cephOSD() cephOSD {
	all := storage{}
	for _, node := range c.topo.Nodes() {
		all.Hosts = append(all.Hosts, node.Name)
	}
	for _, name := range c.topo.Devices() {
		all.OSDs = append(all.OSDs, device{Data: deviceDir + "/" + name})
	}
	return cephOSD{
		TypeMeta:   metav1.TypeMeta{APIVersion: "ceph.elemental.net/v1alpha1", Kind: "CephOSD"},
		ObjectMeta: metav1.ObjectMeta{Name: cephOSDName, Namespace: Namespace},
		Spec: cephOSDSpec{
			Storage:      []storage{all},
			UpdateDomain: "OSD",
			PodTemplate: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "ceph-osd"}},
				Spec:       c.cephOSDPod(),
			},
		},
	}
}

// cephOSDPod is one template for all OSDs. It knows nothing of the OSD but the variable OSD_DEVICE that each pod is
// given.
func (c cluster) cephOSDPod() corev1.PodSpec {
	no := false
	return corev1.PodSpec{
		HostNetwork:                  true,
		AutomountServiceAccountToken: &no,
		RestartPolicy:                corev1.RestartPolicyAlways,
		Containers:                   []corev1.Container{c.cephOSDContainer()},
		Volumes: []corev1.Volume{
			hostPath("devices", deviceDir, corev1.HostPathDirectory),
			configVolume("ceph-config"),
			// Not the machine's folder of admin sockets: a pod must not take the socket of its predecessor for its own.
			emptyDir("run"),
		},
		// Those that the operator recommends: a bare pod that is evicted would not come back by itself.
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
		},
	}
}

var (
	//go:embed osd-start.sh
	osdStart string
	//go:embed osd-active.pl
	osdActive string
)

func (c cluster) cephOSDContainer() corev1.Container {
	return corev1.Container{
		Name:    "osd",
		Image:   image.Name(c.topo.Release()),
		Command: []string{"/bin/bash", "-c", osdStart},
		Env: append(podEnv(),
			corev1.EnvVar{Name: "CEPH_OSD", Value: c.program("ceph-osd")},
			corev1.EnvVar{Name: "FIRST_PORT", Value: strconv.Itoa(c.osdPort(0))},
			corev1.EnvVar{Name: "PORTS", Value: strconv.Itoa(portsPerDaemon)},
			// Means nothing to anybody. Who wants another template changes it.
			corev1.EnvVar{Name: "UPDATE", Value: "0"},
		),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "devices", MountPath: deviceDir},
			{Name: "ceph-config", MountPath: podConfigDir},
			{Name: "run", MountPath: podRunDir},
		},
		// On every OSD, and all the time while one starts: the ceph command, a Python, would leave no time for anything else.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/usr/bin/perl", "-e", osdActive}}},
			PeriodSeconds:  2,
			TimeoutSeconds: 2,
		},
	}
}
