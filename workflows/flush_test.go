package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// slowReports are Ceph's own.
const slowReports = 5 * time.Second

// opensAfter is how long a zone takes to open after a node of it is cordoned, when nothing was proved of late.
func opensAfter(s *scene) time.Duration {
	time.Sleep(2 * slowReports)
	began := time.Now()
	s.PersonCordons("node-a", true)
	s.awaitBudget(only("x"), time.Minute)
	return time.Since(began)
}

// TestFlush: with OSDs that are told to report nobody waits for their period; without the right, or the wish, it is
// waited for, and a refusal is told.
func TestFlush(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wanted, may bool
		atLeast     time.Duration
		atMost      time.Duration
		note        bool
	}{
		"neither wanted nor granted": {atLeast: 3 * time.Second, atMost: 12 * time.Second},
		"granted, and not wanted":    {may: true, atLeast: 3 * time.Second, atMost: 12 * time.Second},
		"wanted, and refused":        {wanted: true, atLeast: 3 * time.Second, atMost: 12 * time.Second, note: true},
		"wanted and granted":         {wanted: true, may: true, atMost: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{ReportPeriod: slowReports, MayFlush: c.may, Spec: &v1alpha1.CephSpec{FlushPGStats: c.wanted}},
				func(s *scene) {
					s.settle()
					took := opensAfter(s)
					require.LessOrEqual(s, took, c.atMost)
					require.GreaterOrEqual(s, took, c.atLeast)
					require.Equal(s, c.wanted && c.may, s.Flushes() > 0)
					noted := slices.ContainsFunc(s.keeperStatus().View.Notes,
						func(n string) bool { return strings.Contains(n, "flushPGStats") })
					require.Equal(s, c.note, noted)
				})
		})
	}
}

// TestFlushDoesNotHideWhoHangs: an OSD that hangs answers nobody, and the others' answers do not stand for its own.
func TestFlushDoesNotHideWhoHangs(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{ReportPeriod: slowReports, MayFlush: true, Spec: &v1alpha1.CephSpec{FlushPGStats: true}},
		func(s *scene) {
			s.settle()
			time.Sleep(2 * slowReports)
			s.Hang(true, "osd.1")
			s.PersonCordons("node-a", true)
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				require.NotEqual(s, only("x"), s.Budget())
			}
			s.Hang(false, "osd.1")
			s.awaitBudget(only("x"), time.Minute)
		})
}

// TestBlindingFlagsClose: with these flags nobody hears of a death, so that nothing opens as long as they are set, and
// the flag is named.
func TestBlindingFlagsClose(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"nodown", "noup", "pauserd"} {
		t.Run(flag, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				s.PersonSetsFlag(flag, true)
				s.awaitBudget("closed", 5*time.Second)
				require.Contains(s, s.keeperStatus().Decision.Message, flag)
				s.PersonCordons("node-a", true)
				for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					require.NotEqual(s, only("x"), s.Budget())
				}
				s.PersonSetsFlag(flag, false)
				s.awaitBudget(only("x"), 30*time.Second)
			})
		})
	}
}
