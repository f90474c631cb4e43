package cli

import (
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// What people type is a workflow's ID, or less than that: a name with a slash can only be a CephOSD's, one without it only a
// node's.

const (
	keeperWord  = "keeper/"
	restartWord = "restart-osds"
	updateWord  = "update-osds"
)

// jobID is the workflow's ID that somebody means by "node-a", "ceph/osds", "keeper/ns/policy", or by the ID itself.
func jobID(job string) (string, error) {
	if keeper, ok := strings.CutPrefix(job, keeperWord); ok {
		key, err := input.PolicyKey("JOB", keeper)
		if err != nil {
			return "", err
		}
		return workflows.KeeperID(key), nil
	}
	id, err := JobID(job)
	if err != nil {
		return "", wrong("JOB", job, jobForms+", or keeper/NAMESPACE/POLICY")
	}
	return id, nil
}

// JobID is jobID for jobs alone, those that a person may hold or stop.
func JobID(job string) (string, error) {
	if id, ok, err := rolloutID(job); ok || err != nil {
		return id, err
	}
	node, isDrain := workflows.DrainedNode(job)
	if !isDrain {
		node = job
	}
	if err := input.NodeName("JOB", node); err != nil {
		return "", wrong("JOB", job, jobForms)
	}
	return workflows.DrainID(node), nil
}

const jobForms = "must be the name of a node, NAMESPACE/NAME of a CephOSD, drain/NODE, update-osds/[NAMESPACE/]NAME or restart-osds[/NAMESPACE]"

// rolloutID is the ID of a rollout; ok is false if something else is meant.
func rolloutID(job string) (id string, ok bool, err error) {
	if namespace, is := strings.CutPrefix(job, restartWord+"/"); is {
		if !isNamespace(namespace) {
			return "", true, wrong("JOB", job, "must be restart-osds/NAMESPACE")
		}
		return workflows.RestartOSDsID(namespace), true, nil
	}
	name, is := strings.CutPrefix(job, updateWord+"/")
	if !is {
		if _, isDrain := workflows.DrainedNode(job); isDrain || !strings.Contains(job, "/") {
			return "", false, nil
		}
		name = job
	}
	key, refused := input.PolicyKey("JOB", name)
	if refused != nil {
		return "", true, wrong("JOB", job, jobForms)
	}
	return workflows.UpdateOSDsID(key.Namespace, key.Name), true, nil
}

func isNamespace(name string) bool {
	_, refused := input.PolicyKey("", name+"/x")
	return refused == nil
}

// FullName completes what people type with the namespace that they are in, which is asked for only if it is needed:
// "restart-osds" is the restart there, "update-osds/osds" the rollout of a CephOSD there, "keeper/ceph" the keeper of a policy.
func FullName(job string, namespace func() (string, error)) (string, error) {
	kind, rest, named := strings.Cut(job, "/")
	short := job == restartWord || named && rest != "" && !strings.Contains(rest, "/") && (kind == updateWord || kind+"/" == keeperWord)
	if !short {
		return job, nil
	}
	in, err := namespace()
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(kind+"/"+in+"/"+rest, "/"), nil
}

// CephOSDName is "namespace/name" of the CephOSD that somebody means by its name, with or without a namespace, or by the ID of
// its rollout.
func CephOSDName(name string, namespace func() (string, error)) (string, error) {
	id, err := FullName(updateWord+"/"+strings.TrimPrefix(name, updateWord+"/"), namespace)
	return strings.TrimPrefix(id, updateWord+"/"), err
}

func isRollout(workflowID string) bool {
	_, _, ok := workflows.RolledOut(workflowID)
	return ok
}
