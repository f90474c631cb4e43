package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// This file has one policy take over from another of the same namespace, while everything is evicted: an older one is
// edited to mean the same Ceph.

const olderPolicy = "a-first"

// nobodys selects no pod.
var nobodys = map[string]any{"matchLabels": map[string]string{"app": "nobody"}}

// makeOlder replaces the policy by an older one, which means no storage that there is, and one like the first.
func makeOlder(w *world) error {
	if err := w.deletePolicy(policyName); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "lockkeeper.io/v1alpha1", "kind": "MaintenancePolicy",
		"metadata": map[string]string{"namespace": cephNamespace, "name": olderPolicy},
		"spec": map[string]any{"ceph": map[string]any{
			// Nobody has made it here, and the worker may read it.
			"connection": map[string]any{"monEndpoints": map[string]string{"name": "lockkeeper-mon-endpoints", "key": "data"}},
			"osds":       map[string]any{"selector": nobodys},
			"daemons": map[string]any{
				"mon": nobodys, "mgr": nobodys, "mds": nobodys, "rgw": nobodys, "rbdMirror": nobodys,
			},
		}},
	})
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, "older.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	if err := w.run("kubectl", "apply", "-f", file); err != nil {
		return err
	}
	time.Sleep(1100 * time.Millisecond) // of policies of the same second the name decides, which is right, too
	if err := w.installObjects(); err != nil {
		return err
	}
	return w.mayDrain(policyName, "^any node$")
}

// takeOver has the older policy mean the same Ceph, and waits until it looks after it.
func takeOver(_ context.Context, w *world) error {
	spec, err := w.command("kubectl", "-n", cephNamespace, "get", "maintenancepolicy", policyName, "-o",
		"jsonpath={.spec.ceph}").Output()
	if err != nil {
		return err
	}
	if err := w.run("kubectl", "-n", cephNamespace, "patch", "maintenancepolicy", olderPolicy, "--type=json", "-p",
		`[{"op":"replace","path":"/spec/ceph","value":`+string(spec)+`}]`); err != nil {
		return err
	}
	return w.mayDrain(olderPolicy, "^any node$")
}

// endOlder: the policy of before looks after its Ceph again.
func endOlder(w *world) error {
	if err := w.deletePolicy(olderPolicy); err != nil {
		return err
	}
	return w.mayDrain(policyName, "^any node$")
}

func (w *world) deletePolicy(name string) error {
	return w.run("kubectl", "-n", cephNamespace, "delete", "maintenancepolicy", name, "--timeout=1m")
}

func (w *world) mayDrain(policy, says string) error {
	return w.eventually(patience, says, "kubectl", "-n", cephNamespace, "get", "maintenancepolicy", policy, "-o",
		"jsonpath={.status.mayDrain}")
}
