package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file is an imitation of how Rook's operator updates Ceph: the same calls in the same order, with short timeouts.
// It knows nothing of lockkeeper, and does not mind whether its pods went.

// rookUpdates changes the template of every Deployment of the cluster, as a new image in the CephCluster does.
//
// A mon's Deployment is changed and waited for; when that takes too long the reconcile ends with an error, and the next
// one finds the Deployment as it should be and goes on with the next mon. Then the manager, in the same way. Of the
// OSDs it asks Ceph which may stop together with the next one, twenty at the most, changes these at once, waits for
// them, and drops them from its list whether they came or not.
func (w *world) rookUpdates(value string, patience time.Duration) error {
	for _, app := range []string{"rook-ceph-mon", "rook-ceph-mgr"} {
		names, err := w.deployments(app)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := w.rookChanges(name, value); err != nil {
				return err
			}
			w.rookAwaits(name, patience)
		}
	}
	queue, err := w.deployments("rook-ceph-osd")
	for deadline := time.Now().Add(5 * time.Minute); err == nil && len(queue) > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("OSDs that are still in the queue: %v", queue)
		}
		var batch []string
		if batch, err = w.rookBatch(queue); len(batch) == 0 {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for _, name := range batch {
			if err := w.rookChanges(name, value); err != nil {
				return err
			}
		}
		for _, name := range batch {
			w.rookAwaits(name, patience)
		}
		queue = slices.DeleteFunc(queue, func(name string) bool { return slices.Contains(batch, name) })
	}
	return err
}

func (w *world) deployments(app string) ([]string, error) {
	out, err := w.command("kubectl", "-n", cephNamespace, "get", "deployments", "-l", "app="+app, "-o",
		`jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`).Output()
	return strings.Fields(string(out)), err
}

func (w *world) rookChanges(name, value string) error {
	return w.run("kubectl", "-n", cephNamespace, "patch", "deployment", name, "-p",
		fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"ceph-version":%q}}}}}`, value))
}

// rookAwaits gives up without a word: the operator logs it and goes on.
func (w *world) rookAwaits(name string, patience time.Duration) {
	_ = w.run("kubectl", "-n", cephNamespace, "rollout", "status", "deployment", name, "--timeout", patience.String())
}

// rookBatch is which of the OSDs in the queue Ceph spares together with the first one.
func (w *world) rookBatch(queue []string) ([]string, error) {
	out, err := w.command("ceph", "osd", "ok-to-stop", strings.TrimPrefix(queue[0], "rook-ceph-osd-"), "--max=20",
		"--format=json").Output()
	if err != nil {
		return nil, nil //nolint:nilerr // not ok, which is asked again
	}
	var answer struct {
		OKToStop bool  `json:"ok_to_stop"`
		OSDs     []int `json:"osds"`
	}
	if err := json.Unmarshal(out, &answer); err != nil || !answer.OKToStop {
		return nil, err
	}
	var batch []string
	for _, id := range answer.OSDs {
		if name := fmt.Sprintf("rook-ceph-osd-%d", id); slices.Contains(queue, name) {
			batch = append(batch, name)
		}
	}
	return batch, nil
}
