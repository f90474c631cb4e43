package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Version implements Temporal.
func (t *temporalClient) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := t.client.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return info.GetServerVersion(), t.failed("ask for its version", err)
}

// Pollers implements Temporal.
func (t *temporalClient) Pollers(ctx context.Context) (forWorkflows, forActivities int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	counts := map[enumspb.TaskQueueType]int{}
	for _, kind := range []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY} {
		described, err := t.client.DescribeTaskQueue(ctx, workflows.TaskQueue, kind)
		if err != nil {
			return 0, 0, t.failed("look at the task queue "+workflows.TaskQueue, err)
		}
		counts[kind] = len(described.GetPollers())
	}
	return counts[enumspb.TASK_QUEUE_TYPE_WORKFLOW], counts[enumspb.TASK_QUEUE_TYPE_ACTIVITY], nil
}

func (d *Doctor) temporal(ctx context.Context) {
	const remedy = "TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY or TEMPORAL_PROFILE say where it is: " +
		"`temporal workflow list` has to answer. Until it does, the last budgets stay, which is safe, and nobody is granted " +
		"anything"
	v, err := d.Temporal.Version(ctx)
	if err != nil {
		d.found(FoundBroken, err.Error(), remedy)
		d.noTalk = true
		return
	}
	d.version(v, leastTemporal, testedTemporal, "jobs need update-with-start")
	// The namespace is not asked for by its version, but by everything else.
	if _, _, err := d.Temporal.Pollers(ctx); err != nil {
		d.found(FoundBroken, err.Error(), remedy)
		d.noTalk = true
	}
}

func (d *Doctor) worker(ctx context.Context) {
	w, a, err := d.Temporal.Pollers(ctx)
	switch {
	case err != nil:
		d.unknown("whether it runs", err)
	case w == 0 || a == 0:
		d.found(FoundBroken, fmt.Sprintf("nobody polls the task queue %q, so nothing is done", workflows.TaskQueue),
			"start lockkeeper-worker with the same TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE: kubectl -n "+
				d.System+" get pods,deployments; deploy/worker.yaml")
	default:
		d.ok("%d at work", max(w, a))
	}
}

func (d *Doctor) keepers(ctx context.Context) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		k, err := d.Temporal.Keeper(ctx, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name})
		switch {
		case errors.Is(err, ErrNotRunning):
			d.found(FoundBroken, err.Error(), "the watcher starts it within a minute; by hand:\n"+
				fmt.Sprintf(`temporal workflow start --type Keeper --task-queue lockkeeper --workflow-id keeper/%s --input '{"cluster":{"namespace":%q,"name":%q}}'`, name, p.Namespace, p.Name))
		case errors.Is(err, ErrNoWorker):
			d.found(FoundBroken, err.Error(), "start lockkeeper-worker. If one runs, its log says why it does not get on, and "+
				"so does `temporal workflow show --workflow-id keeper/"+name+"`")
		case err != nil:
			d.unknown("keeper/"+name, err)
		case k.Trouble != "":
			d.found(FoundBroken, "keeper/"+name+" could not do all that it wanted: "+k.Trouble,
				"it tries again by itself, at least every 30 s; `lockkeeper history keeper/"+name+" --since 10m` tells what it "+
					"tried")
		case k.Conflict != "":
			d.found(FoundBroken, "keeper/"+name+" cannot protect: "+k.Conflict, "delete the other budget")
		default:
			d.ok("keeper/%s runs; may drain: %s", name, workflows.MayDrain(k.Decision))
		}
	})
}

// storage is what the keepers see of their storage clusters: they, and not whoever asks here, have the credentials.
func (d *Doctor) storage(ctx context.Context) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		k, err := d.Temporal.Keeper(ctx, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name})
		switch {
		case err != nil:
			d.found(FoundUnknown, name+": its keeper does not answer", "")
		case k.Decision.Reason == budget.ReasonSecondPolicy:
			d.found(FoundUnknown, name+": nobody looks, since another policy is in charge", "")
		case k.View.Unavailable != "":
			d.found(FoundBroken, name+": does not answer: "+k.View.Unavailable, d.reach(p, k.View.Cause))
		case len(k.View.Problems) > 0:
			d.found(FoundBroken, name+": "+strings.Join(k.View.Problems, "; "),
				"docs/runbooks/why-is-it-closed.md, Inconsistent")
		case k.Decision.Reason == "":
			d.found(FoundUnknown, name+": its keeper has just begun", "ask again in a moment")
		default:
			d.serves(p, name, &k)
		}
	})
}

