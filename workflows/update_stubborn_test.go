package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// stubborn is a set that does not do what it is told before it has been told so many times.
type stubborn struct {
	*many
	spare, create, superfluous int // how many times it says no
	asked                      int // how many times it was told
	refuses                    *input.Error
	then                       func() // happens when nobody waits for superfluous OSDs any more
	reports                    []activities.OSDSetReport
}

func newStubborn() *stubborn {
	s := &stubborn{many: &many{osds: []rollout.OSD{{
		Key: "node-a:/dev/vdb", Name: "osd.0", Host: "node-a", Domain: "zone-x", State: rollout.OutOfDate, Serves: true,
	}}}}
	s.many.osdSet = s
	return s
}

func (s *stubborn) Survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	if s.then != nil && s.asked == s.superfluous {
		s.then()
		s.then = nil
	}
	out, err := s.many.Survey(ctx, in)
	if s.done == len(s.osds) && s.superfluous > s.asked {
		s.asked++
		out.Superfluous = []activities.Superfluous{{Key: "node-b:/dev/vdb", Why: "osd.9 has data that is nowhere else"}}
		out.LookAgain = time.Minute
	}
	return out, err
}

func (s *stubborn) Spare(_ context.Context, in activities.Replacement) ([]rollout.OSD, storage.Answer, error) {
	if s.asked++; s.asked <= s.spare {
		return nil, storage.Answer{Reason: "1 PG would be offline"}, nil
	}
	return in.OSDs, storage.Answer{OK: true}, nil
}

func (s *stubborn) Create(_ context.Context, _ activities.OSDSetRef, keys []string) (activities.Created, error) {
	switch s.asked++; {
	case s.asked > s.create:
		s.osds[s.done].State = rollout.UpToDate
		s.done++
		return activities.Created{}, nil
	case s.refuses != nil:
		return activities.Created{Refused: s.refuses}, nil //nolint:nilerr // it is the answer
	default:
		return activities.Created{Hindered: []activities.Superfluous{{Key: keys[0], Why: "pod osd-a is somebody else's"}}},
			nil
	}
}

func (s *stubborn) Report(_ context.Context, r activities.OSDSetReport) error {
	s.reports = append(s.reports, r)
	return nil
}

// play rolls out to the end, and tells how long it took.
func (s *stubborn) play(t *testing.T) (result workflows.UpdateOSDsResult) {
	t.Helper()
	_, result, again := s.run(t, workflows.UpdateOSDsInput{CephOSD: sim.Key.Namespace + "/" + sim.CephOSDName},
		&tally{full: func() {}})
	require.False(t, again)
	require.Equal(t, workflows.OutcomeDone, result.Outcome)
	require.Equal(t, 1, s.done)
	return result
}

// told are the reports of which something is true.
func (s *stubborn) told(is func(activities.OSDSetReport) bool) (out []activities.OSDSetReport) {
	for _, r := range s.reports {
		if is(r) {
			out = append(out, r)
		}
	}
	return out
}

// TestOSDThatIsNeverSpared halts the rollout, which asks more and more seldom, and goes on by itself.
func TestOSDThatIsNeverSpared(t *testing.T) {
	t.Parallel()
	s := newStubborn()
	s.spare = 12
	result := s.play(t)
	require.Equal(t, 13, s.asked)
	// Twice as long each time until it is five minutes: 10 s, 20, 40, 80, 160, and then seven times 300.
	require.Equal(t, 10*time.Second*31+7*5*time.Minute, result.Took.Truncate(time.Second))
	halted := s.told(func(r activities.OSDSetReport) bool { return r.Halted != nil })
	require.NotEmpty(t, halted)
	require.Contains(t, halted[0].Halted.Reason, "has not been able to spare osd.0")
	require.Contains(t, halted[0].Halted.Reason, "1 PG would be offline")
	require.Equal(t, activities.HoldStorage, halted[0].Holds)
	last := s.reports[len(s.reports)-1]
	require.Nil(t, last.Halted)
	require.Equal(t, workflows.OutcomeDone, last.Outcome)
}

// TestPodThatCannotBeMade: the API server rejects it, or somebody else's has its name. Neither is tried without a
// pause, nor kept from whoever has to mend it.
func TestPodThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tries   int
		refuses *input.Error
		says    string
	}{
		// In half an hour 63 tries, since its OSD is down, and then one every hour.
		"rejected": {65, input.Wrong("spec.podTemplate.spec.priorityClassName", "ceph-osd",
			"no PriorityClass with name ceph-osd was found"), "spec.podTemplate.spec.priorityClassName"},
		"hindered": {20, nil, "pod osd-a is somebody else's"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStubborn()
			s.osds[0].State, s.osds[0].Serves = rollout.Missing, false
			s.create, s.refuses = c.tries, c.refuses
			result := s.play(t)
			require.Equal(t, c.tries+1, s.asked)
			require.Greater(t, result.Took, time.Hour)
			require.Less(t, result.Took, 3*time.Hour)
			waiting := s.told(func(r activities.OSDSetReport) bool { return r.Message != "" })
			require.NotEmpty(t, waiting)
			require.Contains(t, waiting[0].Message, c.says)
			require.Equal(t, c.refuses != nil, len(waiting[0].Refused) > 0)
			for _, r := range waiting {
				require.Equal(t, waiting[0].Since, r.Since, "it is one wait")
			}
		})
	}
}

// TestRefusedAfterALongRest: a rollout has rested for hours when a drain evicts an OSD whose pod is then refused. How
// long it rested before has no part in how soon the next try comes.
func TestRefusedAfterALongRest(t *testing.T) {
	t.Parallel()
	s := newStubborn()
	s.many.osds[0].State = rollout.UpToDate
	s.done, s.superfluous, s.create = 1, 10, 30
	s.refuses = input.Wrong("spec.podTemplate", "ceph-osd", "an admission webhook denied the request")
	s.then = func() {
		s.done, s.osds[0].State, s.osds[0].Serves = 0, rollout.Missing, false
	}
	result := s.play(t)
	require.Equal(t, 31, s.asked)
	const rested = 63*time.Minute + 4*time.Hour // as in TestOSDThatLeftTheSpec
	require.Greater(t, result.Took, rested)
	require.Less(t, result.Took, rested+15*time.Minute)
}

// TestOSDThatLeftTheSpec is looked at until it may go, and not before: nobody in Kubernetes tells when Ceph needs it no
// more.
func TestOSDThatLeftTheSpec(t *testing.T) {
	t.Parallel()
	s := newStubborn()
	s.many.osds[0].State = rollout.UpToDate
	s.done, s.superfluous = 1, 10
	result := s.play(t)
	require.Equal(t, 10, s.asked)
	// A minute, two, four, eight, sixteen, thirty-two, and then every hour.
	require.Equal(t, 63*time.Minute+4*time.Hour, result.Took.Truncate(time.Second))
	require.NotEmpty(t, s.told(func(r activities.OSDSetReport) bool { return len(r.Waiting) > 0 }))
}
