// mutants proves that the tests find bugs. Each *.txtar beside this file is one: a decision or an order that is wrong
// on purpose. For each in turn the tests that have to catch it are built with it in place of the right one, without a
// file of the repository being changed, and the mutant is caught if they fail.
//
// A mutant begins with lines "breaks: …", "invariant: …", "run: …" (the tests that have to catch it; TestSimulation by
// default), "package: …" (whose tests these are; the workflows' by default) and "rollouts: …" (in every how manieth
// schedule of TestSimulation people roll out OSDs, too; none by default). A section named for a source file has the
// lines to be replaced, a line "=>", and what replaces them. The lines must be found exactly once: a mutant that no
// longer applies is an error.
//
//	go run ./hack/mutants [name…]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// simulation is the test that catches most.
const simulation = "^TestSimulation$"

// workflows is the folder that it is in.
const workflows = "workflows"

type mutant struct {
	name, breaks, invariant string
	catcher
	files []txtar.File
}

// catcher is what has to catch a mutant.
type catcher struct {
	run      string // the tests
	tests    string // the folder that they are in
	rollouts int
	directed bool // but for the simulation, which takes minutes
	sound    bool // to show that they pass without any mutant
}

// random are the tests that play random schedules.
var random = []string{"TestSimulation", "TestMonsInDisorder", "TestLonghornInDisorder"}

var testName = regexp.MustCompile(`Test\w+`)

// foundBy says what kind of tests a catcher's are, as docs/mutants.md explains it: the package whose own tests they
// are, or, if they are those of the workflows, simulation, scenario or both.
func (c catcher) foundBy() string {
	if c.tests != workflows {
		return "`" + filepath.ToSlash(c.tests) + "`"
	}
	var kinds []string
	names := testName.FindAllString(c.run, -1)
	if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(random, name) }) {
		kinds = append(kinds, "simulation")
	}
	if slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(random, name) }) {
		kinds = append(kinds, "scenario")
	}
	return strings.Join(kinds, ", ")
}

// parts are a catcher's tests, in the order in which they are played.
func (c catcher) parts() []catcher {
	if is, err := regexp.MatchString(c.run, "TestSimulation"); err != nil || !is || c.run == simulation {
		return []catcher{c}
	}
	first, second := c, c
	first.directed, second.run = true, simulation
	return []catcher{first, second}
}

// isSound plays the tests without any mutant: what fails then catches nothing.
func (c catcher) isSound(ctx context.Context, program string, schedules int, known map[catcher]bool) error {
	c.sound = true
	if known[c] {
		return nil
	}
	began := time.Now()
	how, err := c.play(ctx, program, schedules)
	if err != nil || how != "" {
		return errors.Join(err, fmt.Errorf("%s fails without any mutant: %s", c.run, how))
	}
	known[c] = true
	fmt.Fprintf(os.Stderr, "%-28s all is well (%s, %s)\n", "none", c.run, time.Since(began).Round(time.Second))
	return nil
}

func main() {
	schedules := flag.Int("n", 400,
		"how many schedules to play until a mutant counts as survived; without any mutant, none of them fails")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *schedules, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, schedules int, only []string) error {
	all, err := read(filepath.Join("hack", "mutants"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockkeeper-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if len(only) > 0 {
		all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(only, m.name) })
	}
	return play(ctx, all, dir, schedules)
}

