package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestScenarios plays the scenarios of test/scenarios, which also run in the real lab, in the simulated world. That
// they have the same outcome in both is what makes the simulation worth believing.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "test", "scenarios", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				w := &wording{scene: s, began: map[string]<-chan error{}}
				testscript.RunT(teller{T: s.T, scene: s},
					testscript.Params{Files: []string{file}, Cmds: w.commands(), RequireExplicitExec: true, RequireUniqueNames: true})
				if !w.saidWhole {
					s.Error("a scenario ends with the word whole")
				}
			})
		})
	}
}

// teller is what testscript needs to run inside of a bubble, where there are no subtests: it runs the one script right
// here.
type teller struct {
	*testing.T
	scene *scene
}

var errScenario = errors.New("the scenario has failed")

func (teller) Parallel()     {}
func (teller) Verbose() bool { return true }

func (l teller) Log(args ...any) { l.scene.Tell("%s", strings.TrimSpace(fmt.Sprint(args...))) }

func (l teller) Fatal(args ...any) {
	l.T.Error(args...)
	panic(errScenario)
}

func (l teller) FailNow() {
	l.T.Fail()
	panic(errScenario)
}

func (l teller) Run(_ string, f func(testscript.T)) {
	defer func() {
		if r := recover(); r != nil && r != any(errScenario) {
			panic(r)
		}
	}()
	f(l)
}

// wording is what the words of test/scenarios/README.md mean in the simulated world.
type wording struct {
	*scene
	began     map[string]<-chan error // drains and upgrades
	saidWhole bool
}

// limit is how long a word waits for what it says.
const limit = 3 * time.Minute

func (w *wording) commands() map[string]func(*testscript.TestScript, bool, []string) {
	out := map[string]func(*testscript.TestScript, bool, []string){}
	for name, does := range w.words() {
		out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("%s has no opposite", name)
			}
			args = append(args, "", "")
			if err := does(args[0], args[1]); err != nil {
				ts.Fatalf("%s %s: %v", name, strings.TrimSpace(strings.Join(args, " ")), err)
			}
		}
	}
	return out
}

func (w *wording) words() map[string]func(a, b string) error {
	done := func(f func(a, b string)) func(a, b string) error {
		return func(a, b string) error { f(a, b); return nil }
	}
	return map[string]func(a, b string) error{
		"drain":       done(func(node, _ string) { w.began["drain "+node] = w.KubectlDrain(node) }),
		"drained":     func(node, _ string) error { return w.finished("drain " + node) },
		"not-drained": func(node, _ string) error { return w.unfinished("drain " + node) },
		"upgrade":     done(func(node, _ string) { w.began["upgrade "+node] = w.upgradeNode(node) }),
		"upgraded":    func(node, _ string) error { return w.finished("upgrade " + node) },

		"job":       done(func(node, _ string) { w.drain(drainOf(node)) }),
		"job-phase": w.jobPhase,
		"job-ended": w.jobEnded,
		"signal":    done(func(node, signal string) { w.tellDrain(node, signal) }),

		"cordon":       done(func(node, _ string) { w.PersonCordons(node, true) }),
		"uncordon":     done(func(node, _ string) { w.PersonCordons(node, false) }),
		"reboot":       done(func(node, _ string) { w.Reboot(node); time.Sleep(4 * time.Second) }),
		"delete-node":  done(func(node, _ string) { w.DeleteNode(node) }),
		"restore-node": done(func(node, _ string) { w.RestoreNode(node) }),

		"fail":       done(func(daemon, _ string) { w.Scale(daemonName(daemon), 0) }),
		"mend":       done(func(daemon, _ string) { w.Scale(daemonName(daemon), 1) }),
		"hang":       done(func(what, _ string) { w.Hang(true, daemonName(what)) }),
		"resume":     done(func(what, _ string) { w.Hang(false, daemonName(what)) }),
		"disconnect": done(func(osd, _ string) { w.Disconnect(osd) }),
		"out":        done(func(osd, _ string) { w.MarkOut(osd, true) }),
		"in":         done(func(osd, _ string) { w.MarkOut(osd, false) }),
		"crash":      done(func(process, _ string) { w.process(process, false) }),
		"start":      done(func(process, _ string) { w.process(process, true) }),

		"noout-by-hand":       done(func(host, _ string) { w.PersonSetsNoout(host, true) }),
		"unset-noout-by-hand": done(func(host, _ string) { w.PersonSetsNoout(host, false) }),
		"noout":               func(host, _ string) error { return w.nooutIs(host, true) },
		"no-noout":            func(host, _ string) error { return w.nooutIs(host, false) },

		"open":      func(zone, _ string) error { return w.allowed(only(strings.TrimPrefix(zone, "zone-")), "zone "+zone) },
		"closed":    func(string, string) error { return w.allowed("closed", "no") },
		"at-rest":   func(string, string) error { return w.allowed("at rest", "any node") },
		"no-budget": func(string, string) error { return w.allowed("none", "") },
		"refused":   func(node, _ string) error { return w.refused(node) },
		"may-go":    func(node, _ string) error { return w.mayGo(node) },

		"edit-budget":   done(func(string, string) { w.TamperWithBudget(false) }),
		"delete-budget": done(func(string, string) { w.TamperWithBudget(true) }),
		"policy":        w.policy,
		"delete-policy": func(string, string) error {
			w.DeletePolicy()
			return w.eventually(func() error { return unless(!w.PolicyExists(), "it is still there") })
		},
		"create-policy": done(func(string, string) { w.RestorePolicy() }),
		"pass": func(d, _ string) error {
			duration, err := time.ParseDuration(d)
			time.Sleep(duration)
			return err
		},
		"whole": func(string, string) error { w.saidWhole = true; return w.eventually(w.isWhole) },
	}
}

