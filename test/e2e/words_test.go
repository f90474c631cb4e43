package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a word waits for what it says. Nothing that is right takes as long.
const patience = 10 * time.Minute

// word is a command of scenarios. Its meaning is that of the table in test/scenarios/README.md, in every world.
type word struct {
	args string // as the table writes them
	do   func(w *world, args []string) error
}

// words are what the scenarios in test/scenarios are told in, as far as the lab is concerned: everybody's own tools,
// and nothing that lockkeeper does not ship.
var words = map[string]word{
	"drain":       {"NODE", func(w *world, a []string) error { return w.begin("drain", a[0], w.kubectlDrain) }},
	"drained":     {"NODE", func(w *world, a []string) error { return w.ended("drain", a[0]) }},
	"not-drained": {"NODE", func(w *world, a []string) error { return w.notEnded("drain", a[0], 3*time.Second) }},
	"upgrade":     {"NODE", func(w *world, a []string) error { return w.begin("upgrade", a[0], w.upgrade) }},
	"upgraded":    {"NODE", func(w *world, a []string) error { return w.ended("upgrade", a[0]) }},

	"job": {"NODE", func(w *world, a []string) error { return w.run("lockkeeper", "drain", a[0]) }},
	"job-phase": {"NODE PHASE", func(w *world,
		a []string,
	) error {
		return w.awaitJob(a[0], func(j job) bool { return j.in(a[1]) })
	}},
	"job-ended": {"NODE OUTCOME", func(w *world, a []string) error {
		return w.awaitJob(a[0], func(j job) bool { return j.Result.Outcome == a[1] })
	}},
	"signal": {"NODE SIGNAL", func(w *world, a []string) error { return w.run("lockkeeper", a[1], a[0]) }},

	"cordon":       {"NODE", func(w *world, a []string) error { return w.run("kubectl", "cordon", a[0]) }},
	"uncordon":     {"NODE", func(w *world, a []string) error { return w.run("kubectl", "uncordon", a[0]) }},
	"reboot":       {"NODE", func(w *world, a []string) error { return w.fault("node-reboot", a[0]) }},
	"delete-node":  {"NODE", func(w *world, a []string) error { return w.run("kubectl", "delete", "node", a[0]) }},
	"restore-node": {"NODE", func(w *world, a []string) error { return w.fault("node-return", a[0]) }},

	"fail":       {"DAEMON", func(w *world, a []string) error { return w.failDaemon(a[0]) }},
	"mend":       {"DAEMON", func(w *world, a []string) error { return w.scale(a[0], 1) }},
	"hang":       {"DAEMON|NODE", func(w *world, a []string) error { return w.hang(a[0], "hang") }},
	"resume":     {"DAEMON|NODE", func(w *world, a []string) error { return w.hang(a[0], "resume") }},
	"crash":      {"worker|watch", func(w *world, a []string) error { return w.stop(a[0], syscall.SIGKILL) }},
	"start":      {"worker|watch", func(w *world, a []string) error { return w.start(a[0]) }},
	"disconnect": {"OSD", func(w *world, a []string) error { return w.disconnect(a[0]) }},
	"out":        {"OSD", func(w *world, a []string) error { return w.run("ceph", "osd", "out", a[0]) }},
	"in":         {"OSD", func(w *world, a []string) error { return w.run("ceph", "osd", "in", a[0]) }},

	"noout-by-hand": {
		"HOST",
		func(w *world, a []string) error { return w.run("ceph", "osd", "set-group", "noout", a[0]) },
	},
	"unset-noout-by-hand": {
		"HOST",
		func(w *world, a []string) error { return w.run("ceph", "osd", "unset-group", "noout", a[0]) },
	},
	"noout":    {"HOST", func(w *world, a []string) error { return w.awaitNoout(a[0], true) }},
	"no-noout": {"HOST", func(w *world, a []string) error { return w.awaitNoout(a[0], false) }},

	"open":      {"ZONE", func(w *world, a []string) error { return w.awaitAllowed("only in " + a[0]) }},
	"closed":    {"", func(w *world, _ []string) error { return w.awaitAllowed("nowhere") }},
	"at-rest":   {"", func(w *world, _ []string) error { return w.awaitAllowed("one anywhere") }},
	"no-budget": {"", func(w *world, _ []string) error { return w.awaitNoBudget() }},
	"refused":   {"NODE", func(w *world, a []string) error { return w.refused(a[0]) }},
	"may-go":    {"NODE", func(w *world, a []string) error { return w.mayGo(a[0]) }},

	"edit-budget": {"", func(w *world, _ []string) error {
		return w.run("kubectl", "-n", cephNamespace, "patch", "pdb", provedBudget, "--type=merge", "-p",
			`{"spec":{"minAvailable":0}}`)
	}},
	"delete-budget": {"", func(w *world, _ []string) error {
		return w.run("kubectl", "-n", cephNamespace, "delete", "pdb", provedBudget)
	}},
	"policy": {"FIELD VALUE", func(w *world, a []string) error { return w.setPolicy(a[0], a[1]) }},
	"delete-policy": {"", func(w *world, _ []string) error {
		return w.run("kubectl", "-n", cephNamespace, "delete", "maintenancepolicy", policyName, "--timeout=60s")
	}},
	"create-policy": {"", func(w *world, _ []string) error { return w.installObjects() }},

	"pass":  {"DURATION", func(_ *world, a []string) error { return pass(a[0]) }},
	"whole": {"", func(w *world, _ []string) error { w.saidWhole = true; return w.whole() }},
}

