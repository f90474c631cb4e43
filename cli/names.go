package cli

import (
	"cmp"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// What people type is a workflow's ID, or what the registry of jobs says is short for one.

// jobID is the workflow's ID that somebody means by "node-a", "ceph/osds", "keeper/ns/policy", or by the ID itself.
func jobID(job string) (string, error) {
	if keeper, ok := strings.CutPrefix(job, jobs.Keeper.Prefix); ok {
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
	j, id := jobs.Find(job)
	if j == nil {
		return "", wrong("JOB", job, jobForms)
	}
	target, ok := j.Target(id)
	switch {
	case ok && mayExist(target):
		return id, nil
	case j.Short == "":
		return "", wrong("JOB", job, "must be "+j.Prefix+j.Form)
	default:
		return "", wrong("JOB", job, jobForms)
	}
}

// taker is JobID for a signal that not every job takes.
func taker(job, signal string) (string, error) {
	if j, _ := jobs.Find(job); j == nil || j.Takes(signal) {
		return JobID(job)
	}
	taking := jobs.Taking(signal)
	which := forms(taking)
	if signal == jobs.SignalDone {
		which = "a rollout sees by itself when it is done"
	}
	return "", wrong("JOB", job, "must be a "+taking[0].Noun+": "+which)
}

var jobForms = "must be " + forms(jobs.All)

// forms says how people name jobs of some kinds: "the name of a node or drain/NODE".
func forms(of []*jobs.Job) string {
	var short, ids []string
	for _, j := range of {
		if j.Short != "" {
			short = append(short, j.Short)
		}
		ids = append(ids, j.Usage())
	}
	all := append(short, ids...)
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// mayExist tells whether Kubernetes allows the names of a target.
func mayExist(t jobs.Target) bool {
	if t.Node != "" && input.NodeName("", t.Node) != nil {
		return false
	}
	_, refused := input.PolicyKey("", t.Namespace+"/"+cmp.Or(t.Name, "x"))
	return t.Namespace == "" || refused == nil
}

// FullName completes what people type with the namespace that they are in, which is asked for only if it is needed:
// "restart-osds" is the restart there, "update-osds/osds" the rollout of a CephOSD there, "keeper/ceph" the keeper of a
// policy.
func FullName(job string, namespace func() (string, error)) (string, error) {
	for _, j := range append([]*jobs.Job{jobs.Keeper}, jobs.All...) {
		if _, lacks := j.Within("x", job); !lacks {
			continue
		}
		in, err := namespace()
		if err != nil {
			return "", err
		}
		full, _ := j.Within(in, job)
		return full, nil
	}
	return job, nil
}

// CephMonName is "namespace/name" of the CephMon that somebody means by its name, with or without a namespace, or by
// the ID of its job.
func CephMonName(name string, namespace func() (string, error)) (string, error) {
	id, err := FullName(jobs.MigrateMons.ID(strings.TrimPrefix(name, jobs.MigrateMons.Prefix)), namespace)
	return strings.TrimPrefix(id, jobs.MigrateMons.Prefix), err
}

// CephOSDName is "namespace/name" of the CephOSD that somebody means by its name, with or without a namespace, or by
// the ID of its rollout.
func CephOSDName(name string, namespace func() (string, error)) (string, error) {
	id, err := FullName(jobs.UpdateOSDs.ID(strings.TrimPrefix(name, jobs.UpdateOSDs.Prefix)), namespace)
	return strings.TrimPrefix(id, jobs.UpdateOSDs.Prefix), err
}