// play plays each mutant, while the next one is being built.
func play(ctx context.Context, all []mutant, dir string, schedules int) error {
	ctx, stop := context.WithCancel(ctx)
	builds := make(chan build)
	var builder sync.WaitGroup
	builder.Go(func() { buildAll(ctx, all, dir, builds) })
	defer builder.Wait()
	defer stop()
	sound := map[catcher]bool{}
	total, caught := 0, 0
	for b := range builds {
		if b.err != nil {
			return fmt.Errorf("%s: %w", b.name, b.err)
		}
		began, how := time.Now(), ""
		for _, c := range b.parts() {
			if err := c.isSound(ctx, b.none, schedules, sound); err != nil {
				return err
			}
			var err error
			if how, err = c.play(ctx, b.mutated, schedules); err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
			if how != "" {
				break
			}
		}
		total++
		if how == "" {
			fmt.Fprintf(os.Stderr, "%-28s SURVIVED (%s)\n", b.name, time.Since(began).Round(time.Second))
			continue
		}
		caught++
		fmt.Fprintf(os.Stderr, "%-28s caught after %s: %s\n", b.name, time.Since(began).Round(time.Second), how)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(os.Stdout, "mutants_total %d count\nmutants_caught %d count\n", total, caught)
	if caught < total {
		return fmt.Errorf("%d of %d survived", total-caught, total)
	}
	return nil
}

// build is the tests that have to catch a mutant, as programs: with the mutant, and without any.
type build struct {
	mutant
	mutated, none string
	err           error
}

// buildAll builds each mutant's tests, in the order of the mutants.
func buildAll(ctx context.Context, all []mutant, dir string, out chan<- build) {
	defer close(out)
	none := map[string]string{} // by the folder of the tests
	for i, m := range all {
		b := build{mutant: m}
		if none[m.tests] == "" {
			none[m.tests] = filepath.Join(dir, fmt.Sprintf("none-%d.test", len(none)))
			b.err = mutant{name: "none", catcher: m.catcher}.build(ctx, dir, none[m.tests])
		}
		b.none = none[m.tests]
		b.mutated = filepath.Join(dir, fmt.Sprintf("mutated-%d.test", i%2)) // one is built while the other is played
		if b.err == nil {
			b.err = m.build(ctx, dir, b.mutated)
		}
		select {
		case out <- b:
		case <-ctx.Done():
			return
		}
	}
}

// read reads all mutants, in the order of their names.
func read(dir string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no mutants in %s: run from the top of the repository (%w)", dir, err)
	}
	var out []mutant
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			return nil, err
		}
		m := mutant{
			name: strings.TrimSuffix(filepath.Base(path), ".txtar"), files: a.Files,
			catcher: catcher{run: simulation, tests: workflows},
		}
		for line := range strings.Lines(string(a.Comment)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "breaks":
				m.breaks = value
			case "invariant":
				m.invariant = value
			case "run":
				m.run = value
			case "package":
				m.tests = filepath.Clean(value)
			case "rollouts":
				if m.rollouts, err = strconv.Atoi(value); err != nil || m.rollouts < 1 {
					return nil, fmt.Errorf("%s: rollouts: %q must be a number, 1 at least", path, value)
				}
			case "":
			default:
				return nil, fmt.Errorf("%s: %q: known are breaks, invariant, run, package, rollouts", path, key)
			}
		}
		if m.breaks == "" || m.invariant == "" || len(m.files) == 0 {
			return nil, fmt.Errorf("%s: breaks, invariant and a source file are required", path)
		}
		out = append(out, m)
	}
	return out, nil
}

// build builds the tests with the mutant in them.
func (m mutant) build(ctx context.Context, dir, test string) error {
	overlay, err := m.overlay(dir)
	if err != nil {
		return err
	}
	//nolint:gosec // a folder of this repository
	if out, err := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-ldflags=-s", "-c", "-o", test,
		"./"+m.tests).CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %w\n%s", err, out)
	}
	return nil
}

// play runs the tests that are built in a program. how is the first thing that they found; "" if nothing.
func (c catcher) play(ctx context.Context, program string, schedules int) (how string, err error) {
	args := []string{"-test.run", c.run, "-test.timeout", c.patience()}
	if c.directed {
		args = append(args, "-test.skip", simulation)
	}
	if c.tests == workflows {
		args = append(args, fmt.Sprintf("-sim.first=%t", !c.sound), fmt.Sprintf("-sim.rollouts=%d", c.rollouts),
			fmt.Sprintf("-sim.n=%d", schedules))
	}
	//nolint:gosec // the tests that were just built
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = c.tests, append(os.Environ(), "TEST_ALL=1")
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return "", nil
	case !errors.As(err, &failed):
		return "", err
	}
	return firstFinding(string(out)), nil
}

// patience is how long the tests may take. A mutant may go round in circles for ever; only random schedules take more
// than a minute without one.
func (c catcher) patience() string {
	if strings.Contains(c.run, "Simulation") || strings.Contains(c.run, "InDisorder") {
		return "15m"
	}
	return "4m"
}

// firstFinding is the line that says what went wrong.
func firstFinding(out string) string {
	first := "failed"
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if found, ok := strings.CutPrefix(line, "! "); ok {
			return clip(found)
		}
		if first == "failed" && strings.Contains(line, "_test.go:") {
			first = clip(line)
		}
	}
	return first
}

func clip(s string) string {
	const most = 140
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// overlay writes the mutated sources and what tells the compiler of them.
func (m mutant) overlay(dir string) (string, error) {
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	changed := map[string]string{}
	for i, f := range m.files {
		source, known := changed[f.Name]
		if !known {
			text, err := os.ReadFile(f.Name)
			if err != nil {
				return "", err
			}
			source = string(text)
		}
		from, to, ok := strings.Cut(string(f.Data), "=>\n")
		if !ok {
			return "", fmt.Errorf("%s: no line \"=>\"", f.Name)
		}
		if !strings.HasSuffix(from, "\n") {
			to = strings.TrimSuffix(to, "\n") // the archive's, not the part of a line that is replaced
		}
		if n := strings.Count(source, from); n != 1 {
			return "", fmt.Errorf("%s: what is to be replaced occurs %d times, must be once:\n%s", f.Name, n, from)
		}
		changed[f.Name] = strings.Replace(source, from, to, 1)
		path, err := filepath.Abs(f.Name)
		if err != nil {
			return "", err
		}
		o.Replace[path] = filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.name, i))
		if err := os.WriteFile(o.Replace[path], []byte(changed[f.Name]), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, m.name+".json")
	return path, os.WriteFile(path, text, 0o600)
}
