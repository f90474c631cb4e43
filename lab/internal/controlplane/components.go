package controlplane

import (
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Timings that scenarios wait for. A real cluster takes ten times as long; the order of events is the same.
const (
	nodeMonitorGrace  = "4s" // without a lease renewal, until a node is NotReady
	nodeMonitorPeriod = "500ms"
)

// controllers leaves out what needs a cloud, certificates to sign, or bootstrap tokens. It leaves out those of
// endpoints, too: the API server takes no loopback address for one, and all pods have such addresses. Package
// serviceproxy reads Services and pods instead.
var controllers = []string{
	"disruption-controller", "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
	"deployment-controller", "replicaset-controller", "daemonset-controller", "statefulset-controller", "job-controller",
	"cronjob-controller",
	"garbage-collector-controller", "namespace-controller", "ttl-after-finished-controller", "resourcequota-controller",
	"serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
	"clusterrole-aggregation-controller",
	"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller",
	"persistentvolume-expander-controller",
	"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller", "ephemeral-volume-controller",
	"horizontal-pod-autoscaler-controller",
}

func apiserver(inst instance.Instance, binary string) child.Spec {
	pki := func(name string) string { return inst.Path("pki", name) }
	c := component(inst, binary, "kube-apiserver",
		"--etcd-servers=unix://"+etcdSocket(inst),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+strconv.Itoa(inst.Ports.APIServer()),
		"--endpoint-reconciler-type=none", // refuses loopback addresses otherwise
		"--service-cluster-ip-range="+inst.Ports.ServiceCIDR(),
		"--tls-cert-file="+pki(apiserverName+".crt"), "--tls-private-key-file="+pki(apiserverName+".key"),
		"--client-ca-file="+pki(caFile),
		"--kubelet-certificate-authority="+pki(caFile), "--kubelet-client-certificate="+pki(kubeletClientName+".crt"),
		"--kubelet-client-key="+pki(kubeletClientName+".key"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+pki(serviceAccountKeyFile),
		"--service-account-signing-key-file="+pki(serviceAccountKeyFile),
		"--audit-policy-file="+auditPolicyFile(inst), "--audit-log-path="+inst.AuditLog(), "--audit-log-mode=batch",
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--profiling=false",
		// Answer those who drain and watch at once, whatever else goes on: the lab is for measuring them.
		"--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
	)
	c.Env = []string{"GOGC=300"} // processors are scarcer here than memory
	return c
}

func controllerManager(inst instance.Instance, accounts instance.ControllerAccounts, binary string) child.Spec {
	own := accounts == instance.ControllerAccountsOwn
	return component(inst, binary, "kube-controller-manager",
		"--kubeconfig="+inst.Path("pki", "controller-manager.kubeconfig"), "--secure-port=0", "--leader-elect=false",
		"--controllers="+strings.Join(controllers, ","),
		"--use-service-account-credentials="+strconv.FormatBool(own),
		"--service-account-private-key-file="+inst.Path("pki", serviceAccountKeyFile),
		"--root-ca-file="+inst.Path("pki", caFile),
		"--node-monitor-grace-period="+nodeMonitorGrace, "--node-monitor-period="+nodeMonitorPeriod,
		"--node-startup-grace-period=10s",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	)
}

func scheduler(inst instance.Instance, binary string) child.Spec {
	return component(inst, binary, "kube-scheduler",
		"--kubeconfig="+inst.Path("pki", "scheduler.kubeconfig"), "--secure-port=0", "--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	)
}

// component is one of the programs inside our own binary.
func component(inst instance.Instance, binary, name string, args ...string) child.Spec {
	return child.Spec{Name: name, Path: binary, Args: append([]string{name}, args...), Log: inst.Log(name)}
}
