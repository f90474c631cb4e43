package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

func TestWhatIsWaitedFor(t *testing.T) {
	// ticks of 1 s at least
	slow := workflows.KeeperStatus{ReportPeriod: 5 * time.Second, LivedFor: 7250 * time.Millisecond}
	refused := slow
	refused.View = storage.View{
		Notes: []string{fieldFlush + " has no effect, and reports are waited for: permission denied"},
	}
	for name, c := range map[string]struct {
		keeper *workflows.KeeperStatus
		flush  bool
		says   string
	}{
		"nobody knows":      {keeper: &workflows.KeeperStatus{}},
		"no keeper answers": {},
		"by their period":   {keeper: &slow, says: "about 7s until the OSDs, which report every 5s"},
		"when told to":      {keeper: &slow, flush: true, says: "about 3s until"},
		"told, and refused": {keeper: &refused, flush: true, says: "about 7s until"},
	} {
		t.Run(name, func(t *testing.T) {
			got := describeWait(c.keeper, c.flush)
			if c.says == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, c.says)
		})
	}
}

func TestDoctorSaysWhatIsWaitedFor(t *testing.T) {
	policy := func(flush bool) *v1alpha1.MaintenancePolicy {
		return &v1alpha1.MaintenancePolicy{
			Spec: v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{FlushPGStats: flush}},
		}
	}
	slow := workflows.KeeperStatus{ReportPeriod: 5 * time.Second, LivedFor: 8250 * time.Millisecond} // ticks of 2 s
	fast := workflows.KeeperStatus{ReportPeriod: time.Second, LivedFor: 1250 * time.Millisecond}
	refused := slow
	refused.View = storage.View{
		Notes: []string{fieldFlush + " has no effect, and reports are waited for: permission denied"},
	}
	for name, c := range map[string]struct {
		keeper  workflows.KeeperStatus
		flush   bool
		results []string
		says    string
	}{
		"reports every second": {keeper: fast},
		"Ceph's defaults": {keeper: slow, results: []string{FoundOK}, says: "about 9s. With mgr_stats_period and " +
			"mgr_tick_period of 1 s it would be 3s (6s less), with spec.ceph.flushPGStats 3s (6s less)"},
		"told to report": {keeper: slow, flush: true, results: []string{FoundOK}, says: "a proof takes about 3s"},
		"told, and refused": {
			keeper: refused, flush: true, results: []string{FoundWarning, FoundOK},
			says: "permission denied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Doctor{}
			d.reports(policy(c.flush), "ceph", &c.keeper)
			var results []string
			for _, f := range d.findings {
				results = append(results, f.Result)
			}
			require.Equal(t, c.results, results)
			if c.says != "" {
				require.Contains(t, d.findings[0].Message, c.says)
			}
		})
	}
}
