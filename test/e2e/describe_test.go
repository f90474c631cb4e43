package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// describe tells how the world was when a scenario failed in it: who waits for what, and what everybody last said.
func (w *world) describe(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"kubectl -n " + cephNamespace + " get maintenancepolicy " + policyName + " -o yaml --show-managed-fields=false",
		"kubectl -n " + cephNamespace +
			" get pdb -o custom-columns=NAME:.metadata.name,MIN:.spec.minAvailable," +
			"EXCEPT:.spec.selector.matchExpressions,HEALTHY:.status.currentHealthy,ALLOWED:.status.disruptionsAllowed",
		"kubectl -n " + cephNamespace +
			" get cephosd -o jsonpath={range.items[*]}{.metadata.name}{\"\\n\"}{.status}{\"\\n\"}{end} --ignore-not-found",
		"kubectl -n " + cephNamespace + " get cephmon -o yaml --ignore-not-found",
		"kubectl -n " + cephNamespace + " get configmap rook-ceph-mon-endpoints -o jsonpath={.data.data}",
		"kubectl -n " + cephNamespace + " get pvc",
		"kubectl get nodes",
		"kubectl -n " + cephNamespace + " get pods -o wide",
		"kubectl -n " + cephNamespace + " get events --sort-by=.lastTimestamp --field-selector " +
			"involvedObject.kind=MaintenancePolicy -o custom-columns=AT:.lastTimestamp,REASON:.reason,MESSAGE:.message",
		"kubectl -n " + cephNamespace + " get events --sort-by=.lastTimestamp --field-selector involvedObject.kind=CephOSD " +
			"-o custom-columns=AT:.lastTimestamp,REASON:.reason,MESSAGE:.message",
		"kubectl -n " + cephNamespace + " get events --sort-by=.lastTimestamp --field-selector involvedObject.kind=CephMon " +
			"-o custom-columns=AT:.lastTimestamp,REASON:.reason,MESSAGE:.message",
		"lockkeeper status",
		"ceph -s --connect-timeout 5",
		"ceph osd tree --connect-timeout 5",
		"lab load report --name " + w.name,
	} {
		w.show(t, line, 80)
	}
	w.showUnready(t)
	for _, log := range []string{"worker.log", "watch.log"} {
		out, _ := os.ReadFile(filepath.Join(w.dir, log))
		t.Logf("the end of %s:\n%s", log, last(string(out), 30))
	}
}

// show logs the end of what a command prints.
func (w *world) show(t *testing.T, line string, lines int) {
	t.Helper()
	args := strings.Fields(line)
	out, err := w.command(args[0], args[1:]...).CombinedOutput()
	t.Logf("$ %s (%v)\n%s", line, err, last(string(out), lines))
}

// showUnready logs what pods say that do not get ready, or said before they crashed.
func (w *world) showUnready(t *testing.T) {
	t.Helper()
	out, err := w.command("kubectl", "-n", cephNamespace, "get", "pods", "--no-headers").Output()
	if err != nil {
		t.Log(err)
		return
	}
	for pod := range strings.Lines(string(out)) {
		columns := strings.Fields(pod) // name, ready/all, …
		if ready, all, ok := strings.Cut(columns[1], "/"); ok && ready != all {
			logs := "kubectl -n " + cephNamespace + " logs " + columns[0] + " --all-containers"
			w.show(t, logs, 40)
			w.show(t, logs+" --previous", 40)
		}
	}
}

// last are the last lines of a text.
func last(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