// daemonName is the simulation's name of a daemon; nodes keep theirs.
func daemonName(name string) string {
	if name == "mgr" {
		return "mgr.a"
	}
	return name
}

// eventually repeats a check until it passes.
func (w *wording) eventually(check func() error) error {
	var err error
	w.Await(limit, func() bool { err = check(); return err == nil })
	return err
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func (w *wording) finished(what string) error {
	select {
	case err := <-w.began[what]:
		return err
	case <-time.After(10 * time.Minute):
		return fmt.Errorf("it has not ended; the budget: %s", w.Budget())
	}
}

func (w *wording) unfinished(what string) error {
	select {
	case err := <-w.began[what]:
		return fmt.Errorf("it has ended: %w", err)
	case <-time.After(10 * time.Second):
		return nil
	}
}

func (w *wording) upgradeNode(node string) <-chan error {
	drained, out := w.KubectlDrain(node), make(chan error, 1)
	go func() {
		err := <-drained
		if err == nil {
			w.Reboot(node)
			time.Sleep(4 * time.Second)
			w.PersonCordons(node, false)
		}
		out <- err
	}()
	return out
}

func (w *wording) jobPhase(node, phase string) error {
	return w.eventually(func() error {
		s := w.drainStatus(node)
		return unless(w.runs(jobs.DrainNode.ID(node)) && s.Phase == phase && s.WaitsFor != "", "it is %+v", s.JobStatus)
	})
}

func (w *wording) jobEnded(node, outcome string) error {
	id := jobs.DrainNode.ID(node)
	return w.eventually(func() error {
		w.mu.Lock()
		e, ok := w.ended[id+"@"+w.last[id]]
		w.mu.Unlock()
		switch {
		case !ok:
			return errors.New("it has not ended")
		case e.err != nil:
			return e.err
		default:
			return unless(e.result.Outcome == outcome, "it has ended: %s", e.result.Outcome)
		}
	})
}

func (w *wording) process(name string, up bool) {
	if name == "worker" {
		w.crashWorker(!up)
	} else {
		w.blindfold(!up)
	}
}

func (w *wording) nooutIs(host string, set bool) error {
	return w.eventually(func() error {
		return unless((w.Noout(host) != "") == set, "noout of %s: %q", host,
			w.Noout(host))
	})
}

// allowed waits until the budget and the policy's status both say so.
func (w *wording) allowed(budget, mayDrain string) error {
	return w.eventually(func() error {
		says, status := w.Budget(), w.Status()
		return unless(strings.HasPrefix(says, budget) && (mayDrain == "" || status.MayDrain == mayDrain),
			"the budget: %s; the policy: may drain %q: %s", says, status.MayDrain, status.Message)
	})
}

func (w *wording) refused(node string) error {
	for _, osd := range w.OSDsOn(node) {
		if err := w.MayGo(osd); !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("%s: answered %v", osd, err)
		}
	}
	return nil
}

func (w *wording) mayGo(node string) error {
	return w.eventually(func() error {
		for _, osd := range w.OSDsOn(node) {
			if err := w.MayGo(osd); err != nil {
				return fmt.Errorf("%s: %w", osd, err)
			}
		}
		return nil
	})
}

// policy changes a field of spec.ceph, as a patch would.
func (w *wording) policy(field, value string) error {
	raw := json.RawMessage(value)
	if !json.Valid(raw) {
		raw, _ = json.Marshal(value)
	}
	patch, err := json.Marshal(map[string]json.RawMessage{field: raw})
	if err != nil {
		return err
	}
	w.ChangePolicy(field+": "+value, func(s *v1alpha1.CephSpec) { err = json.Unmarshal(patch, s) })
	return err
}

func (w *wording) isWhole() error {
	wrong := slices.Concat(w.Whole(), w.Leftovers(), w.Violations())
	for _, node := range w.Nodes() {
		if w.runs(jobs.DrainNode.ID(node)) {
			wrong = append(wrong, "the drain of "+node+" still runs")
		}
	}
	return unless(len(wrong) == 0, "%s", strings.Join(wrong, "; "))
}
