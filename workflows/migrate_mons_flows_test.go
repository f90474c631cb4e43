package workflows_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A monFlow is one thing that MigrateMons is for.
type monFlow struct {
	mons string
	set  func(w *monWorld) // what the spec and the nodes are
	in   workflows.MigrateMonsInput
	want []string                 // the mons afterwards, when nothing happened on the way
	done func(w *monWorld) string // what is missing afterwards; nil: only the number counts
}

var monFlows = map[string]monFlow{
	"to claims": {
		mons: "abc", in: workflows.MigrateMonsInput{Migrate: true}, want: []string{"d", "e", "f"},
		set: func(w *monWorld) { w.want.Storage[""] = monplan.Storage{Claim: true} }, done: allOnClaims,
	},
	"a dead one is replaced": {
		mons: "abc", want: []string{"a", "c", "d"},
		set: func(w *monWorld) { w.mons["b"].running = false },
	},
	"zone to zone": {
		mons: "abc", in: workflows.MigrateMonsInput{Migrate: true}, want: []string{"a", "b", "d"},
		set: func(w *monWorld) {
			w.want.Zones = []string{"x", "y", "v"}
			w.nodes = append(w.nodes, monplan.Node{Name: "n-v", Zone: "v"})
		},
		done: func(w *monWorld) string {
			for _, name := range w.monmap {
				if w.mons[name].zone == "z" {
					return "mon." + name + " is in zone z"
				}
			}
			return ""
		},
	},
	"three to five": {
		mons: "abc", want: []string{"a", "b", "c", "d", "e"}, set: func(w *monWorld) { w.want.Count = 5 },
	},
	"five to three": {
		mons: "abcde", in: workflows.MigrateMonsInput{Migrate: true}, want: []string{"a", "b", "c"},
		set: func(w *monWorld) { w.want.Count = 3 },
	},
	"one less, on three nodes": {
		mons: "abc", in: workflows.MigrateMonsInput{Migrate: true, OneLess: true}, want: []string{"d", "e", "f"},
		set: func(w *monWorld) {
			w.nodes, w.want.Storage[""] = w.nodes[:3], monplan.Storage{Claim: true}
		}, done: allOnClaims,
	},
	"another image": {
		mons: "abc", want: []string{"a", "b", "c"}, set: func(w *monWorld) { w.want.Template = "t2" },
		done: func(w *monWorld) string {
			for _, name := range w.monmap {
				if w.mons[name].template != "t2" {
					return "mon." + name + " has the old image"
				}
			}
			return ""
		},
	},
}

func allOnClaims(w *monWorld) string {
	for _, name := range w.monmap {
		if !w.mons[name].storage.Claim {
			return "mon." + name + " is not on a claim"
		}
	}
	return ""
}

// whole is what the flow has not reached; "": nothing.
func (f monFlow) whole(w *monWorld) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.monmap) != len(f.want):
		return fmt.Sprintf("the monmap is %v", w.monmap)
	case w.living() != len(w.monmap):
		return "not all are in quorum"
	case !slices.Equal(slices.Sorted(slices.Values(w.endpoints)), slices.Sorted(slices.Values(w.monmap))):
		return fmt.Sprintf("the endpoints are %v, and the monmap %v", w.endpoints, w.monmap)
	case f.done != nil:
		return f.done(w)
	}
	return ""
}

func TestMonFlows(t *testing.T) {
	t.Parallel()
	for name, f := range monFlows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playMons(t, f.mons, func(s *scene, w *monWorld) {
				f.set(w)
				out := s.moved(f.in)
				require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
				require.Equal(s, f.want, slices.Sorted(slices.Values(w.monmap)))
				require.Empty(s, f.whole(w))
			})
		})
	}
}