// serves tells of a storage cluster that answers.
func (d *Doctor) serves(p *v1alpha1.MaintenancePolicy, name string, k *workflows.KeeperStatus) {
	if k.Kind == storage.Longhorn {
		d.ok("%s: Longhorn %s, %s", name, k.View.Version, describeStorage(k))
		if d.longhorn(name, k); k.Unmoved != "" {
			d.found(FoundWarning, name+": "+k.Unmoved, remedyOf(k.Kind, k.Unmoved))
		}
		return
	}
	d.ok("%s: %s%s", name, d.cephVersion(name, k.View.Version), describeStorage(k))
	for _, note := range k.View.Notes {
		if note != flushRefused(k.View.Notes) { // of which reports tells
			d.found(FoundWarning, name+": "+note, remedyOf(k.Kind, note))
		}
	}
	d.counted(name, k)
	d.reports(p, name, k)
}

// counted warns where budgets at rest look to alerts as if pods were missing. How many pods there should be the API
// server knows of those with a controller; beside others a budget has to name a number that no pods ever reach.
func (d *Doctor) counted(name string, k *workflows.KeeperStatus) {
	var mixed []string
	if k.View.Marks != nil && k.View.Marks.Mixed {
		mixed = append(mixed, "OSD")
	}
	if k.View.MonsMixed {
		mixed = append(mixed, "mon")
	}
	if len(mixed) > 0 {
		d.found(FoundWarning, fmt.Sprintf("%s: some %s pods have a controller and some have none, so at rest their budget "+
			"asks for %d healthy ones, and alerts like KubePdbNotEnoughHealthyPods fire", name, strings.Join(mixed, " and "),
			budget.Everything), "give all of them a controller, or silence the alert for lockkeeper's budgets")
	}
}

// cephVersion puts into words which release of Ceph the mons are of, "" if that is not known, and warns of one that
// nobody has tried: from release to release Ceph answers differently.
func (d *Doctor) cephVersion(name, is string) string {
	if is == "" {
		return ""
	}
	if !slices.Contains(testedCeph, is) {
		d.found(FoundWarning, fmt.Sprintf("%s: its mons are of Ceph %s, which nobody has tried; tested are %s", name, is,
			strings.Join(testedCeph, ", ")),
			"drain a node of a test cluster of that release first; what differs between releases is in docs/ceph-releases.md")
	}
	return "Ceph " + is + ", "
}

// reach says how to make a storage cluster answer, by the cause of its silence.
func (d *Doctor) reach(p *v1alpha1.MaintenancePolicy, cause storage.Cause) string {
	if kube.KindOf(p) == storage.Longhorn {
		return "the policy has to be in Longhorn's namespace, and the worker to have the rights of " +
			"deploy/storage-namespace-longhorn.yaml there"
	}
	switch cause {
	case storage.CauseLibrary:
		return "run a worker whose image has that librados: the Dockerfile makes no other. The key is as it should be"
	case storage.CauseAccess:
		return "name the object in deploy/rbac.yaml and apply it: the worker may read only what is named there"
	case storage.CauseCredentials:
		return "the Secret that spec.ceph.connection.credentials names has to hold a user that Ceph knows, and its key: " +
			"README, Install"
	case storage.CauseRights:
		return "give lockkeeper's Ceph user the rights of deploy/ceph-caps.txt: `ceph auth get client.lockkeeper` shows " +
			"those that it has"
	case storage.CauseAddress:
		return "spec.ceph.connection.monEndpoints has to name the ConfigMap with the mons' addresses"
	default:
		return "a majority of the mons has to answer: kubectl -n " + p.Namespace + " get pods -l app=rook-ceph-mon -o wide"
	}
}
