// testtimes reads what `make test TESTFLAGS=-json` prints and tells where the time went: by stage, package and test,
// and by step of each scenario, a step being what follows a comment in its script. What tests that failed said is
// printed as it comes.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testtimes:", err)
		os.Exit(1)
	}
}

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // s
}

// timing is how long something took.
type timing struct {
	what    string
	seconds float64
}

// times is what was read so far.
type times struct {
	stages, packages, tests, steps []timing
	said                           map[string][]string // by package and test, until it ends
}

var (
	stageLine = regexp.MustCompile(`^== (.*): (?:ok, (\d+) s|FAILED \(\d+\) after (\d+) s)$`)
	// stepLine is how testscript ends the headline of a section.
	stepLine = regexp.MustCompile(`^\s*# (.*) \(([0-9.]+)s\)$`)
)

func report(in io.Reader, out io.Writer) error {
	t := times{said: map[string][]string{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if line := lines.Text(); !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
			t.stage(line)
			fmt.Fprintln(out, line)
			continue
		}
		t.take(e, out)
	}
	t.print(out)
	return lines.Err()
}

func (t *times) stage(line string) {
	if m := stageLine.FindStringSubmatch(line); m != nil {
		seconds, _ := strconv.ParseFloat(m[2]+m[3], 64) // one of them is empty
		t.stages = append(t.stages, timing{m[1], seconds})
	}
}

func (t *times) take(e event, out io.Writer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		t.said[key] = append(t.said[key], e.Output)
		if m := stepLine.FindStringSubmatch(strings.TrimRight(e.Output, "\n")); m != nil {
			seconds, _ := strconv.ParseFloat(m[2], 64)
			t.steps = append(t.steps, timing{e.Test + ": " + m[1], seconds})
		}
	case "pass", "fail", "skip":
		if e.Action == "fail" {
			fmt.Fprint(out, strings.Join(t.said[key], ""))
		}
		delete(t.said, key)
		if e.Test == "" {
			t.packages = append(t.packages, timing{e.Package, e.Elapsed})
		} else {
			t.tests = append(t.tests, timing{short(e.Package) + " " + e.Test, e.Elapsed})
		}
	}
}

// short is the end of a package's path.
func short(pkg string) string { return pkg[strings.LastIndex(pkg, "/")+1:] }

func (t *times) print(out io.Writer) {
	for _, s := range t.stages {
		fmt.Fprintf(out, "stage %.0f s  %s\n", s.seconds, s.what)
	}
	printLongest(out, "package", t.packages, 20)
	printLongest(out, "test", t.tests, 40)
	printLongest(out, "step", t.steps, 60)
}

// printLongest leaves out what took less than a second, and says how much that is.
func printLongest(out io.Writer, kind string, all []timing, most int) {
	slices.SortStableFunc(all, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	var rest float64
	for i, x := range all {
		if i < most && x.seconds >= 1 {
			fmt.Fprintf(out, "%s %.1f s  %s\n", kind, x.seconds, x.what)
		} else {
			rest += x.seconds
		}
	}
	fmt.Fprintf(out, "%s %.1f s  all others, of %d\n", kind, rest, len(all))
}