// A dead mon leaves before its successor joins, not before its time, and nobody is asked for the lease.
func TestDeadMonLeavesFirst(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		require.True(s, w.dies("b"))
		began := time.Now()
		s.drain(drainOf("node-a")) // which holds the lease for as long as it likes
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"FailOver: mon.d for mon.b"}, out.Steps)
		require.GreaterOrEqual(s, time.Since(began), w.want.HealthTimeout)
		require.Equal(s, []string{
			"Schedule d", "RemoveMon b", "StopMon b", "DropCanary d", "Start d", "AwaitQuorum d", "SaveEndpoints d",
		}, w.acts)
		require.Equal(s, awaitingNode, s.drainStatus("node-a").Phase)
		s.tellDrain("node-a", jobs.SignalDone)
	})
}

// While somebody drains, no living mon goes.
func TestMigrationWaitsForADrain(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Template = "t2"
		s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(30 * time.Minute)
		require.Empty(s, w.acts)
		status := s.migrateStatus()
		require.Equal(s, workflows.PhaseLease, status.Phase)
		require.Contains(s, status.WaitsFor, "the lease of mon a")
		s.tellDrain("node-a", jobs.SignalDone)
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, []string{"Restart: mon.a", "Restart: mon.b", "Restart: mon.c"}, out.Steps)
		require.Equal(s, []string{
			"RestartMon a", "AwaitQuorum a", "RestartMon b", "AwaitQuorum b", "RestartMon c", "AwaitQuorum c",
		}, w.acts, "one at a time")
	})
}

// What is refused changes nothing, and says why.
func TestMonsThatAreNotMoved(t *testing.T) {
	t.Parallel()
	claims := func(w *monWorld) { w.want.Storage[""] = monplan.Storage{Claim: true} }
	for name, c := range map[string]struct {
		set  func(w *monWorld)
		why  string
		runs workflows.MigrateMonsInput
	}{
		"three nodes": {
			func(w *monWorld) { claims(w); w.nodes = w.nodes[:3] }, "with --one-less",
			workflows.MigrateMonsInput{Migrate: true},
		},
		"somebody else's": {
			func(w *monWorld) { claims(w); w.elsewhere = "CephCluster rook" }, "CephCluster rook looks after these mons",
			workflows.MigrateMonsInput{Migrate: true},
		},
		"a spec that is wrong": {
			func(w *monWorld) {
				claims(w)
				w.refused = []input.Error{*input.Wrong("spec.zones[1].name", "v", "must be a zone that has a node")}
			}, `spec.zones[1].name: "v": must be a zone that has a node`, workflows.MigrateMonsInput{Migrate: true},
		},
		"one of two": {
			func(w *monWorld) {
				w.monmap, w.endpoints, w.want.Count, w.want.Template = w.monmap[:2], w.endpoints[:2], 2, "t2"
			}, "without mon.a only 1 of 2 mons would live", workflows.MigrateMonsInput{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playMons(t, "abc", func(s *scene, w *monWorld) {
				c.set(w)
				out := s.awaitMigration(s.migrate(c.runs), time.Minute)
				require.Equal(s, workflows.OutcomeRefused, out.Outcome)
				require.Contains(s, out.Why, c.why)
				require.Empty(s, w.acts)
			})
		})
	}
}

// Without a majority nothing works any more: the job waits, and says what a person must do.
func TestNoQuorumNoAct(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.mons["a"].running, w.mons["b"].running = false, false
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(time.Hour)
		require.Contains(s, s.migrateStatus().WaitsFor, "Ceph has not committed anything")
		require.Empty(s, w.acts)
		w.returns("a")
		w.returns("b")
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Empty(s, w.acts, "they were only seen now")
	})
}

