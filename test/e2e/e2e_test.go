// Package e2e runs lockkeeper in the lab: a real Kubernetes control plane, real Ceph daemons, a real Temporal server,
// the real binaries, and real `kubectl drain`. Each scenario is a file that reads like a runbook; what every scenario
// must leave behind is checked after each of them. Those in test/scenarios are told in words that the simulation knows,
// too; those in testdata need more than that.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

var (
	keep = flag.Bool("keep", false, "leave the labs running, to look around after a failure")
	root = flag.String("root", "../..", "the repository, with its built binaries in bin/ and lab/bin/")
)

// twoNodesPerZone is the world of test/scenarios/README.md.
var twoNodesPerZone = []string{"--zones", "3", "--nodes-per-zone", "2", "--osds-per-node", "1"}

// shapes are what clusters scenarios run in, and which scenarios. What takes longest begins first.
var shapes = []struct {
	name  string
	flags []string
	files []string
	labs  int // that share the scenarios, at most
	// guarded: deploy/guard-deletions is installed.
	guarded bool
	// fencing is what fences nodes there, as hack/install-in-lab.sh takes it; "": nothing.
	fencing string
	// cephMon: lockkeeper looks after the mons.
	cephMon bool
}{
	{
		"rollouts",
		[]string{"--zones", "3", "--nodes-per-zone", "2", "--osds-per-node", "2", "--osd-pods", "none"},
		[]string{"testdata/rollouts/*.txtar"},
		2, false, "", false,
	},
	{
		"mons", append(slices.Clone(twoNodesPerZone), "--mon-storage", "hostpath"),
		[]string{"testdata/mons/*.txtar"},
		1, false, "", true,
	},
	{
		"two-nodes-per-zone", twoNodesPerZone,
		[]string{"testdata/two-nodes-per-zone/*.txtar", toldInWords + "/*.txtar"},
		3, false, "", false,
	},
	{
		"guarded",
		append(slices.Clone(twoNodesPerZone), "--controller-accounts", "own"),
		[]string{"testdata/guarded/*.txtar"},
		1, true, "", false,
	},
	{
		"two-osds-on-one-node",
		[]string{"--zones", "3", "--nodes-per-zone", "1", "--osds-per-node", "2"},
		[]string{"testdata/two-osds-on-one-node/*.txtar"},
		1, false, "", false,
	},
	{
		"machines",
		append(slices.Clone(twoNodesPerZone), "--machines", "7", "--osd-storage", "pvc", "--mon-storage", "hostpath"),
		[]string{"testdata/machines/*.txtar"},
		1, false, "ClusterAPI:" + machinesNamespace, true,
	},
	{
		"budgets", twoNodesPerZone,
		[]string{"testdata/budgets/*.txtar"},
		1, false, "MachineDisruptionBudget:" + machinesNamespace, false,
	},
	{
		"openshift", append(slices.Clone(twoNodesPerZone), "--osd-storage", "pvc"),
		[]string{"testdata/openshift/*.txtar"},
		1, false, "OpenShift:" + machinesNamespace, false,
	},
	{
		"node-health-checks", twoNodesPerZone,
		[]string{"testdata/node-health-checks/*.txtar"},
		1, false, "NodeHealthCheck:", false,
	},
}

// toldInWords is the folder of those that every commit plays in the simulation. In the lab they take turns, as do those
// that say that they are long.
const toldInWords = "../scenarios"

// worthALab is for how many scenarios more a lab more is made, which takes as long as one of them.
const worthALab = 10

// long begins a scenario that takes turns, and says how long it takes.
var long = regexp.MustCompile(`^# long (\w+)[:\n]`)

// inALab is how long a scenario takes that is told in words.
const inALab = 40 * time.Second

// played are the files of a shape that have their turn, in their order.
func played(t *testing.T, patterns []string) (files []string, complete bool) {
	complete = true
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no scenarios in %s: %v", pattern, err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var takes time.Duration
			if said := long.FindSubmatch(text); said != nil {
				if takes, err = time.ParseDuration(string(said[1])); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
			} else if strings.HasPrefix(pattern, toldInWords) {
				takes = inALab
			}
			name := filepath.Base(filepath.Dir(file)) + "/" + strings.TrimSuffix(filepath.Base(file), ".txtar")
			if !turns.Has(name, takes) {
				complete = false
				continue
			}
			files = append(files, file)
		}
	}
	return files, complete
}

// TestScenarios plays all scenarios. As many labs run side by side as -parallel says.
func TestScenarios(t *testing.T) {
	t.Parallel()
	planned, complete := 0, true
	t.Cleanup(func() { // after all labs have ended
		compareRights(t, complete && used.scenarios == planned && !t.Failed())
	})
	for _, shape := range shapes {
		if strings.HasPrefix(shape.fencing, "ClusterAPI") && withoutClusterAPI(t) {
			complete = false
			continue
		}
		files, whole := played(t, shape.files)
		planned, complete = planned+len(files), complete && whole
		labs := min(shape.labs, 1+len(files)/worthALab)
		for lab := range labs {
			var share []string
			for i, file := range files {
				if i%labs == lab {
					share = append(share, file)
				}
			}
			name := fmt.Sprintf("%s-%d", shape.name, lab+1)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := &world{
					name:    fmt.Sprintf("e2e-%d-%s", os.Getpid(), name[max(0, len(name)-6):]),
					owner:   t,
					guarded: shape.guarded, fencing: shape.fencing, cephMon: shape.cephMon,
				}
				play(t, w, shape.flags, share)
			})
		}
	}
}

// play plays scenarios one after the other, since they share a cluster. The cluster is made for the first of them that
// is to be run at all, and fails that one where it cannot be made.
func play(t *testing.T, w *world, flags, files []string) {
	each := func(scenario *testing.T) {
		if w.env == nil {
			w.up(scenario, flags)
		}
		if w.fencing != "" {
			stop := w.watchReleases(scenario)
			scenario.Cleanup(stop)
		}
		scenario.Cleanup(func() {
			used.Lock()
			used.scenarios++
			used.Unlock()
			switch {
			case scenario.Failed():
				w.describe(scenario)
			case !w.saidWhole: // a word of ours that testscript knows, too, may have ended it early
				scenario.Error("the scenario has not asked in the end whether all is whole")
			}
		})
	}
	for _, file := range files {
		if t.Failed() {
			t.Fatalf("%s and what follows were not run: the cluster is not what they expect", file)
		}
		testscript.RunT(sequential{T: t, each: each}, testscript.Params{
			Files: []string{file}, Setup: w.setup, Cmds: w.commands(), RequireExplicitExec: true, RequireUniqueNames: true,
		})
	}
}

// sequential keeps testscript from running scenarios of one cluster side by side.
type sequential struct {
	*testing.T
	each func(*testing.T) // is done before each
}

func (s sequential) Parallel() {}

func (s sequential) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) {
		s.each(t)
		f(sequential{T: t})
	})
}

func (s sequential) Verbose() bool { return testing.Verbose() }
