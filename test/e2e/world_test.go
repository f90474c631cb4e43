package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper/test/hammer"
)

// world is one lab with lockkeeper installed in it.
type world struct {
	name string
	// owner is the test at whose end the world is taken down; nil: that of whoever calls up.
	owner *testing.T
	root  string
	dir   string
	env   map[string]string
	// procs are lockkeeper's own processes, by name: worker, watch.
	procs map[string]*exec.Cmd
	alive *liveness // of the watcher
	older string    // the checkout of an older version that is installed; "": this one is
	// ownLibrados: the worker uses the machine's librados, of whatever release Ceph is.
	ownLibrados bool
	// moments is the socket of whoever wants to hear of the worker's; "": nobody.
	moments      string
	guarded      bool                 // deploy/guard-deletions is installed
	fencing      string               // what fences nodes; "": nothing
	fenced       map[string]machine   // the Machine that each zone has lost
	rolled       map[string][]machine // all there were when a zone's were to be made anew
	fencer       *fencer              // who fences, where that is imitated
	template     string               // of a zone's Machines, while there is none
	ran          expenses             // what commands have cost
	looks        looks                // by which it is looked at
	soundCommand any                  // of the OSDs, before a scenario broke it
	cephMon      bool                 // lockkeeper looks after the mons
	knownMons    map[mon]string       // by their pods' UIDs, as a scenario remembers them
	// Of the scenario that runs now.
	scenarioBegan time.Time
	firstMap      int // of Ceph's OSDs
	saidWhole     bool
	beside        map[string]*background
	judge         *hammer.Judge // of those who delete; nil: nobody judges
}

// Where lockkeeper lives in the lab, and the policy that it looks after.
const (
	systemNamespace = "lockkeeper-system"
	cephNamespace   = "rook-ceph"
	policyName      = "rook-ceph"
)

// up makes the lab, installs lockkeeper in it and starts it. A failure ends t.
func (w *world) up(t *testing.T, flags []string) {
	t.Helper()
	w.makeLab(t, flags)
	w.install(t)
}

