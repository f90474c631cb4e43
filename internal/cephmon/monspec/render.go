package monspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// This file renders what a mon is in Kubernetes: a Deployment, a Service if its pod can move, a claim, and before that
// a canary. None of them has an owner: what is deleted together with a CephMon would be the quorum.

// Newcomer is a mon that is to be made.
type Newcomer struct {
	Name string
	FSID string
	// Address is that of its Service, or of its node with hostNetwork. A canary has none.
	Address string
	// Hosts is where the other mons are, as in mon_host.
	Hosts string
	// Zones are those in which a canary may run, and the one of a mon; none without zones.
	Zones []string
	// Node is where a mon has its store, if that is a path of the node, and Host the value of that node's label
	// kubernetes.io/hostname; "": it has none.
	Node, Host string
	// Avoid are nodes on which a canary must not run.
	Avoid []string
	// Instead is the mon that will have left before this one starts, so that the canary may share its node. "": none.
	Instead string
	// Zone is the zone that the mon is made for; "" without zones.
	Zone string
}

// Annotations and labels of what lockkeeper makes for a mon.
const (
	// ZoneAnnotation is the zone for which a mon was made. Labels of nodes change.
	ZoneAnnotation = "lockkeeper.io/mon-zone"
	// TemplateAnnotation is the TemplateHash of a mon's pod.
	TemplateAnnotation = "lockkeeper.io/mon-template"
	// AddressAnnotation is the mon's address in the monmap.
	AddressAnnotation = "lockkeeper.io/mon-address"
	// AvoidAnnotation are the nodes that a canary avoids.
	AvoidAnnotation = "lockkeeper.io/mon-avoid"
)

// Names of ports, volumes and paths in a mon's pod.
const (
	portV2, portV1 = 3300, 6789

	volumeDir  = "/mon-store"
	keyringDir = "/etc/ceph-mon-keyring"
	configDir  = "/etc/ceph"
)

// ResourceName is the name of a mon's Deployment, Service and claim. It is Rook's, so that everybody finds them.
func ResourceName(mon string) string { return "rook-ceph-mon-" + mon }

// CanaryName is the name of a mon's canary.
func CanaryName(mon string) string { return ResourceName(mon) + "-canary" }

// TemplateHash tells which image and resources a mon has: a change of them restarts mons in place. All else of the
// template is that of new mons.
func (s Set) TemplateHash() (string, error) {
	template := &s.Spec.PodTemplate
	text, err := json.Marshal(map[string]any{"image": template.Image, "resources": template.Resources})
	if err != nil {
		return "", fmt.Errorf("spec.podTemplate: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16], nil
}

// AddressOf is a mon's address as the monmap has it: both protocols, at Ceph's own ports.
func AddressOf(ip string) string {
	join := func(port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
	return fmt.Sprintf("[v2:%s,v1:%s]", join(portV2), join(portV1))
}

// selector are the labels by which the policy finds mon pods.
func (s Set) selector() map[string]string {
	if len(s.Selector) == 0 {
		return map[string]string{"app": "rook-ceph-mon"}
	}
	return s.Selector
}

// labels are those of a mon: of the template, of the policy's selector, and Rook's.
func (s Set) labels(mon string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, s.Spec.PodTemplate.Labels)
	maps.Copy(out, s.selector())
	maps.Copy(out, map[string]string{
		"ceph_daemon_id": mon, "ceph_daemon_type": "mon", "mon": mon, "mon_cluster": s.Namespace, "rook_cluster": s.Namespace,
		CephMonLabel: s.Name,
	})
	return out
}

// own are the labels by which one mon's pod is found.
func (s Set) own(mon string) map[string]string {
	out := maps.Clone(s.selector())
	out["ceph_daemon_id"] = mon
	return out
}

// Deployment is a mon.
func (s Set) Deployment(n Newcomer) (*appsv1.Deployment, error) {
	hash, err := s.TemplateHash()
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{AddressAnnotation: n.Address}
	if n.Zone != "" {
		annotations[ZoneAnnotation] = n.Zone
	}
	d := s.deployment(ResourceName(n.Name), s.labels(n.Name), s.own(n.Name), s.podSpec(n))
	d.Annotations = annotations
	d.Spec.Template.Annotations = maps.Clone(s.Spec.PodTemplate.Annotations)
	if d.Spec.Template.Annotations == nil {
		d.Spec.Template.Annotations = map[string]string{}
	}
	d.Spec.Template.Annotations[TemplateAnnotation] = hash
	return d, nil
}

// Canary is a Deployment whose pod is scheduled as the mon's would be, and does nothing. Its labels are such that no
// budget, no Service and no other mon's anti-affinity takes it for a mon. With zones it has no store before its zone is
// known: only then is it known which zone's class makes the volume. Then it is made once more, with the claim, since
// a volume that waits for its first consumer is bound to nobody else.
func (s Set) Canary(n Newcomer) *appsv1.Deployment {
	spec := s.podSpec(n)
	spec.InitContainers = nil
	mon := &spec.Containers[0]
	mon.Name, mon.ReadinessProbe = "canary", nil
	mon.Command = []string{"/bin/sh", "-c", `trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done`}
	mon.Args, mon.Env = nil, nil
	if len(n.Zones) > 0 && n.Zone == "" {
		hasName := func(name string) bool { return name == storeVolume }
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return hasName(v.Name) })
		mon.VolumeMounts = slices.DeleteFunc(mon.VolumeMounts, func(m corev1.VolumeMount) bool { return hasName(m.Name) })
	}
	labels := map[string]string{
		"app": "lockkeeper-mon-canary", CanaryLabel: n.Name, CephMonLabel: s.Name,
	}
	d := s.deployment(CanaryName(n.Name), labels, labels, spec)
	if avoided := Avoided(n.Avoid); avoided != "" {
		d.Annotations = map[string]string{AvoidAnnotation: avoided}
	}
	return d
}

