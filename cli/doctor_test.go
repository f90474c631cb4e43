package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// installation is a world as the doctor sees it.
type installation struct {
	*world
	kubeVersion     string
	crd             string
	reviewAway      error
	foreign, second string
	endpoints       string
	endpointsAway   error
	cephOSDCRD      string
	noCephOSDs      bool
	cephOSDsAway    error
	problems        []machines.Problem
	machinesAway    error
	guard           kube.DeletionGuard
	guards          map[string]bool
	guardAway       error
	karpenter       kube.Karpenter
	karpenterAway   error
}

func newInstallation() *installation {
	w := newWorld()
	w.policy.Spec.Ceph.Connection.Credentials.Name = "lockkeeper-ceph-user"
	return &installation{
		world: w, kubeVersion: "v1.37.1", endpoints: "a=10.0.0.1:6789",
	}
}

func (i *installation) ServerVersion(context.Context) (string, error) {
	return i.kubeVersion, i.kubeAway
}

func answer(no string) storage.Answer { return storage.Answer{OK: no == "", Reason: no} }

func (i *installation) CRD(_ context.Context, name kube.CRD) (bool, storage.Answer, error) {
	if name == kube.CephOSDCRD {
		return !i.noCephOSDs, answer(i.cephOSDCRD), i.kubeAway
	}
	return i.crd == "", answer(i.crd), i.kubeAway
}

func (i *installation) CephOSDs(context.Context, string) ([]cephv1alpha1.CephOSD, error) {
	if i.cephOSD.CephOSD == nil {
		return nil, i.cephOSDsAway
	}
	return []cephv1alpha1.CephOSD{*i.cephOSD.CephOSD}, i.cephOSDsAway
}

// with gives the installation a CephOSD whose rollout reported something.
func (i *installation) with(status cephv1alpha1.CephOSDStatus) {
	i.cephOSD = podspec.Set{CephOSD: cephOSD()}
	i.cephOSD.Status = status
}

// newPod is a pod of a CephOSD of which nobody knows the number yet.
func newPod(labels map[string]string) storageview.Pod {
	labels[podspec.OwnerLabel] = podspec.Owner("osds")
	return storageview.Pod{Name: "osd-node-a-sda-abc", OSD: storageview.NoOSD, Labels: labels}
}

func (i *installation) May(ctx context.Context, who kube.Account, r kube.Right) (bool, error) {
	if who != (kube.Account{}) && i.reviewAway != nil {
		return false, i.reviewAway
	}
	return i.world.May(ctx, who, r)
}

func (i *installation) ForeignBudget(context.Context, *v1alpha1.MaintenancePolicy) (string, error) {
	return i.foreign, i.kubeAway
}

func (i *installation) Karpenter(context.Context, *v1alpha1.MaintenancePolicy) (kube.Karpenter, error) {
	return i.karpenter, cmp.Or(i.karpenterAway, i.kubeAway)
}

func (i *installation) Second(context.Context, *v1alpha1.MaintenancePolicy) (storage.Answer, error) {
	return answer(i.second), i.kubeAway
}

func (i *installation) DeletionGuard(context.Context) (kube.DeletionGuard, error) {
	return i.guard, cmp.Or(i.guardAway, i.kubeAway)
}

func (i *installation) GuardingBudgets(context.Context, *v1alpha1.MaintenancePolicy) (map[string]bool, error) {
	return i.guards, i.kubeAway
}

