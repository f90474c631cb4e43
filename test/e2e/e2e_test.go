// Package e2e runs lockkeeper in the lab: a real Kubernetes control plane, real Ceph daemons, a real Temporal server, the
// real binaries, and real `kubectl drain`. Each file in testdata is one scenario and reads like a runbook; what every
// scenario must leave behind is checked after each of them.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var (
	keep = flag.Bool("keep", false, "leave the labs running, to look around after a failure")
	root = flag.String("root", "../..", "the repository, with its built binaries in bin/ and lab/bin/")
)

// shapes are the labs that scenarios run in, by the name of their folder in testdata.
var shapes = map[string][]string{
	"two-nodes-per-zone":   {"--zones", "3", "--nodes-per-zone", "2", "--osds-per-node", "1"},
	"two-osds-on-one-node": {"--zones", "3", "--nodes-per-zone", "1", "--osds-per-node", "2"},
}

func TestScenarios(t *testing.T) {
	for _, shape := range []string{"two-osds-on-one-node", "two-nodes-per-zone"} {
		t.Run(shape, func(t *testing.T) {
			w := newWorld(t, "e2e-"+fmt.Sprint(os.Getpid())+"-"+shape[4:8], shapes[shape])
			files, err := filepath.Glob(filepath.Join("testdata", shape, "*.txtar"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no scenarios in testdata/%s: %v", shape, err)
			}
			// One after the other: they share the cluster.
			for _, file := range files {
				if t.Failed() {
					t.Fatalf("%s and what follows were not run: the cluster is not what they expect", file)
				}
				testscript.RunT(sequential{t}, testscript.Params{
					Files: []string{file}, Setup: w.setup, Cmds: w.commands(), RequireExplicitExec: true, RequireUniqueNames: true,
				})
			}
		})
	}
}

// sequential keeps testscript from running scenarios of one cluster side by side.
type sequential struct{ *testing.T }

func (s sequential) Parallel() {}

func (s sequential) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(sequential{t}) })
}

func (s sequential) Verbose() bool { return testing.Verbose() }