// Avoided is the value of the annotation AvoidAnnotation.
func Avoided(nodes []string) string { return strings.Join(nodes, ",") }

func (s Set) deployment(name string, labels, selector map[string]string, spec corev1.PodSpec) *appsv1.Deployment {
	one, history := int32(1), int32(1)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, RevisionHistoryLimit: &history,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			// Two processes must never open one store.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// Service is the address of a mon whose pod can move. Mons look for each other before any of them is ready.
func (s Set) Service(mon string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: ResourceName(mon), Labels: s.labels(mon)},
		Spec: corev1.ServiceSpec{
			Selector: s.own(mon), PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{
				{Name: "tcp-msgr2", Port: portV2, TargetPort: intstr.FromInt32(portV2), Protocol: corev1.ProtocolTCP},
				{Name: "tcp-msgr1", Port: portV1, TargetPort: intstr.FromInt32(portV1), Protocol: corev1.ProtocolTCP},
			},
		},
	}
}

// Claim is the claim of a mon in a zone; nil: its store is a path of its node.
func (s Set) Claim(mon, zone string) *corev1.PersistentVolumeClaim {
	storage := s.Storage(zone)
	if !storage.Claim {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: ResourceName(mon), Labels: s.labels(mon)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: storage.Class, Resources: storage.Resources,
		},
	}
	if zone != "" {
		claim.Annotations = map[string]string{ZoneAnnotation: zone}
	}
	return claim
}

const storeVolume = "mon-store"

// podSpec is the pod of a mon.
func (s Set) podSpec(n Newcomer) corev1.PodSpec {
	no, template := false, s.Spec.PodTemplate.DeepCopy()
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		HostNetwork: template.HostNetwork, PriorityClassName: template.PriorityClassName,
		ServiceAccountName: template.ServiceAccountName, ImagePullSecrets: template.ImagePullSecrets,
		Affinity: s.affinity(n), Volumes: s.volumes(n),
		InitContainers: []corev1.Container{s.container(n, "make-store", []string{"/bin/sh", "-c", makeStore}, nil)},
	}
	if template.HostNetwork {
		spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	if p := s.Spec.Placement; p != nil {
		spec.Tolerations, spec.TopologySpreadConstraints = p.Tolerations, p.TopologySpreadConstraints
	}
	if n.Host != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Host}
	}
	mon := s.container(n, "mon", []string{"ceph-mon"}, s.args(n))
	mon.Ports = []corev1.ContainerPort{
		{Name: "tcp-msgr2", ContainerPort: portV2, Protocol: corev1.ProtocolTCP},
		{Name: "tcp-msgr1", ContainerPort: portV1, Protocol: corev1.ProtocolTCP},
	}
	// That the port is open says nothing of the quorum; but without it nobody can be there. There is no liveness probe:
	// whoever restarts a mon that waits for others makes it worse.
	mon.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(portV2)}},
		PeriodSeconds: 5,
	}
	spec.Containers = []corev1.Container{mon}
	return spec
}

func (s Set) args(n Newcomer) []string {
	args := []string{
		"--foreground", "--id=" + n.Name, "--fsid=" + n.FSID, "--mon-data=" + volumeDir + "/store",
		"--public-addrv=" + n.Address, "--default-log-to-stderr=true",
		// A mon that finds no keyring where ceph.conf says speaks cephx to others, and refuses all who speak it: it joins,
		// and the first election that needs it fails.
		"--keyring=" + keyringDir + "/keyring",
	}
	if !s.Spec.PodTemplate.HostNetwork {
		args = append(args, "--public-bind-addr=$(POD_IP)") // the address is the Service's
	}
	return append(args, s.Spec.PodTemplate.Args...)
}