// guarded gives the installation the guard of deletions, in the namespace of its policy.
func (i *installation) guarded() {
	const text = "!(request.userInfo.username in ['system:serviceaccount:lockkeeper-system:lockkeeper-worker', " +
		"'system:serviceaccount:lockkeeper-system:lockkeeper-watcher'])"
	i.guards = map[string]bool{kube.DaemonOSD: true, kube.DaemonOSDProved: true, kube.DaemonMon: true}
	i.guard = kube.DeletionGuard{}
	for _, name := range kube.GuardPolicies {
		i.guard.Policies = append(i.guard.Policies, kube.GuardPolicy{Name: name, Conditions: text})
		b := kube.GuardBinding{Name: name + "-rook-ceph", Policy: name, Namespace: "rook-ceph", Actions: []string{"Deny"}}
		if name == kube.GuardOfDeletions {
			b.Reads, b.WithoutBudgets = "rook-ceph", "Allow"
		}
		if name == kube.GuardOfServers {
			b.Name, b.Namespace, b.WithoutBudgets, b.Actions = name, "", "Allow", []string{"Warn"}
		}
		i.guard.Bindings = append(i.guard.Bindings, b)
	}
}

func (i *installation) MonEndpoints(context.Context, *v1alpha1.MaintenancePolicy) (string, error) {
	return i.endpoints, i.endpointsAway
}