// A newcomer that never comes into quorum leaves the monmap, and nothing of it is left. It is not tried again, until
// somebody asks for it.
func TestNewcomerThatNeverJoins(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Storage[""] = monplan.Storage{Claim: true}
		w.never = true
		out := s.moved(workflows.MigrateMonsInput{Migrate: true})
		require.Equal(s, workflows.OutcomeRefused, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "b", "c"}, w.monmap)
		require.Equal(s, []string{"a", "b", "c"}, w.endpoints)
		require.Contains(s, out.Why, "did not come into quorum")
		require.Len(s, out.Steps, 3)
		for _, step := range out.Steps {
			require.Contains(s, step, "rolled back: mon.")
		}
		w.never = false
		out = s.moved(workflows.MigrateMonsInput{Migrate: true})
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"g", "h", "i"}, w.monmap, "no name is given twice")
	})
}

// Where the scheduler has no place the job waits, says so, and takes nothing from anybody.
func TestNoPlaceForTheNewcomer(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.full = true
		require.True(s, w.dies("b"))
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(time.Hour)
		require.Equal(s, []string{"Schedule d"}, w.acts)
		require.Equal(s, workflows.PhaseMonSchedule, s.migrateStatus().Phase)
		require.Contains(s, s.migrateStatus().WaitsFor, "a node for mon.d")
		w.returns("b")
		out := s.awaitMigration(run, time.Minute)
		require.Equal(s, []string{"FailOver: mon.d for mon.b, rolled back: mon.b is in quorum again"}, out.Steps)
		require.Empty(s, w.leftovers())
	})
}

// While the storage heals from a step, the place of the next newcomer is got ready; it does not start before. If the
// place takes longer than a moment the lease goes back as soon as the storage is whole.
func TestTheNextPlaceIsReadyEarly(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"there is a place": false, "there is none": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playMons(t, "abc", func(s *scene, w *monWorld) {
				w.want.Storage[""] = monplan.Storage{Claim: true}
				acted := func(act string) bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return slices.Contains(w.acts, act)
				}
				run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
				require.True(s, s.Await(time.Hour, func() bool { return acted("AwaitQuorum d") }))
				s.Kill("mon.a", 0)
				w.change("the nodes are full, or not", func() { w.full = full })
				require.True(s, s.Await(time.Hour, func() bool { return acted("Schedule e") }))
				time.Sleep(20 * time.Second)
				require.NotEmpty(s, s.Memory().Lease.Holders, "the keeper has not seen it leave")
				require.False(s, acted("Start e"))
				require.Equal(s, workflows.PhaseHeal, s.migrateStatus().Phase)
				s.Start("mon.a")
				if full {
					free := func() bool { return len(s.Memory().Lease.Holders) == 0 }
					require.True(s, s.Await(time.Minute, free), "who waits for a node keeps nobody waiting")
					w.change("there is room again", func() { w.full = false })
				}
				out := s.awaitMigration(run, time.Hour)
				require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
			})
		})
	}
}

// An abort in any phase takes back what was never in quorum. What was stays, and so does the mon that it was to
// replace.
func TestAbortAMigrationInEachPhase(t *testing.T) {
	t.Parallel()
	phases := []string{
		workflows.PhaseMonSchedule, workflows.PhaseMonClaim, workflows.PhaseLease, workflows.PhaseMonStart,
		workflows.PhaseMonQuorum, workflows.PhaseMonSave, workflows.PhaseMonRemove,
	}
	for _, phase := range phases {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			playMons(t, "abc", func(s *scene, w *monWorld) {
				w.want.Storage[""] = monplan.Storage{Claim: true}
				hold := map[string]string{
					workflows.PhaseMonSchedule: "Schedule", workflows.PhaseMonClaim: "ClaimVolume",
					workflows.PhaseMonStart: "Start", workflows.PhaseMonQuorum: "AwaitQuorum",
					workflows.PhaseMonSave: "SaveEndpoints", workflows.PhaseMonRemove: "RemoveMon",
				}[phase]
				w.refuse = func(act string) bool { return hold != "" && strings.HasPrefix(act, hold) }
				if phase == workflows.PhaseLease {
					s.drain(drainOf("node-a"))
					s.awaitPhase("node-a", awaitingNode, time.Minute)
				}
				if phase == workflows.PhaseMonQuorum {
					w.never = true
				}
				run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
				require.True(s, s.Await(5*time.Minute, func() bool { return s.migrateStatus().Phase == phase }), "%+v",
					s.migrateStatus())
				time.Sleep(5 * time.Second)
				w.mu.Lock()
				w.refuse = nil
				w.mu.Unlock()
				s.signal(monsID, jobs.SignalAbort, nil)
				out := s.awaitMigration(run, 10*time.Minute)
				require.Equal(s, workflows.OutcomeAborted, out.Outcome)
				require.Empty(s, w.leftovers())
				if phase == workflows.PhaseLease {
					s.tellDrain("node-a", jobs.SignalDone)
				}
				s.awaitNothingLeft(5 * time.Minute)
				require.Empty(s, s.Memory().Lease.Holders)
				require.Nil(s, w.status, "nothing is under way")
				want := []string{"a", "b", "c"}
				if phase == workflows.PhaseMonSave || phase == workflows.PhaseMonRemove {
					want = append(want, "d")
				}
				require.Equal(s, want, w.monmap)
			})
		})
	}
}

