package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper/test/auditlog"
	"github.com/lockkeeper/lockkeeper/test/hammer"
)

// This file has the words of scenarios in a lab with deploy/guard-deletions.

// daemonPods selects the pods that the guard holds: those of OSDs and mons.
const daemonPods = "app in (rook-ceph-osd, rook-ceph-mon)"

// guard installs deploy/guard-deletions, as its runbook says.
func (w *world) guard() error {
	dir := filepath.Join(w.root, "deploy", "guard-deletions")
	return w.run("kubectl", "apply", "-f", filepath.Join(dir, "policy.yaml"), "-f", filepath.Join(dir, "namespace.yaml"))
}

func (w *world) guardWords() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		// delete-everything DURATION: four clients delete every OSD and mon for that long at least, one by one, by force and
		// all by one request, and longer on a busy machine, until as many were refused as there are. None goes.
		"delete-everything": func(ts *testscript.TestScript, _ bool, args []string) {
			d, err := time.ParseDuration(args[0])
			ts.Check(err)
			ts.Check(w.deleteEverything(d))
		},
		// delete-across-restart DURATION: the same, and meanwhile the API server is killed and starts anew.
		"delete-across-restart": func(ts *testscript.TestScript, _ bool, args []string) {
			d, err := time.ParseDuration(args[0])
			ts.Check(err)
			ts.Check(w.deleteAcrossRestart(d))
		},
		// waits OSD REGEXP: a controller was refused to delete the OSD's pod, with a sentence that says why.
		"waits": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.waits(args[0], args[1])) },
		// rook-updates VALUE DURATION: Rook's operator changes all Deployments, and waits for each as long.
		"rook-updates": func(ts *testscript.TestScript, _ bool, args []string) {
			d, err := time.ParseDuration(args[1])
			ts.Check(err)
			ts.Check(w.rookUpdates(args[0], d))
		},
		// rook-fails-over MON NEXT NODE: Rook's operator puts another mon in the place of one that does not answer.
		"rook-fails-over": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.rookFailsOver(args[0], args[1], args[2]))
		},
		// run-by KIND OSD: its pod is let go, and the next one made by a controller of that kind: StatefulSet, DaemonSet, or
		// Deployment again.
		"run-by": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.runBy(args[0], args[1])) },
		// judge: from now on the audit log, Ceph's maps and the state of the data are judged.
		"judge": func(ts *testscript.TestScript, _ bool, _ []string) {
			osds, err := w.osds()
			ts.Check(err)
			w.judge, err = hammer.NewJudge(context.Background(), w.environ(), osds)
			ts.Check(err)
			w.judge.CountDeletions()
			ts.Defer(func() { w.judge.Close() })
		},
		// judged N: since then N OSDs or more went, and never those of two zones at once.
		"judged": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.judged(args[0])) },
	}
}

// uids of all pods that are guarded, by name.
func (w *world) uids() (map[string]string, error) {
	var list struct {
		Items []struct{ Metadata struct{ Name, UID string } }
	}
	err := w.get(&list, podsPath+"?labelSelector="+url.QueryEscape(daemonPods))
	out := map[string]string{}
	for _, p := range list.Items {
		out[p.Metadata.Name] = p.Metadata.UID
	}
	return out, err
}

func (w *world) deleteEverything(lasting time.Duration) error {
	began := time.Now()
	answers, err := w.noneGoes(func(a hammer.Answers, pods int) bool {
		return time.Since(began) > lasting && a.Refused >= pods
	})
	if err != nil {
		return err
	}
	granted, refused, err := w.deletions(began)
	granted = slices.DeleteFunc(granted, func(d hammer.Deletion) bool { return strings.Contains(d.Name, "-mgr-") })
	switch {
	case err != nil:
		return err
	case len(granted) > 0: // beside the manager's, which is not guarded
		return fmt.Errorf("%s; by the audit log these were granted: %v", answers, granted)
	case refused < answers.Refused:
		return fmt.Errorf("%s; by the audit log %d were refused", answers, refused)
	}
	return nil
}

// deleteAcrossRestart does not compare with the audit log, whose last lines an API server that is killed does not
// write.
func (w *world) deleteAcrossRestart(lasting time.Duration) error {
	var (
		began     = time.Now()
		killed    atomic.Bool
		before    int // refused before it was killed
		restarted = make(chan error, 1)
	)
	go func() {
		time.Sleep(lasting / 5)
		restarted <- w.fault("component-kill", "kube-apiserver")
		killed.Store(true)
	}()
	answers, err := w.noneGoes(func(a hammer.Answers, pods int) bool {
		if !killed.Load() {
			before = a.Refused
		}
		return time.Since(began) > lasting && a.Refused-before >= pods && a.Silent > 0
	})
	if err := errors.Join(err, <-restarted); err != nil {
		return err
	}
	if answers.Silent == 0 {
		return fmt.Errorf("%s: the API server was not away", answers)
	}
	return nil
}

// noneGoes deletes all until the answers of so many pods are enough, and complains if one went.
func (w *world) noneGoes(enough func(a hammer.Answers, pods int) bool) (hammer.Answers, error) {
	before, err := w.uids()
	if err != nil {
		return hammer.Answers{}, err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	answers, err := hammer.DeletersUntil(ctx, func(a hammer.Answers) bool { return enough(a, len(before)) },
		w.env["KUBECONFIG"], cephNamespace, daemonPods, clients)
	if err != nil {
		return answers, err
	}
	after, err := w.uids()
	switch {
	case err != nil:
		return answers, err
	case !maps.Equal(before, after):
		return answers, fmt.Errorf("pods before: %v; after: %v", before, after)
	case answers.Granted > 0:
		return answers, fmt.Errorf("%d deletions were granted (%s)", answers.Granted, answers)
	case ctx.Err() != nil:
		return answers, fmt.Errorf("not enough answers in %s: %s", patience, answers)
	case !strings.Contains(answers.Example, "has to wait for its turn"):
		return answers, errors.New(answers.Example)
	}
	return answers, nil
}

// deletions of pods since then, as the API server's audit log tells of them.
func (w *world) deletions(since time.Time) ([]hammer.Deletion, int, error) {
	time.Sleep(auditlog.Delay)
	return hammer.Deletions(w.env[auditlog.Variable], cephNamespace, since)
}

func (w *world) waits(osd, says string) error {
	return w.eventually(patience, osd+" "+says, "kubectl", "-n", cephNamespace, "get", "events",
		"--field-selector", "reason=FailedDelete,involvedObject.kind=ReplicaSet", "-o",
		`jsonpath={range .items[*]}{.message}{"\n"}{end}`)
}

func (w *world) judged(least string) error {
	var n int
	if _, err := fmt.Sscan(least, &n); err != nil {
		return err
	}
	v, err := w.judge.Verdict(context.Background())
	switch {
	case err != nil:
		return err
	case len(v.Disturbances) > 0:
		return fmt.Errorf("OSDs of two zones at once: %s", strings.Join(v.Disturbances, "; "))
	case v.Failed > 0:
		return fmt.Errorf("%d evictions were answered with 500", v.Failed)
	case v.Evictions < n:
		return fmt.Errorf("only %d OSDs went", v.Evictions)
	}
	return nil
}
