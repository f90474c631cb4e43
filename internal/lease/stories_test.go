package lease_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestStories plays testdata/stories.txt.
func TestStories(t *testing.T) {
	text, err := os.ReadFile("testdata/stories.txt")
	require.NoError(t, err)
	for _, text := range strings.Split(string(text), "\nstory ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) { newTeller().play(t, rest) })
	}
}

type teller struct {
	state   lease.State
	refused map[string]string // domain → reason
	now     time.Time
	got     []string // the state after the last grant, as far as it was not compared yet
}

func newTeller() *teller { return &teller{refused: map[string]string{}, now: epoch} }

func (s *teller) play(t *testing.T, text string) {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		if want, ok := strings.CutPrefix(line, "> "); ok {
			require.NotEmpty(t, s.got, "%s is expected, but there is nothing more", want)
			require.Equal(t, want, s.got[0])
			s.got = s.got[1:]
			if next := i + 1; next == len(lines) || lines[next][0] != '>' {
				require.Empty(t, s.got, "more than the story tells")
			}
			continue
		}
		s.do(t, strings.Fields(line))
	}
}

func (s *teller) do(t *testing.T, words []string) {
	s.now = s.now.Add(time.Second)
	switch words[0] {
	case "request":
		p, ok := lease.ParsePriority(words[3])
		require.True(t, ok, "priority %q", words[3])
		s.state = s.state.Request(lease.Claim{
			WorkflowID: words[1], RunID: "run", Domain: zone(words[2]), Priority: p,
			Observing: slices.Contains(words, "observing"), Reason: "maintenance",
			FlagHosts: []string{"host"}, Requested: s.now, Reserve: reserve(words),
		})
	case "ready":
		s.state = s.state.Request(lease.Claim{
			WorkflowID: words[1], RunID: "run", Domain: zone(words[2]), Priority: lease.PriorityDrain, Reason: "maintenance",
			Reserve: lease.FirstReserve, Ready: true, Requested: s.now,
		})
	case "overdue":
		after, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		s.now = s.now.Add(after)
		s.got = nil
		for _, c := range s.state.Overdue(s.now, lease.SameDomain) {
			s.got = append(s.got, c.WorkflowID+" goes back")
			s.state = s.state.Release(c.WorkflowID, c.RunID)
		}
		if len(s.got) == 0 {
			s.got = []string{"nothing goes back"}
		}
	case "release":
		s.state = s.state.Release(words[1], "run")
	case "finish":
		var next *lease.Claim
		if len(words) > 4 {
			p, ok := lease.ParsePriority(words[4])
			require.True(t, ok, "priority %q", words[4])
			next = &lease.Claim{Ask: 1, Domain: zone(words[3]), Priority: p, Reason: "maintenance", FlagHosts: []string{"host"}}
		}
		s.state = s.state.Finish(words[1], "run", len(words) == 3, next)
	case "return":
		s.state, _ = s.state.Return(words[1], "run", s.now)
	case "refuse":
		s.refused[words[1]] = strings.Join(words[2:], " ")
	case "allow":
		delete(s.refused, words[1])
	case "grant":
		s.state, _ = s.state.Grant(lease.Rules{Together: lease.SameDomain, Gate: func(c lease.Claim) storage.Answer {
			reason, no := s.refused[c.Domain.Name]
			return storage.Answer{OK: !no, Reason: reason}
		}}, s.now)
		s.got = describe(s.state)
	default:
		require.Fail(t, "unknown command "+words[0])
	}
}

func reserve(words []string) time.Duration {
	if slices.Contains(words, "reserve") {
		return lease.FirstReserve
	}
	return 0
}

func describe(s lease.State) []string {
	var out []string
	for _, c := range s.Holders {
		line := fmt.Sprintf("holds %s %s %d", c.WorkflowID, c.Domain.Name, c.Token)
		if c.Finishing {
			line += " finishing"
		}
		if len(c.FlagHosts) == 0 {
			line += " without noout"
		}
		if c.Reserved() {
			line += " in reserve"
		}
		if c.Ready {
			line += ", ready: " + c.WaitsFor
		}
		out = append(out, line)
	}
	for _, c := range s.Queue {
		out = append(out, fmt.Sprintf("waits %s %s: %s", c.WorkflowID, c.Domain.Name, c.WaitsFor))
	}
	return out
}

func zone(name string) storage.FailureDomain {
	return storage.FailureDomain{Type: "zone", Name: name}
}

func TestPriorityNames(t *testing.T) {
	for p := lease.PriorityMigration; p <= lease.PriorityFailure; p += 10 {
		back, ok := lease.ParsePriority(p.String())
		require.True(t, ok)
		require.Equal(t, p, back)
	}
	_, ok := lease.ParsePriority("urgent")
	require.False(t, ok)
	require.Equal(t, "priority 7", lease.Priority(7).String())
}