func (w *world) makeLab(t *testing.T, flags []string) {
	t.Helper()
	abs, err := filepath.Abs(*root)
	if err != nil {
		t.Fatal(err)
	}
	if w.owner == nil {
		w.owner = t
	}
	w.root, w.dir = abs, w.owner.TempDir()
	w.procs, w.env, w.beside = map[string]*exec.Cmd{}, map[string]string{}, map[string]*background{}
	lab := filepath.Join(abs, "lab", "bin", "lab")
	began := time.Now()
	w.owner.Cleanup(func() {
		for p := range w.procs {
			_ = w.stop(p, syscall.SIGTERM)
		}
		w.stopLooking()
		if err := w.collectRights(); err != nil {
			w.owner.Errorf("the audit log: %v", err)
		}
		w.owner.Log(w.ran.String())
		if *keep {
			w.owner.Logf("lab %s is left running: %s down --name %s", w.name, lab, w.name)
			return
		}
		if out, err := exec.Command(lab, "down", "--name", w.name).CombinedOutput(); err != nil {
			w.owner.Errorf("lab down: %v\n%s", err, out)
		}
	})
	if out, err := exec.Command(lab, append([]string{"up", "--name", w.name}, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	// The shell is who `lab env` is written for.
	out, err := exec.Command("bash", "-c", `eval "$("$0" env --name "$1")" && env -0`, lab, w.name).Output()
	if err != nil {
		t.Fatalf("lab env: %v", err)
	}
	for _, v := range strings.Split(string(out), "\x00") {
		if name, value, ok := strings.Cut(v, "="); ok {
			w.env[name] = value
		}
	}
	w.env["PATH"] = filepath.Join(abs, "bin") + ":" + filepath.Dir(lab) + ":" + w.env["PATH"]
	w.env["HOME"] = w.dir
	t.Logf("lab %s is up after %s", w.name, time.Since(began).Round(time.Millisecond))
}

// install sets lockkeeper up as its README says: CRDs, rights, a Ceph user that may do no more than it must, a policy.
func (w *world) install(t *testing.T) {
	t.Helper()
	installed := false
	defer func() { // also where Fatal ended it
		if !installed {
			w.describe(t)
		}
	}()
	if w.imitated() {
		if err := w.makeMachines(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.installObjects(); err != nil {
		t.Fatal(err)
	}
	if w.guarded {
		if err := w.guard(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"worker", "watch"} {
		if err := w.start(p); err != nil {
			t.Fatal(err)
		}
	}
	if w.ofCephOSD() {
		if err := w.run("kubectl", "apply", "-f", w.env["CEPHOSD"]); err != nil {
			t.Fatal(err)
		}
		if err := w.awaitUpdated(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.command("lab", "load", "start", "--name", w.name).CombinedOutput(); err != nil {
		t.Fatalf("lab load start: %v", err)
	}
	if err := until(patience, w.checkPolicy); err != nil {
		t.Fatal(err)
	}
	if w.cephMon {
		if err := w.adoptMons(); err != nil {
			t.Fatal(err)
		}
	}
	if w.imitated() {
		w.startFencing(t)
	}
	installed = true
}

// installObjects is the part of install that may be repeated, when a scenario has deleted the policy.
func (w *world) installObjects() error {
	args := []string{w.dir}
	if w.ofCephOSD() {
		args = []string{"--cephosd", cephOSDName, w.dir}
	}
	if w.fencing != "" {
		args = append([]string{"--fencing", w.fencing}, args...)
	}
	if w.cephMon {
		args = append([]string{"--mons"}, args...)
	}
	return w.run(filepath.Join(cmp.Or(w.older, w.root), "hack", "install-in-lab.sh"), args...)
}

func (w *world) environ() []string {
	var out []string
	for k, v := range w.env {
		out = append(out, k+"="+v)
	}
	return out
}

func (w *world) command(name string, args ...string) *exec.Cmd {
	if !strings.Contains(name, "/") {
		for _, dir := range filepath.SplitList(filepath.Join(w.older, "bin") + ":" + w.env["PATH"]) {
			if p := filepath.Join(dir, name); isExecutable(p) {
				name = p
				break
			}
		}
	}
	c := exec.Command(name, args...)
	c.Env = w.environ()
	w.ran.add(c)
	return c
}

func isExecutable(path string) bool {
	i, err := os.Stat(path)
	return err == nil && !i.IsDir() && i.Mode()&0o111 != 0
}

// start runs one of lockkeeper's processes with the rights of its service account and no others.
func (w *world) start(name string) error {
	if w.procs[name] != nil {
		return fmt.Errorf("%s is running already", name)
	}
	var c *exec.Cmd
	var health string
	switch name {
	case "worker":
		c = w.command("lab-in-image", "--name", w.name, w.command("lockkeeper-worker").Path)
		if w.ownLibrados {
			c = w.command("lockkeeper-worker")
		}
		if w.moments != "" {
			c = w.command("lab-in-image", "--name", w.name, os.Args[0])
			c.Env = append(c.Env, momentsEnv+"="+w.moments)
		}
	case "watch":
		var err error
		if health, err = freeAddress(); err != nil {
			return err
		}
		c = w.command("lockkeeper", "watch", "--leader-elect-namespace", systemNamespace, "--health-addr", health,
			"--metrics-addr", "0")
	default:
		return fmt.Errorf("unknown process %q: worker or watch", name)
	}
	c.Env = append(c.Env, "KUBECONFIG="+filepath.Join(w.dir, name+".kubeconfig"))
	log, err := os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return err
	}
	w.procs[name] = c
	if health != "" {
		w.alive = probe(health)
	}
	return nil
}

func (w *world) stop(name string, s syscall.Signal) error {
	c := w.procs[name]
	if c == nil {
		return fmt.Errorf("%s is not running", name)
	}
	delete(w.procs, name)
	if name == "watch" {
		w.alive.stop()
	}
	if err := c.Process.Signal(s); err != nil {
		return fmt.Errorf("%s has already ended: %v", name, c.Wait())
	}
	_ = c.Wait()
	return nil
}

// pauses returns what pauses between two looks, longer each time: a look is a process at least, and the labs that run
// side by side share few cores.
func pauses() func() {
	next := 100 * time.Millisecond
	return func() {
		time.Sleep(next)
		next = min(next*3/2, 600*time.Millisecond)
	}
}

// eventually repeats a command until its output matches.
func (w *world) eventually(within time.Duration, pattern, name string, args ...string) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return err
	}
	var last string
	pause := pauses()
	for deadline := time.Now().Add(within); ; pause() {
		var buf bytes.Buffer
		c := w.command(name, args...)
		c.Stdout, c.Stderr = &buf, &buf
		err := c.Run()
		if last = buf.String(); re.MatchString(last) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s %s: nothing matched %q within %s; last (%v):\n%s", name, strings.Join(args, " "), pattern,
				within, err, last)
		}
	}
}

// setup begins a scenario.
func (w *world) setup(e *testscript.Env) error {
	for k, v := range w.env { // all of it: where the lab is may depend on any of it
		e.Setenv(k, v)
	}
	e.Setenv("NS", cephNamespace)
	e.Setenv("POLICY", policyName)
	e.Setenv("LAB_NAME", w.name)
	e.Setenv("DEPLOY", filepath.Join(w.root, "deploy"))
	w.saidWhole = false
	e.Defer(w.endBeside)
	return w.begins()
}

// begins notes when a scenario begins.
func (w *world) begins() (err error) {
	w.scenarioBegan = time.Now()
	if w.ofCephOSD() {
		w.firstMap, err = w.lastMap()
	}
	return err
}

// commands are what scenarios have beside testscript's own: the words that every world knows, and two more for those
// that need more than words.
func (w *world) commands() map[string]func(*testscript.TestScript, bool, []string) {
	commands := w.speak()
	maps.Copy(commands, w.rolloutWords())
	maps.Copy(commands, w.osdWords())
	maps.Copy(commands, w.guardWords())
	maps.Copy(commands, w.told(w.fencingWords()))
	maps.Copy(commands, w.told(w.remediatorWords()))
	maps.Copy(commands, w.monWords())
	// eventually DURATION REGEXP COMMAND…: repeats the command until a line of its output matches.
	commands["eventually"] = func(ts *testscript.TestScript, neg bool, args []string) {
		d, err := time.ParseDuration(args[0])
		ts.Check(err)
		if neg {
			ts.Fatalf("use never")
		}
		ts.Check(w.eventually(d, args[1], args[2], args[3:]...))
	}
	// never DURATION REGEXP COMMAND…: for that long, no line of its output matches.
	commands["never"] = func(ts *testscript.TestScript, _ bool, args []string) {
		d, err := time.ParseDuration(args[0])
		ts.Check(err)
		if w.eventually(d, args[1], args[2], args[3:]...) == nil {
			ts.Fatalf("%q matched the output of %s", args[1], strings.Join(args[2:], " "))
		}
	}
	return commands
}