// The CephMon is deleted: every mon stays, and what was made for one that was never started goes.
func TestCephMonIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Storage[""], w.full = monplan.Storage{Claim: true}, true
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		time.Sleep(time.Minute)
		w.change("the CephMon is deleted", func() { w.gone = true })
		s.signal(monsID, workflows.SignalMonsChanged, "the CephMon is deleted")
		out := s.awaitMigration(run, time.Minute)
		require.Equal(s, workflows.OutcomeGone, out.Outcome)
		require.Equal(s, []string{"a", "b", "c"}, w.monmap)
		require.Empty(s, w.leftovers())
	})
}

// Where nobody agrees any more a job that is aborted cannot take its newcomer out of the monmap. It tries, gives up
// after a while, and leaves a status by which the next job does.
func TestAbortWithoutQuorum(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Storage[""], w.never = monplan.Storage{Claim: true}, true
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		require.True(s, s.Await(time.Minute, func() bool { return s.migrateStatus().Phase == workflows.PhaseMonQuorum }))
		w.change("two are dead", func() { w.mons["a"].running, w.mons["b"].running = false, false })
		s.signal(monsID, jobs.SignalAbort, nil)
		require.Equal(s, workflows.OutcomeAborted, s.awaitMigration(run, 10*time.Minute).Outcome)
		require.Equal(s, []string{"a", "b", "c", "d"}, w.monmap)
		w.returns("a")
		w.returns("b")
		time.Sleep(time.Minute)
		out := s.moved(workflows.MigrateMonsInput{})
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"Migrate: mon.d for mon.a, rolled back: the job was ended"}, out.Steps)
		require.Equal(s, []string{"a", "b", "c"}, w.monmap, "and nobody has asked for another one")
	})
}

// What an aborted job was about to do nobody does: the next job, which the watcher starts, is not allowed to move mons.
func TestAbortIsForGood(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Storage[""] = monplan.Storage{Claim: true}
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		require.True(s, s.Await(time.Minute, func() bool { return s.migrateStatus().Phase == workflows.PhaseMonQuorum }))
		s.signal(monsID, jobs.SignalAbort, nil)
		s.awaitMigration(run, 10*time.Minute)
		acts := len(w.acts)
		out := s.moved(workflows.MigrateMonsInput{})
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Contains(s, out.Why, "`lockkeeper migrate-mons` moves and removes mons")
		require.Len(s, w.acts, acts)
	})
}

// A spec that is refused is refused by the next job, too.
func TestRefusedTwice(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Count = 5
		w.refused = []input.Error{*input.Wrong("spec.zones[1].name", "v", "must be a zone that has a node")}
		for range 2 {
			require.Equal(s, workflows.OutcomeRefused, s.moved(workflows.MigrateMonsInput{}).Outcome)
			require.Empty(s, w.acts)
		}
	})
}
