// Package jobs is the registry of lockkeeper's jobs. It has one entry for each: the type of its workflow, the form of
// its workflow ID, the signals that people send to it, and the priority of its claims. Whatever differs between jobs by
// name alone is looked up here.
//
// What a job does is in package workflows, in a file of its own. The rest is found by its type: its workflow in
// workflows.ByType, what decodes its status in package cli, and what its record means in package history. Tests fail if
// a job is missing there.
package jobs

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// Job is one kind of job.
type Job struct {
	Type string // of its workflow, as `temporal workflow start --type` takes it: "DrainNode"
	Noun string // what people call one: "drain". Jobs with the same noun have the same status and the same result.
	// Prefix and Form make the workflow ID: with "update-osds/" and "NAMESPACE/NAME" it is "update-osds/ceph/osds". The
	// words of Form are NAMESPACE, NAME and NODE.
	Prefix, Form string
	// Short says what people may write instead of the ID, in the same form: "the name of a node". "": they write the ID.
	Short    string
	Priority lease.Priority // of its claims
	Signals  []string       // that people send
}

// Signals that people send to jobs.
const (
	SignalPause   = "pause"   // go no further; what is under way stays protected
	SignalResume  = "resume"  // go on
	SignalAbort   = "abort"   // undo what can be undone, give the lease back, end
	SignalDone    = "done"    // the person's part of the work is finished
	SignalApprove = "approve" // the canary, which serves, is fine
	SignalSkip    = "skip"    // takes the name or the key of an OSD: do not replace it, and do not wait for it
)

// The signals of drains, of scale-downs, of migrations and of rollouts.
var (
	ofDrain     = []string{SignalPause, SignalResume, SignalAbort, SignalDone}
	ofFence     = []string{SignalPause, SignalResume, SignalAbort, SignalDone}
	ofScaleDown = []string{SignalPause, SignalResume, SignalAbort}
	ofMigration = []string{SignalPause, SignalResume, SignalAbort}
	ofRollout   = []string{SignalPause, SignalResume, SignalAbort, SignalApprove, SignalSkip}
)

// The jobs.
var (
	DrainNode = &Job{
		Type: "DrainNode", Noun: "drain", Prefix: "drain/", Form: "NODE", Short: "the name of a node",
		Priority: lease.PriorityDrain, Signals: ofDrain,
	}
	FenceNode = &Job{
		Type: "FenceNode", Noun: "fence", Prefix: "fence/", Form: "NODE",
		Priority: lease.PriorityFencing, Signals: ofFence,
	}
	ScaleDownNode = &Job{
		Type: "ScaleDownNode", Noun: "scale-down", Prefix: "scale-down/", Form: "NODE",
		Priority: lease.PriorityScaleDown, Signals: ofScaleDown,
	}
	UpdateOSDs = &Job{
		Type: "UpdateOSDs", Noun: "rollout", Prefix: "update-osds/", Form: "NAMESPACE/NAME",
		Short: "NAMESPACE/NAME of a CephOSD", Priority: lease.PriorityUpdate, Signals: ofRollout,
	}
	RestartOSDs = &Job{
		Type: "RestartOSDs", Noun: "rollout", Prefix: "restart-osds/", Form: "NAMESPACE",
		Priority: lease.PriorityUpdate, Signals: ofRollout,
	}
	RestartWaiting = &Job{
		Type: "RestartWaiting", Noun: "rollout", Prefix: "restart-waiting/", Form: "NAMESPACE/NAME",
		Priority: lease.PriorityUpdate, Signals: ofRollout,
	}
	MigrateMons = &Job{
		Type: "MigrateMons", Noun: "migration", Prefix: "migrate-mons/", Form: "NAMESPACE/NAME",
		Priority: lease.PriorityMigration, Signals: ofMigration,
	}
)

// All are the jobs, in the order in which people are told of them.
var All = []*Job{DrainNode, FenceNode, ScaleDownNode, UpdateOSDs, RestartOSDs, RestartWaiting, MigrateMons}

// PlanMons is no job, since it changes nothing: it foresees what MigrateMons would do.
var PlanMons = &Job{Type: "PlanMons", Noun: "plan", Prefix: "plan-mons/", Form: "NAMESPACE/NAME"}

// Keeper is no job, since it grants leases and holds none, but its ID is made in the same way.
var Keeper = &Job{Type: "Keeper", Noun: "keeper", Prefix: "keeper/", Form: "NAMESPACE/NAME"}

// Target is what one job is about: the node that is drained, the CephOSD that is rolled out. The form of the job's ID
// says which of the fields are set.
type Target struct{ Namespace, Name, Node string }

// ID is a workflow ID; parts are what Form names, in its order: UpdateOSDs.ID("ceph", "osds") is
// "update-osds/ceph/osds".
func (j *Job) ID(parts ...string) string { return j.Prefix + strings.Join(parts, "/") }

// Target is the reverse of ID. It looks at the form alone, not at whether a node can have such a name.
func (j *Job) Target(id string) (t Target, ok bool) {
	rest, ok := strings.CutPrefix(id, j.Prefix)
	words, parts := strings.Split(j.Form, "/"), strings.Split(rest, "/")
	if !ok || len(parts) != len(words) || slices.Contains(parts, "") {
		return Target{}, false
	}
	fields := map[string]*string{"NAMESPACE": &t.Namespace, "NAME": &t.Name, "NODE": &t.Node}
	for i, word := range words {
		*fields[word] = parts[i]
	}
	return t, true
}

// Parse finds the job that has this ID, and its target; ok is false for everything that is not the ID of a job.
func Parse(id string) (j *Job, t Target, ok bool) {
	for _, j := range All {
		if t, ok := j.Target(id); ok {
			return j, t, true
		}
	}
	return nil, Target{}, false
}

// Find finds the job that a person means by an ID, or by what is short for one: "node-a" means DrainNode and
// "drain/node-a". j is nil if no job has such a name. Whether what follows the prefix is well-formed Target says.
func Find(name string) (j *Job, id string) {
	for _, j := range All {
		if strings.HasPrefix(name, j.Prefix) {
			return j, name
		}
	}
	for _, j := range All {
		if j.Short != "" && strings.Count(name, "/") == strings.Count(j.Form, "/") {
			return j, j.ID(name)
		}
	}
	return nil, ""
}

// Within completes an ID that was written without its namespace: of UpdateOSDs, in "ceph", "update-osds/osds" is
// "update-osds/ceph/osds". ok is false if the ID is another one, or has a namespace, or needs none.
func (j *Job) Within(namespace, id string) (full string, ok bool) {
	rest, is := strings.CutPrefix(id+"/", j.Prefix)
	full = strings.TrimSuffix(j.ID(namespace, rest), "/")
	t, whole := j.Target(full)
	return full, is && whole && t.Namespace == namespace
}

// Usage is how people write an ID, who may leave out the namespace that they are in: "update-osds/[NAMESPACE/]NAME".
func (j *Job) Usage() string {
	if j.Form == "NAMESPACE" {
		return strings.TrimSuffix(j.Prefix, "/") + "[/NAMESPACE]"
	}
	return j.Prefix + strings.Replace(j.Form, "NAMESPACE/", "[NAMESPACE/]", 1)
}

// Takes tells whether people may send a signal to this job.
func (j *Job) Takes(signal string) bool { return slices.Contains(j.Signals, signal) }

// Taking are the jobs that take a signal.
func Taking(signal string) []*Job {
	return slices.DeleteFunc(slices.Clone(All), func(j *Job) bool { return !j.Takes(signal) })
}
