package workflows_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

var (
	simSchedules = flag.Int("sim.n", 0, "how many schedules TestSimulation plays; 0: a share")
	simTwo       = flag.Int("sim.two", 0, "how many schedules TestTwoClustersInDisorder plays; 0: a share")
	simSeed      = flag.Int("sim.seed", 1, "of the first schedule; the next has the next")
	simRollouts  = flag.Int("sim.rollouts", 2, "people roll out OSDs, too, in every such schedule; 0: in none")
	simHosts     = flag.Int("sim.hosts", 7,
		"people rename and remove CRUSH hosts, too, in every such schedule; 0: in none")
	simByOSD    = flag.Int("sim.byosd", 5, "OSDs are the failure domains in every such schedule; 0: in none")
	simSlow     = flag.Int("sim.slow", 11, "OSDs take 10 s to end in every such schedule; 0: in none")
	simPolicies = flag.Int("sim.policies", 13,
		"other policies come and go in every such schedule, some of them for the same storage cluster; 0: in none")
	simMonNodes = flag.Int("sim.monnodes", 17, "mons have nodes of their own in every such schedule; 0: in none")
	simFencing  = flag.Int("sim.fencing", 9,
		"nodes lose their power or are cut off, and a remediator starts them again, in every such schedule; 0: in none")
	simOddities = flag.Int("sim.oddities", 8,
		"people set flags, copy marks, scale OSDs and let nobody go at rest, and probes fail, in every such schedule; "+
			"0: in none")
	simWithout = flag.String("sim.without", "",
		"events that do not happen although they are drawn, separated by commas; judge canary: that is not judged")
	simUnhelped = flag.Bool("sim.unhelped", false, "nobody gives nodes that are cut off their network back")
	simReport   = flag.Bool("sim.report", false, "print what was found as lines \"name value unit\"")
	simFirst    = flag.Bool("sim.first", false, "end with the first schedule that fails, and do not make it shorter")
	simAsIs     = flag.Bool("sim.asis", false, "tell schedules that fail as they are, and do not make them shorter")
	simFailures = flag.Int("sim.failures", 3, "tell so many stories of schedules that failed, then give up; 0: tell all")
)

// schedulesToPlay are as many as the command line says, else all, or a tenth of them, which every commit plays.
func schedulesToPlay(told, all int) int {
	switch {
	case told > 0:
		return told
	case turns.All():
		return all
	}
	return all / 10
}

func without() map[string]bool { return setOf(strings.Split(*simWithout, ",")) }

// TestSimulation lets people, upgrade tools, bad luck and crashes loose on a cluster, and then lets it come to rest.
// The World checks the invariants after each of its steps (I1 to I5, I9); in the end every drain has ended, nothing of
// ours is left over and all data is whole (I8). A schedule that fails is told as a story, as short as could be found.
func TestSimulation(t *testing.T) {
	t.Parallel()
	var (
		played, violations, stuck, fences, byNumber atomic.Int64
		mu                                          sync.Mutex
		told                                        int
	)
	began, many := time.Now(), schedulesToPlay(*simSchedules, 300)
	t.Run("schedules", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for {
					n := int(played.Add(1))
					if n > many {
						played.Add(-1)
						return
					}
					seed := *simSeed + n - 1
					if *simReport && n%500 == 0 {
						fmt.Fprintf(os.Stderr, "%d of %d schedules, %d failed, %s\n", n, many, violations.Load()+stuck.Load(),
							time.Since(began).Round(time.Second))
					}
					s := drawSchedule(seed)
					o := s.play(t)
					fences.Add(int64(o.fences))
					byNumber.Add(int64(o.byNumber))
					if !o.failed() {
						continue
					}
					mu.Lock()
					told++
					mine := told
					mu.Unlock()
					violations.Add(int64(min(len(o.violations), 1)))
					stuck.Add(int64(min(len(o.stuck), 1)))
					if *simFirst {
						fmt.Printf("schedule %d\n%s", seed, tale(s, o))
						os.Exit(1)
					}
					if *simFailures > 0 && mine > *simFailures {
						return
					}
					if !*simAsIs {
						s, o = s.shorter(t, o, time.Now().Add(20*time.Second))
					}
					t.Errorf("schedule %d (make sim N=1 SEED=%d)\n%s", seed, seed, tale(s, o))
				}
			})
		}
	})
	if *simReport {
		fmt.Fprintf(os.Stdout, "schedules %d count\nviolations %d count\nstuck %d count\n"+
			"fences %d count\nfences_by_number %d count\nschedules_per_s %.1f 1/s\n",
			played.Load(), violations.Load(), stuck.Load(), fences.Load(), byNumber.Load(),
			float64(played.Load())/time.Since(began).Seconds())
	}
}

// tale is a schedule and what happened in it, for people.
func tale(s schedule, o outcome) string {
	var b strings.Builder
	for _, v := range append(o.violations, o.stuck...) {
		fmt.Fprintf(&b, "  ! %s\n", v)
	}
	if s.OSDSet != "" {
		fmt.Fprintf(&b, "  a CephOSD by %s, DBs: %t\n", s.OSDSet, s.DBs)
	}
	if s.ByOSD > 0 {
		fmt.Fprintf(&b, "  OSDs are the failure domains, copies are %d apart\n", s.ByOSD)
	}
	if s.Grace > 0 {
		fmt.Fprintf(&b, "  OSDs take %s to end\n", s.Grace)
	}
	if s.Fencing {
		fmt.Fprintf(&b, "  nodes are fenced\n")
	}
	if s.ByNumber {
		fmt.Fprintf(&b, "  a MachineDisruptionBudget is asked; the first one waits: %t\n", s.FirstWaits)
	}
	fmt.Fprintf(&b, "  %d OSDs a node, requests take up to %d ms, %.0f%% of attempts fail, %.0f%% of answers are lost\n",
		s.OSDsPerNode, s.Latency, 100*s.Failures, 100*s.Lost)
	fmt.Fprintf(&b, "  %v\n", s.Events)
	if len(s.Hammers) > 0 {
		fmt.Fprintf(&b, "  hammers: %+v\n", s.Hammers)
	}
	const first, last = 250, 150
	for i, line := range o.story {
		switch left := len(o.story) - i; {
		case i == first && left > last:
			fmt.Fprintf(&b, "  … %d lines left out …\n", left-last)
		case i < first || left <= last:
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.String()
}