// speak makes the words commands of testscript.
func (w *world) speak() map[string]func(*testscript.TestScript, bool, []string) { return w.told(words) }

// told makes words testscript's commands.
func (w *world) told(words map[string]word) map[string]func(*testscript.TestScript, bool, []string) {
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	for name, word := range words {
		commands[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != len(strings.Fields(word.args)) {
				ts.Fatalf("usage: %s %s", name, word.args)
			}
			if err := word.do(w, args); err != nil {
				ts.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
			}
		}
	}
	return commands
}

// until repeats a check until it finds nothing to complain about.
func until(within time.Duration, check func() error) error {
	pause := pauses()
	for deadline := time.Now().Add(within); ; pause() {
		err := check()
		if err == nil || errors.Is(err, errFinal) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", within, err)
		}
	}
}

// errFinal marks what no waiting mends.
var errFinal = errors.New("")

func pass(duration string) error {
	d, err := time.ParseDuration(duration)
	time.Sleep(d)
	return err
}

// run runs a command and returns what it said if it failed.
func (w *world) run(name string, args ...string) error {
	if out, err := w.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func (w *world) fault(args ...string) error {
	return w.run("lab", append(append([]string{"fault"}, args...), "--name", w.name)...)
}

// job is what `lockkeeper status NODE -o json` says of the drain of a node.
type job struct {
	State   string
	Started time.Time
	Status  struct{ Phase, WaitsFor string }
	Result  struct{ Outcome string }
}

func (j job) in(phase string) bool {
	return j.State == "Running" && j.Status.Phase == phase && j.Status.WaitsFor != ""
}

// awaitJob waits for something about the drain of a node that began in this scenario.
func (w *world) awaitJob(node string, is func(job) bool) error {
	return until(patience, func() error { return w.askJob(node, is) })
}

func (w *world) askJob(node string, is func(job) bool) error {
	var status struct{ Drains []job }
	if err := w.read(&status, "lockkeeper", "status", node, "-o", "json"); err != nil {
		return err
	}
	if !slices.ContainsFunc(status.Drains, func(j job) bool { return !j.Started.Before(w.scenarioBegan) && is(j) }) {
		return fmt.Errorf("it is %+v", status.Drains)
	}
	return nil
}

// deployment is the Deployment of a daemon: osd.3, mon.a, mgr.
func deployment(daemon string) (string, error) {
	kind, id, _ := strings.Cut(daemon, ".")
	switch {
	case kind == "mgr":
		return "rook-ceph-mgr-a", nil
	case (kind == "osd" || kind == "mon") && id != "":
		return "rook-ceph-" + kind + "-" + id, nil
	}
	return "", fmt.Errorf("%q is no daemon: osd.N, mon.X or mgr", daemon)
}

// podsOf are the pods of a daemon.
func (w *world) podsOf(daemon string) ([]pod, error) {
	name, err := deployment(daemon)
	if err != nil {
		return nil, err
	}
	all, err := w.pods()
	return slices.DeleteFunc(all, func(p pod) bool { return !strings.HasPrefix(p.Metadata.Name, name+"-") }), err
}

type pod struct {
	Metadata struct {
		Name, UID           string
		DeletionTimestamp   string
		Labels, Annotations map[string]string
	}
	Spec struct{ NodeName string }
}

func (w *world) pods() ([]pod, error) {
	var list struct{ Items []pod }
	err := w.get(&list, podsPath)
	return list.Items, err
}

func (w *world) scale(daemon string, replicas int) error {
	name, err := deployment(daemon)
	if err != nil {
		return err
	}
	return w.run("kubectl", "-n", cephNamespace, "scale", "deployment", name, "--replicas="+fmt.Sprint(replicas))
}

// failDaemon ends a daemon and keeps it from coming back.
func (w *world) failDaemon(daemon string) error {
	if err := w.scale(daemon, 0); err != nil {
		return err
	}
	return until(patience, func() error {
		pods, err := w.podsOf(daemon)
		if err == nil && len(pods) > 0 {
			return fmt.Errorf("it still has a pod: %+v", pods)
		}
		return err
	})
}

func (w *world) signalDaemon(fault, daemon string) error {
	pods, err := w.podsOf(daemon)
	if err != nil {
		return err
	}
	if len(pods) != 1 {
		return fmt.Errorf("it has %d pods", len(pods))
	}
	return w.fault(fault, cephNamespace+"/"+pods[0].Metadata.Name)
}

// hang stops a node or a daemon where it is, or lets it go on.
func (w *world) hang(what, verb string) error {
	if strings.HasPrefix(what, "node-") {
		return w.fault("node-"+verb, what)
	}
	return w.signalDaemon("pod-"+verb, what)
}

// disconnect changes an OSD's key, and kills the monitor that hears it, until none does. The OSD finds its new key when
// it is restarted.
func (w *world) disconnect(osd string) error {
	if err := w.newKey(osd); err != nil {
		return err
	}
	if err := w.bringKey(osd); err != nil {
		return err
	}
	return until(patience, func() error {
		var q struct {
			Names []string `json:"quorum_names"`
		}
		if err := w.ask(&q, "quorum_status"); err != nil {
			return err
		}
		for _, name := range q.Names {
			var sessions []struct {
				Entity string `json:"entity_name"`
			}
			if err := w.read(&sessions, "ceph", "tell", "mon."+name, "sessions"); err != nil {
				return err
			}
			for _, s := range sessions {
				if s.Entity == osd {
					return cmp.Or(w.signalDaemon("pod-kill", "mon."+name), fmt.Errorf("mon.%s has a session with it", name))
				}
			}
		}
		return nil
	})
}

func (w *world) awaitNoout(host string, want bool) error {
	return until(patience, func() error {
		flags, err := w.nooutHosts()
		if err == nil && slices.Contains(flags, host) != want {
			return fmt.Errorf("noout is on %v", flags)
		}
		return err
	})
}

func (w *world) nooutHosts() (hosts []string, err error) {
	var dump struct {
		Flags map[string][]string `json:"crush_node_flags"`
	}
	err = w.ask(&dump, "osd dump")
	for host, flags := range dump.Flags {
		if slices.Contains(flags, "noout") {
			hosts = append(hosts, host)
		}
	}
	return hosts, err
}

// setPolicy changes one field of spec.ceph. The value is JSON, or else a string.
func (w *world) setPolicy(field, value string) error {
	var v any = value
	if json.Valid([]byte(value)) {
		v = json.RawMessage(value)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ceph": map[string]any{field: v}}})
	if err != nil {
		return err
	}
	return w.run("kubectl", "-n", cephNamespace, "patch", "maintenancepolicy", policyName, "--type=merge",
		"-p", string(patch))
}