// TestDoctor: each thing that can be missing or wrong is found, and the doctor says how to mend it.
func TestDoctor(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*installation)
		broken  []string // checks that find something broken, in order
		says    string   // in the first of them, or in the first finding that is not ok
		remedy  string
	}{
		"nothing": {func(*installation) {}, nil, "", ""},
		"Kubernetes away": {
			func(i *installation) { i.kubeAway = errors.New("connection refused") },
			[]string{"Kubernetes"},
			"does not answer: connection refused", "kubectl version",
		},
		"Kubernetes too old": {
			func(i *installation) { i.kubeVersion = "v1.26.3" },
			[]string{"Kubernetes"},
			"is v1.26.3: budgets need unhealthyPodEvictionPolicy", "upgrade it to 1.27 or newer",
		},
		"API missing": {
			func(i *installation) { i.crd = "CustomResourceDefinition x is missing" },
			[]string{"API"},
			"is missing", "kubectl apply -f deploy/crds",
		},
		"no policy": {
			func(i *installation) { i.policy = nil },
			[]string{"policies"},
			"no storage is guarded",
			"deploy/examples/maintenancepolicy.yaml",
		},
		"window that makes no sense": {
			func(i *installation) { i.restartWindow("0 25 * * *") },
			[]string{"policies"},
			`rook-ceph/rook-ceph: spec.ceph.restartWindows[0].schedule: "0 25 * * *": must be`, "mend it",
		},
		"fencing": {func(i *installation) {
			i.policy.Spec.Fencing.API = v1alpha1.FencingClusterAPI
			i.problems = []machines.Problem{{Message: "2 of 6 nodes have none", Remedy: "mend it"}}
		}, nil, "rook-ceph/rook-ceph: 2 of 6 nodes have none", "mend it"},
		"fencing not held": {func(i *installation) {
			i.policy.Spec.Fencing.API = v1alpha1.FencingClusterAPI
			i.problems = []machines.Problem{{Broken: true, Message: "it never acts on one", Remedy: "raise its limit"}}
		}, []string{"fencing"}, "rook-ceph/rook-ceph: it never acts on one", "raise its limit"},
		"fencing not known": {func(i *installation) {
			i.policy.Spec.Fencing.API, i.machinesAway = v1alpha1.FencingOpenShift, errors.New("machines is forbidden")
		}, nil, "how nodes are fenced: machines is forbidden", ""},
		"Karpenter": {func(i *installation) {
			i.karpenter.Nodes = []string{"node-a", "node-b"}
		}, nil, "", ""},
		"Karpenter passes over daemons": {
			func(i *installation) {
				i.karpenter = kube.Karpenter{Nodes: []string{"node-a"}, Tolerant: []string{"osd-0", "osd-1"}}
			},
			[]string{"Karpenter"},
			"rook-ceph/rook-ceph: osd-0, osd-1 tolerate Karpenter's taint karpenter.sh/disrupted", "by their keys",
		},
		"Karpenter has a deadline": {
			func(i *installation) {
				i.karpenter = kube.Karpenter{Nodes: []string{"node-a"}, Hurried: []string{"node-a"}}
			}, nil,
			"rook-ceph/rook-ceph: Karpenter gives the pods on node-a a terminationGracePeriod", "deploy/guard-deletions",
		},
		"Karpenter not known": {
			func(i *installation) { i.karpenterAway = errors.New("nodeclaims is forbidden") }, nil,
			"what Karpenter passes over: nodeclaims is forbidden", "",
		},
		"no selector": {
			func(i *installation) { i.podsErr = fmt.Errorf("%w: \"in\" is no operator", kube.ErrSelector) },
			[]string{"daemons"},
			"rook-ceph/rook-ceph: spec.ceph.osds.selector: \"in\" is no operator", "mend spec.ceph.osds.selector",
		},
		"pods not listed": {
			func(i *installation) { i.podsErr = errors.New("forbidden") },
			nil, "which pods are OSDs: forbidden", "",
		},
		"no pods": {
			func(i *installation) { i.pods = nil },
			[]string{"daemons"},
			"rook-ceph/rook-ceph: spec.ceph.osds.selector matches no pod in rook-ceph", "--show-labels",
		},
		"pods without number": {
			func(i *installation) { i.pods[0].OSD = storageview.NoOSD },
			[]string{"daemons"},
			`rook-ceph-osd-0-x carry no OSD's number in the label "ceph-osd-id"`, "spec.ceph.osds.idLabel",
		},
		"new pod of a CephOSD": {
			func(i *installation) { i.pods = append(i.pods, newPod(map[string]string{})) }, nil,
			`osd-node-a-sda-abc do not say yet which OSDs they are: no label "ceph-osd-id"`,
			"kubectl -n rook-ceph label pod POD ceph-osd-id=N",
		},
		"idLabel of others": {func(i *installation) {
			i.policy.Spec.Ceph.OSDs.IDLabel = "osd"
			i.pods = append(i.pods, newPod(map[string]string{podspec.IDLabel: "4"}))
		}, []string{"daemons"}, `osd-node-a-sda-abc carry no OSD's number in the label "osd"`, "mend spec.ceph.osds.idLabel"},
		"no kind CephOSD": {func(i *installation) {
			i.noCephOSDs, i.cephOSDCRD = true,
				"CustomResourceDefinition y is missing"
		}, nil, "", ""},
		"old kind CephOSD": {func(i *installation) {
			i.cephOSDCRD = "CustomResourceDefinition y is older than this program"
		}, []string{"API"}, "is older than this program", "kubectl apply -f deploy/crds"},
		"CephOSDs not known": {
			func(i *installation) { i.cephOSDsAway = errors.New("cephosds is forbidden") }, nil,
			"which CephOSDs there are: cephosds is forbidden", "",
		},
		"CephOSD fine": {func(i *installation) {
			i.with(cephv1alpha1.CephOSDStatus{ObservedGeneration: 4, Progress: "6/6", Reason: "Done"})
		}, nil, "", ""},
		"CephOSD behind": {
			func(i *installation) { i.with(cephv1alpha1.CephOSDStatus{ObservedGeneration: 3}) },
			[]string{"CephOSDs"},
			"ceph/osds: nobody has looked at its generation 4, only at 3, and no rollout runs",
			"rollout restart deployment lockkeeper-watcher",
		},
		"CephOSD unseen": {
			func(i *installation) { i.with(cephv1alpha1.CephOSDStatus{}) },
			[]string{"CephOSDs"},
			"ceph/osds: nobody has ever looked at it, and no rollout runs", "lockkeeper update-osds ceph/osds",
		},
		"CephOSD at work": {func(i *installation) {
			i.with(cephv1alpha1.CephOSDStatus{ObservedGeneration: 3})
			i.jobs[updateID] = []Job{rollingOut()}
		}, nil, "", ""},
		"CephOSD refused": {func(i *installation) {
			i.with(cephv1alpha1.CephOSDStatus{
				ObservedGeneration: 4, Reason: "Refused",
				Refused: []cephv1alpha1.Refusal{{Field: "spec.updateDomain", Value: "Shelf", Message: "must be OSD or Host"}},
			})
		}, []string{"CephOSDs"}, `ceph/osds makes no sense, so nothing is touched: spec.updateDomain: "Shelf": must be OSD or Host`, "kubectl -n ceph edit cephosd osds"},
		"CephOSD with an unknown host": {
			func(i *installation) {
				i.with(cephv1alpha1.CephOSDStatus{
					ObservedGeneration: 4, Reason: "UpToDate",
					Refused: []cephv1alpha1.Refusal{{Field: "spec.storage[0].hosts[2]", Value: "node-q", Message: "must be a node"}},
				})
			}, nil, `so these are left out: spec.storage[0].hosts[2]: "node-q": must be a node`,
			"kubectl -n ceph edit cephosd osds",
		},
		"CephOSD halted": {
			func(i *installation) {
				i.with(cephv1alpha1.CephOSDStatus{
					ObservedGeneration: 4,
					Halted: &cephv1alpha1.HaltedStatus{
						Reason: "osd.0 to serve took longer than its deadline",
						Since:  agoMeta(time.Hour),
					},
				})
			},
			[]string{"CephOSDs"},
			"ceph/osds has halted since 02:00:00 (60m): osd.0 to serve took longer than its deadline",
			"lockkeeper status ceph/osds",
		},
		"second policy": {
			func(i *installation) { i.second = "MaintenancePolicy rook-ceph/a was first" },
			[]string{"precedence"},
			"MaintenancePolicy rook-ceph/a was first",
			"kubectl -n rook-ceph delete maintenancepolicy rook-ceph",
		},
		"foreign budget": {
			func(i *installation) { i.foreign = "PodDisruptionBudget rook-ceph/rook-ceph-osd also covers" },
			[]string{"other budgets"},
			"PodDisruptionBudget rook-ceph/rook-ceph-osd", "managePodBudgets: false",
		},
		"guarded": {(*installation).guarded, nil, "", ""},
		"Kubernetes too old for the guard": {
			func(i *installation) { i.kubeVersion = "v1.29.4" }, nil,
			"Kubernetes is v1.29.4, which has no ValidatingAdmissionPolicies", "upgrade it to 1.30 or newer",
		},
		"guard not known": {
			func(i *installation) { i.guardAway = errors.New("validatingadmissionpolicies is forbidden") }, nil,
			"whether deploy/guard-deletions is installed: validatingadmissionpolicies is forbidden", "",
		},
		"guard installed in part": {
			func(i *installation) { i.guarded(); i.guard.Policies = slices.Delete(i.guard.Policies, 1, 2) },
			[]string{"guard of deletions"},
			"only a part of it is installed: there is no ValidatingAdmissionPolicy lockkeeper-guard-budgets",
			"kubectl apply -f deploy/guard-deletions/policy.yaml",
		},
		"guard of another worker": {
			func(i *installation) { i.guarded(); i.guard.Policies[0].Conditions = "'system:serviceaccount:a:b'" },
			[]string{"guard of deletions"},
			"does not know lockkeeper's worker as lockkeeper-system/lockkeeper-worker", "put that account into",
		},
		"guard that does not know the watcher": {
			func(i *installation) {
				i.guarded()
				i.guard.Policies[1].Conditions = "'system:serviceaccount:lockkeeper-system:lockkeeper-worker'"
			},
			[]string{"guard of deletions"},
			"lockkeeper-guard-budgets does not know lockkeeper's watcher as lockkeeper-system/lockkeeper-watcher",
			"put that account into",
		},
		"guard that does not tell what API servers know": {
			func(i *installation) { i.guarded(); i.guard.Bindings = slices.Delete(i.guard.Bindings, 3, 4) },
			[]string{"guard of deletions"},
			"one that is late may let go in two failure domains", "policy.yaml",
		},
		"guard that was taken away": {
			breakIt: func(i *installation) {
				i.guarded()
				i.guard = kube.DeletionGuard{Policies: i.guard.Policies[3:], Bindings: i.guard.Bindings[3:]}
			},
		},
		"guard that refuses kubelets": {
			func(i *installation) { i.guarded(); i.guard.Bindings[0].WithoutBudgets = "Deny" },
			[]string{"guard of deletions"},
			"refuses kubelets and the end of the namespace, too (parameterNotFoundAction: Deny)", "namespace.yaml",
		},
		"guard whose budgets are only watched": {
			func(i *installation) { i.guarded(); i.guard.Bindings[1].Actions = []string{"Audit"} },
			[]string{"guard of deletions"},
			"what decides about them is not", "namespace.yaml",
		},
		"guard in no namespace": {
			func(i *installation) { i.guarded(); i.guard.Bindings = i.guard.Bindings[3:] }, nil,
			"rook-ceph/rook-ceph: nothing guards its namespace",
			"kubectl apply -f deploy/guard-deletions/namespace.yaml",
		},
		"guard by budgets of elsewhere": {
			func(i *installation) { i.guarded(); i.guard.Bindings[0].Reads = "ceph" },
			[]string{"guard of deletions"},
			`lockkeeper-guard-deletions-rook-ceph guards rook-ceph by the budgets of "ceph"`, "namespace.yaml",
		},
		"guard without guarded budgets": {
			func(i *installation) { i.guarded(); i.guard.Bindings = slices.Delete(i.guard.Bindings, 1, 2) },
			[]string{"guard of deletions"},
			"what decides about them is not", "namespace.yaml",
		},
		"guard without guarded overrides": {
			func(i *installation) { i.guarded(); i.guard.Bindings = slices.Delete(i.guard.Bindings, 2, 3) },
			[]string{"guard of deletions"},
			"what decides about them is not", "namespace.yaml",
		},
		"guard without a policy": {
			func(i *installation) {
				i.guarded()
				i.guard.Bindings = append(i.guard.Bindings, kube.GuardBinding{
					Name: "x", Policy: kube.GuardOfDeletions, Namespace: "shop", Reads: "shop",
				})
			}, nil,
			`ValidatingAdmissionPolicyBinding x guards nothing: there is no MaintenancePolicy in "shop"`,
			"kubectl delete validatingadmissionpolicybinding x",
		},
		"guard that warns": {
			func(i *installation) { i.guarded(); i.guard.Bindings[0].Actions = []string{"Warn", "Audit"} }, nil,
			"the guard says Warn and Audit and refuses nothing", "validationActions: [Deny]",
		},
		"guard without budgets": {
			func(i *installation) { i.guarded(); i.guards = nil },
			[]string{"guard of deletions"},
			"its OSDs are not guarded", "spec.ceph.managePodBudgets is false",
		},
		"guard with one budget": {
			func(i *installation) { i.guarded(); delete(i.guards, kube.DaemonOSD) }, nil,
			"lockkeeper-rook-ceph-osd is missing: the other one decides for all OSDs", "lockkeeper status",
		},
		"guard of older budgets": {
			func(i *installation) { i.guarded(); i.guards[kube.DaemonOSD] = false },
			[]string{"guard of deletions"},
			"lockkeeper-rook-ceph-osd does not carry the label lockkeeper.io/guards=deletions", "cordon a storage node",
		},
		"guard without mons": {
			func(i *installation) { i.guarded(); i.guards[kube.DaemonMon] = false }, nil,
			"its mons are not guarded: their pods do not tell which mon they are", "ceph_daemon_id",
		},
		"guard with mons that may go at any time": {
			func(i *installation) {
				i.guarded()
				delete(i.guards, kube.DaemonMon)
				i.policy.Spec.Ceph.AllowMonQuorumLoss = true
			}, nil,
			"its mons are not guarded: spec.ceph.allowMonQuorumLoss lets one or two mons go", "at least three mons",
		},
		"guard without a budget of the mons": {
			func(i *installation) { i.guarded(); delete(i.guards, kube.DaemonMon) }, nil,
			"its mons are not guarded: there is no budget that decides (lockkeeper-rook-ceph-mon)", "lockkeeper status",
		},
		"no mon addresses": {func(i *installation) {
			i.endpointsAway = errors.New(`configmaps "rook-ceph-mon-endpoints" not found`)
		}, []string{"addresses of the mons"}, "not found", "spec.ceph.connection.monEndpoints"},
		"odd mon addresses": {
			func(i *installation) { i.endpoints = "a=10.0.0.1:port" },
			[]string{"addresses of the mons"},
			"10.0.0.1:port", "spec.ceph.connection.monEndpoints",
		},
		"worker without a right": {
			func(i *installation) {
				i.mayNot = func(who kube.Account, r kube.Right) bool { return who.Name == workerAccount && r.Resource == "secrets" }
			},
			[]string{"rights of watcher and worker"},
			"lockkeeper-system/lockkeeper-worker may not get secrets lockkeeper-ceph-user in rook-ceph",
			"kubectl apply -f deploy/rbac.yaml; a ConfigMap or Secret",
		},
		"watcher without a right": {
			func(i *installation) {
				i.mayNot = func(who kube.Account, r kube.Right) bool { return who.Name == watcherAccount && r.Resource == "leases" }
			},
			[]string{"rights of watcher and worker"},
			"lockkeeper-system/lockkeeper-watcher may not create leases.coordination.k8s.io in lockkeeper-system",
			"kubectl apply -f deploy/rbac.yaml",
		},
		"CephOSD without rights": {
			func(i *installation) {
				i.with(cephv1alpha1.CephOSDStatus{ObservedGeneration: 4, Progress: "6/6", Reason: "Done"})
				i.mayNot = func(who kube.Account, r kube.Right) bool {
					return who.Name == workerAccount && r.Namespace == "ceph" && (r.Verb == "create" || r.Verb == "delete")
				}
			},
			[]string{"rights for OSDs"},
			"ceph: the OSDs of its CephOSDs cannot be made or replaced: lockkeeper's worker may " +
				"not create pods in ceph, delete pods in ceph", "kubectl -n ceph apply -f deploy/storage-namespace-cephosd.yaml",
		},
		"restart without rights": {
			func(i *installation) {
				i.jobs[jobs.RestartOSDs.ID("rook-ceph")] = []Job{rollingOut()}
				i.mayNot = func(who kube.Account, r kube.Right) bool {
					return who.Name == workerAccount && r.Resource == "deployments" && r.Verb == "patch"
				}
			},
			[]string{"rights for OSDs"},
			"rook-ceph: restart-osds cannot restart anything: lockkeeper's worker may not patch " +
				"deployments.apps in rook-ceph", "kubectl -n rook-ceph apply -f deploy/storage-namespace-restart-osds.yaml",
		},
		"rights not known": {
			func(i *installation) { i.reviewAway = errors.New("subjectaccessreviews is forbidden") }, nil,
			"what lockkeeper-watcher may do: subjectaccessreviews is forbidden", "",
		},
		"own right missing": {func(i *installation) {
			i.mayNot = func(who kube.Account, r kube.Right) bool { return who.Name == "" && r.Resource == "pods" }
		}, nil, "you may not list pods", "--namespace"},
		"watcher never ran": {
			func(i *installation) { i.watcher = kube.Watcher{} },
			[]string{"watcher"},
			"has never run: there is no Lease lockkeeper-watcher in lockkeeper-system", "deploy/watcher.yaml",
		},
		"watcher stopped": {
			func(i *installation) { i.watcher.Holder = "" },
			[]string{"watcher"},
			"does not run: it was stopped", "lockkeeper watch",
		},
		"watcher gone": {
			func(i *installation) { i.watcher.Renewed = ago(time.Hour) },
			[]string{"watcher"},
			"watcher-1 has not renewed its Lease since 02:00:00 (60m)", "lockkeeper watch",
		},
		"Temporal away": {func(i *installation) {
			i.temporalDown = fmt.Errorf("ask: %w at 127.0.0.1:7233 (set by TEMPORAL_ADDRESS)", ErrAway)
		}, []string{"Temporal"}, "Temporal does not answer at 127.0.0.1:7233", "TEMPORAL_ADDRESS"},
		"Temporal too old": {
			func(i *installation) { i.version = "1.24.0" },
			[]string{"Temporal"},
			"is 1.24.0: jobs need update-with-start", "upgrade it to 1.28 or newer",
		},
		"no such namespace": {func(i *installation) {
			i.temporalAway = errors.New(`Temporal at 127.0.0.1:7233 has no namespace "prod" (set by TEMPORAL_NAMESPACE)`)
		}, []string{"Temporal"}, `has no namespace "prod"`, "TEMPORAL_NAMESPACE"},
		"no worker": {
			func(i *installation) { i.workers = 0 },
			[]string{"worker"},
			`nobody polls the task queue "lockkeeper"`, "start lockkeeper-worker",
		},
		"keeper not running": {func(i *installation) {
			i.keeperAway = fmt.Errorf("keeper/rook-ceph/rook-ceph %w",
				ErrNotRunning)
		}, []string{"keepers"}, "keeper/rook-ceph/rook-ceph does not run", "temporal workflow start --type Keeper"},
		"keeper in trouble": {
			func(i *installation) { i.keeper.Trouble = "update: conflict" },
			[]string{"keepers"},
			"could not do all that it wanted: update: conflict", "lockkeeper history keeper/rook-ceph/rook-ceph",
		},
		"Ceph away": {func(i *installation) {
			i.keeper.View = storage.View{Unavailable: "no quorum answers: timed out"}
			i.keeper.Decision.Reason = "StorageUnavailable"
		}, []string{"storage clusters"}, "rook-ceph/rook-ceph: does not answer: no quorum answers", "app=rook-ceph-mon"},
		"Ceph's secret": {func(i *installation) {
			i.keeper.View = storage.View{
				Unavailable: `spec.ceph.connection.credentials: secrets "x" not found`, Cause: storage.CauseCredentials,
			}
		}, []string{"storage clusters"}, `secrets "x" not found`, "spec.ceph.connection.credentials"},
		"Ceph's key": {func(i *installation) {
			i.keeper.View = storage.View{
				Unavailable: "ceph connect: the monitors refuse client.x: its key is wrong", Cause: storage.CauseCredentials,
			}
		}, []string{"storage clusters"}, "its key is wrong", "a user that Ceph knows, and its key"},
		"Ceph's rights": {func(i *installation) {
			i.keeper.View = storage.View{
				Unavailable: "the Ceph user lacks a right: osd dump: access denied", Cause: storage.CauseRights,
			}
		}, []string{"storage clusters"}, "lacks a right", "deploy/ceph-caps.txt"},
		"librados too old": {
			func(i *installation) {
				i.keeper.View = storage.View{
					Unavailable: "connect to Ceph: the key of client.lockkeeper is of type AES256K, and " +
						"this program runs with librados 18.2.7, which cannot read it: use librados 20.2.4 or newer",
					Cause: storage.CauseLibrary,
				}
				i.keeper.Decision.Reason = "StorageUnavailable"
			},
			[]string{"storage clusters"},
			"librados 18.2.7, which cannot read it",
			"run a worker whose image has that librados",
		},
		"Ceph of an untried release": {
			func(i *installation) { i.keeper.View.Version = "19" }, nil,
			"rook-ceph/rook-ceph: its mons are of Ceph 19, which nobody has tried; tested are 16, 18, 20",
			"docs/ceph-releases.md",
		},
		"Ceph of a tried release": {func(i *installation) { i.keeper.View.Version = "18" }, nil, "", ""},
		"mons that do not commit": {
			func(i *installation) {
				i.keeper.View.Notes = []string{"no mon that is in quorum is let go, since the mons do not commit anything: denied"}
			}, nil, "rook-ceph/rook-ceph: no mon that is in quorum is let go", "deploy/ceph-caps.txt",
		},
		"a flag": {
			func(i *installation) {
				i.keeper.View.Notes = []string{storageview.FlagNote + "norecover may keep data"}
			}, nil,
			"rook-ceph/rook-ceph: the flag norecover", "unset it when whoever set it is done",
		},
		"pods with and without a controller": {
			func(i *installation) {
				i.keeper.View.Marks, i.keeper.View.MonsMixed = &storage.Marks{Mixed: true}, true
			}, nil,
			"some OSD and mon pods have a controller and some have none, so at rest their budget asks for 1000000",
			"silence the alert",
		},
		"odd labels": {
			func(i *installation) { i.keeper.View.Problems = []string{"pod x has no label y"} },
			[]string{"storage clusters"},
			"pod x has no label y", "why-is-it-closed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation()
			c.breakIt(i)
			x, text := examined(t, i)
			var broken []string
			var first Finding
			for _, f := range x.Findings {
				if f.Result == FoundBroken {
					broken = append(broken, f.Check)
				}
				if first == (Finding{}) && f.Result != FoundOK {
					first = f
				}
			}
			assert.Equal(t, c.broken, broken, text)
			assert.Equal(t, len(c.broken) == 0, x.Healthy)
			assert.Contains(t, first.Message, c.says)
			assert.Contains(t, first.Remedy, c.remedy)
			golden(t, "doctor-"+strings.ReplaceAll(name, " ", "-")+".txt", text)
		})
	}
}

