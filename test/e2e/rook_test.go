package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// This file is an imitation of how Rook's operator updates Ceph and fails a mon over: the same calls in the same order,
// with short timeouts. It knows nothing of lockkeeper, and does not mind whether its pods went.

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

// rookFailsOver puts the mon next on a node in the place of old, which does not answer: it scales the old one to 0,
// makes the new one and waits until it is in quorum; only then Ceph forgets the old one, whose Deployment is deleted.
func (w *world) rookFailsOver(old, next, node string) error {
	was, err := w.command("kubectl", "-n", cephNamespace, "get", "deployment", "rook-ceph-mon-"+old, "-o", "json").Output()
	if err != nil {
		return err
	}
	err = w.run("kubectl", "-n", cephNamespace, "scale", "deployment", "rook-ceph-mon-"+old, "--replicas=0")
	if err != nil {
		return err
	}
	manifest, err := nextMon(was, old, next, node)
	if err != nil {
		return err
	}
	create := w.command("kubectl", "create", "-f", "-")
	create.Stdin = strings.NewReader(manifest)
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("create mon.%s: %w: %s", next, err, out)
	}
	inQuorum := `"quorum_names":\[[^]]*"` + next + `"`
	if err := w.eventually(2*time.Minute, inQuorum, "ceph", "quorum_status", "-f", "json"); err != nil {
		return err
	}
	if pods, err := w.podsOf("mon." + old); err != nil || len(pods) != 1 {
		return fmt.Errorf("Ceph still has mon.%s, and its pods are %+v: %w", old, pods, err)
	}
	if err := w.run("ceph", "mon", "remove", old); err != nil {
		return err
	}
	return w.run("kubectl", "-n", cephNamespace, "delete", "deployment", "rook-ceph-mon-"+old, "--wait=false")
}

// nextMon is the Deployment of a mon, made of that of another one: with an address and an empty store of its own, which
// its first container makes, as Rook's does. The lab's mons have their ports one after the other, in the order of their
// names.
func nextMon(was []byte, old, next, node string) (string, error) {
	text := string(was)
	port := regexp.MustCompile(`127\.0\.0\.1/(\d+)`).FindStringSubmatch(text)
	if len(port) == 0 {
		return "", fmt.Errorf("the Deployment of mon.%s tells no port: %s", old, text)
	}
	at, err := strconv.Atoi(port[1])
	if err != nil {
		return "", err
	}
	address := strconv.Itoa(at + int(next[0]) - int(old[0]))
	called := func(format string) []string { return []string{fmt.Sprintf(format, old), fmt.Sprintf(format, next)} }
	words := slices.Concat(called("mon-%s"), called("ceph-%s\""), called("\"--id=%s\""), called("\"mon\": \"%s\""),
		called("\"ceph_daemon_id\": \"%s\""), called("/instance\": \"%s\""), []string{port[1], address})
	var d struct {
		APIVersion string                `json:"apiVersion"`
		Kind       string                `json:"kind"`
		Metadata   map[string]any        `json:"metadata"`
		Spec       appsv1.DeploymentSpec `json:"spec"`
	}
	if err := json.Unmarshal([]byte(strings.NewReplacer(words...).Replace(text)), &d); err != nil {
		return "", err
	}
	for _, ofServer := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "annotations"} {
		delete(d.Metadata, ofServer)
	}
	pod := &d.Spec.Template.Spec
	d.Spec.Replicas, pod.NodeSelector = nil, map[string]string{corev1.LabelHostname: node}
	for i := range pod.Volumes {
		if v := &pod.Volumes[i]; v.Name == "ceph-daemon-data" {
			v.HostPath.Type = new(corev1.HostPathDirectoryOrCreate)
		}
	}
	mon := &pod.Containers[0]
	mon.Args = slices.DeleteFunc(mon.Args, func(a string) bool { return strings.HasPrefix(a, "--public-addrv") })
	mon.Args = append(mon.Args, "--public-addrv=[v2:127.0.0.1:"+address+"/0]")
	empty := *mon.DeepCopy()
	empty.Name, empty.ReadinessProbe = "init-mon-fs", nil
	empty.Command = []string{"/bin/bash", "-c", `rm -rf /var/lib/ceph/mon/ceph-` + next + `/*; exec "$0" "$@"`, "/usr/bin/ceph-mon"}
	empty.Args = append([]string{"--mkfs"}, mon.Args[1:]...)
	pod.InitContainers = []corev1.Container{empty}
	manifest, err := json.Marshal(d)
	return string(manifest), err
}
