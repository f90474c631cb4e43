package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/workflows"
)

// MigrationResult is how a migration of mons ended, with its duration as DrainResult has it.
type MigrationResult struct{ workflows.MigrateMonsResult }

// MarshalJSON writes the duration as Kubernetes does.
func (r MigrationResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		workflows.MigrateMonsResult
		Took metav1.Duration `json:"took"`
	}{r.MigrateMonsResult, metav1.Duration{Duration: r.Took}})
}

// Migration is one job that looks after mons: what Temporal knows of it, and what it says of itself.
type Migration struct {
	Execution
	// Status is its own answer; nil with the reason in Silent when it gave none.
	Status *workflows.MigrateMonsStatus `json:"status,omitempty"`
	// Result is how it ended, if it did so by itself.
	Result *MigrationResult `json:"result,omitempty"`
}

// Succeeded tells whether it ended as it should: nothing is left to do.
func (m Migration) Succeeded() bool {
	return m.Result != nil && (m.Result.Outcome == workflows.OutcomeDone || m.Result.Outcome == workflows.OutcomeGone)
}

// Phase is what it does, or how it ended.
func (m Migration) Phase() string {
	switch {
	case m.State != Running && m.Result != nil:
		return m.Result.Outcome
	case m.State != Running:
		return m.State
	case m.Status == nil:
		return "unknown"
	case m.Status.Paused:
		return m.Status.Phase + ", paused"
	}
	return m.Status.Phase
}

// Work is the step that is under way, "Migrate mon.d for mon.a"; "" when there is none.
func (m Migration) Work() string {
	if m.State != Running || m.Status == nil || m.Status.Survey.Step.Work == nil {
		return ""
	}
	w := m.Status.Survey.Step.Work
	words := []string{string(w.Kind)}
	if w.Newcomer != "" {
		words = append(words, "mon."+w.Newcomer)
	}
	if w.Newcomer != "" && w.Old != "" {
		words = append(words, "for")
	}
	if w.Old != "" {
		words = append(words, "mon."+w.Old)
	}
	return strings.Join(words, " ")
}

// Quorum is "3/3": mons in quorum, of those in the monmap.
func (m Migration) Quorum() string {
	if m.Status == nil || m.Status.Survey.Counts.Mons == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", m.Status.Survey.Counts.InQuorum, m.Status.Survey.Counts.Mons)
}

// WaitsFor says what keeps it from going on; "" when nothing does.
func (m Migration) WaitsFor() string {
	switch {
	case m.State != Running:
		return m.Failure
	case m.Status == nil:
		return join(m.Silent, m.triesAgain())
	}
	return join(m.Status.WaitsFor, m.triesAgain())
}

func (m Migration) waitsSince() time.Time {
	if m.Status == nil {
		return m.Started
	}
	return m.Status.Since
}

func (m Migration) done() string {
	return fmt.Sprintf("%s after %s: %s", m.Result.Outcome, m.Result.Took.Round(time.Second), m.did())
}

// did is what it has done.
func (m Migration) did() string {
	text := "no step was needed"
	if n := len(m.Result.Steps); n > 0 {
		text = strings.Join(m.Result.Steps, "; ")
	}
	if m.Result.Why != "" {
		text += "; " + m.Result.Why
	}
	return text
}

func (m Migration) asks() string { return "" }

func (m Migration) heard(before Job, signal, _ string) bool {
	switch {
	case m.State != Running || m.RunID != before.execution().RunID:
		return true
	case m.Status == nil:
		return false
	}
	return shows(m.Status.JobStatus, signal)
}

// Describe is one sentence about it.
func (m Migration) Describe(now time.Time) string {
	if m.State != Running {
		s := fmt.Sprintf("%s ended %s: %s", m.WorkflowID, when(m.Ended, now), m.Phase())
		if m.Result != nil {
			s += ": " + m.did()
		}
		if m.Failure != "" {
			s += ": " + m.Failure
		}
		return s
	}
	s := fmt.Sprintf("%s runs since %s", m.WorkflowID, when(m.Started, now))
	if m.Status == nil {
		return s + "; " + m.WaitsFor()
	}
	s += ", phase " + m.Phase()
	if work := m.Work(); work != "" {
		s += ", " + work
	}
	if w := m.WaitsFor(); w != "" {
		s += ", waits for " + w
	}
	return s
}

func (m Migration) follower() follower { return &migrationFollower{} }

// migrationFollower turns looks at a migration into lines.
type migrationFollower struct{ last string }

func (f *migrationFollower) news(_ context.Context, c *Command, j Job) []string {
	m, _ := j.(Migration)
	if m.State != Running {
		return nil
	}
	line := m.Silent
	if m.Status != nil {
		line = m.Phase()
		if work := m.Work(); work != "" {
			line += ", " + work
		}
		if w := m.WaitsFor(); w != "" {
			line += ": waits for " + w
		}
		if q := m.Quorum(); q != "" {
			line += " (in quorum: " + q + ")"
		}
	}
	if line == f.last || line == "" {
		return nil
	}
	f.last = line
	return []string{clock(c.Now()) + "  " + line}
}