func examined(t *testing.T, i *installation) (Diagnosis, string) {
	t.Helper()
	command, out, _ := i.command()
	command.Kubernetes, command.Temporal = i, i
	d := &Doctor{
		Command: command, Installation: i, System: "lockkeeper-system",
		Machines: func(_ context.Context, _ *v1alpha1.MaintenancePolicy, nodes []string) ([]machines.Problem, error) {
			require.NotEmpty(t, nodes)
			return i.problems, i.machinesAway
		},
	}
	x := d.Examine(t.Context())
	x.Write(out)
	return x, out.String()
}

// TestNeededRights: all of deploy/rbac.yaml is asked about, under the names that the policies use.
func TestNeededRights(t *testing.T) {
	i := newInstallation()
	elsewhere := i.policy.DeepCopy()
	elsewhere.Namespace, elsewhere.Spec.Ceph.Connection.MonEndpoints = "ceph-2",
		v1alpha1.KeyReference{Name: "mons", Key: "data"}
	needs, err := neededRights("somewhere", []v1alpha1.MaintenancePolicy{*i.policy, *elsewhere})
	require.NoError(t, err)
	var all []string
	for _, n := range needs {
		assert.Equal(t, "somewhere", n.who.Namespace)
		all = append(all, n.who.Name+" "+n.right.String())
	}
	for _, want := range []string{
		"lockkeeper-watcher watch nodes", "lockkeeper-watcher create leases.coordination.k8s.io in somewhere",
		"lockkeeper-watcher update leases.coordination.k8s.io lockkeeper-watcher in somewhere",
		"lockkeeper-worker create pods/eviction",
		"lockkeeper-watcher patch poddisruptionbudgets.policy in rook-ceph",
		"lockkeeper-watcher patch poddisruptionbudgets.policy in ceph-2",
		"lockkeeper-worker create events in default", "lockkeeper-worker update maintenancepolicies/status.lockkeeper.io",
		"lockkeeper-worker patch poddisruptionbudgets.policy in ceph-2",
		"lockkeeper-worker get configmaps rook-ceph-mon-endpoints in rook-ceph",
		"lockkeeper-worker get configmaps mons in ceph-2", "lockkeeper-worker get secrets lockkeeper-ceph-user in ceph-2",
	} {
		assert.Contains(t, all, want)
	}
}