func (s Set) container(n Newcomer, name string, command, args []string) corev1.Container {
	template := s.Spec.PodTemplate
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	return corev1.Container{
		Name: name, Image: template.Image, ImagePullPolicy: template.ImagePullPolicy, Command: command, Args: args,
		Resources: template.Resources,
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: field("metadata.name")},
			{Name: "POD_IP", ValueFrom: field("status.podIP")},
			{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")},
			{Name: "CEPH_CONF", Value: configDir + "/ceph.conf"},
			{Name: "CEPH_ARGS"},
			{Name: "MON_ID", Value: n.Name},
			{Name: "FSID", Value: n.FSID},
			{Name: "MON_HOST", Value: n.Hosts},
			{Name: "MON_ADDRESS", Value: n.Address},
			{Name: "VOLUME", Value: volumeDir},
			{Name: "KEYRING", Value: keyringDir + "/keyring"},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: storeVolume, MountPath: volumeDir},
			{Name: "ceph-conf", MountPath: configDir, ReadOnly: true},
			{Name: "keyring", MountPath: keyringDir, ReadOnly: true},
			{Name: "log", MountPath: "/var/log/ceph"},
			{Name: "crash", MountPath: "/var/lib/ceph/crash"},
		},
	}
}

func (s Set) volumes(n Newcomer) []corev1.Volume {
	dir := s.Spec.DataDirHostPath
	store := hostPath(storeVolume, path.Join(dir, "mon-"+n.Name))
	if s.Storage(n.Zone).Claim {
		store.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: ResourceName(n.Name),
		}}
	}
	ceph := s.Spec.Ceph
	return []corev1.Volume{
		store,
		{Name: "ceph-conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ceph.Config.Name},
			Items:                []corev1.KeyToPath{{Key: ceph.Config.Key, Path: "ceph.conf"}},
		}}},
		{Name: "keyring", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: ceph.Keyring.Name, Items: []corev1.KeyToPath{{Key: ceph.Keyring.Key, Path: "keyring"}},
		}}},
		hostPath("log", path.Join(dir, s.Namespace, "log")),
		hostPath("crash", path.Join(dir, s.Namespace, "crash")),
	}
}

func hostPath(name, path string) corev1.Volume {
	create := corev1.HostPathDirectoryOrCreate
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &create},
	}}
}

// affinity is the placement's, with the zones and what keeps mons apart.
func (s Set) affinity(n Newcomer) *corev1.Affinity {
	placement := s.Spec.Placement.DeepCopy()
	if placement == nil {
		placement = &v1alpha1.MonPlacement{}
	}
	a := &corev1.Affinity{
		NodeAffinity: placement.NodeAffinity, PodAffinity: placement.PodAffinity, PodAntiAffinity: placement.PodAntiAffinity,
	}
	if len(n.Zones) > 0 {
		a.NodeAffinity = within(a.NodeAffinity, corev1.NodeSelectorRequirement{
			Key: s.Label(), Operator: corev1.NodeSelectorOpIn, Values: n.Zones,
		})
	}
	for _, node := range n.Avoid {
		a.NodeAffinity = within(a.NodeAffinity, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
		})
	}
	if n.Node != "" && n.Host == "" {
		a.NodeAffinity = within(a.NodeAffinity, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{n.Node},
		})
	}
	if !s.Spec.AllowMultiplePerNode {
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		mons := &metav1.LabelSelector{MatchLabels: s.selector()}
		if n.Instead != "" {
			mons.MatchExpressions = []metav1.LabelSelectorRequirement{{
				Key: "ceph_daemon_id", Operator: metav1.LabelSelectorOpNotIn, Values: []string{n.Instead},
			}}
		}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{LabelSelector: mons, TopologyKey: corev1.LabelHostname})
	}
	return a
}

// within adds a requirement to an affinity. Terms of a node selector are alternatives, so every one of them gets it;
// one without any requirement matches no node, and stays so. A node's name is no label of it, but a field.
func within(a *corev1.NodeAffinity, r corev1.NodeSelectorRequirement) *corev1.NodeAffinity {
	if a == nil {
		a = &corev1.NodeAffinity{}
	}
	add := func(term *corev1.NodeSelectorTerm) {
		if r.Key == metav1.ObjectNameField {
			term.MatchFields = append(term.MatchFields, r)
			return
		}
		term.MatchExpressions = append(term.MatchExpressions, r)
	}
	required := a.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		var only corev1.NodeSelectorTerm
		add(&only)
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{only},
		}
		return a
	}
	for i := range required.NodeSelectorTerms {
		if term := &required.NodeSelectorTerms[i]; len(term.MatchExpressions)+len(term.MatchFields) > 0 {
			add(term)
		}
	}
	return a
}
