package cephcluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestAManagerThatIsSilent: a look that only suspects something waits for a manager that has just died for a moment;
// what somebody asked for has its time once, and again when the silence has lasted. A manager that has always been slow
// is not taken for dead.
func TestAManagerThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &manager{answers: 10 * time.Millisecond}
		c := &cluster{policy: cephPolicy(), connected: &connected{client: ceph.Client{Commander: m}}}
		crush := &ceph.CrushMap{Types: []ceph.CrushType{{ID: 0, Name: failuredomain.OSDType}}}
		look := func(asked ...string) (waited time.Duration, silence bool) {
			v := storage.View{FailureDomainType: failuredomain.OSDType, Domains: []storage.Domain{
				{Name: "osd.0", Touched: true, Troubled: []storage.Daemon{{Name: "osd.0"}}}, {Name: "osd.1"},
			}}
			began := time.Now()
			c.askOKToStop(t.Context(), &v, failuredomain.NewTree(crush),
				&ceph.OSDMap{OSDs: []ceph.OSD{{ID: 0, Up: true}, {ID: 1, Up: true}}}, asked, nil)
			require.NotNil(t, v.Domains[0].OKToStop, "what was touched is always asked for")
			return time.Since(began), v.Domains[0].OKToStop.Silence
		}
		expect := func(waits time.Duration, silent bool, asked ...string) {
			t.Helper()
			took, silence := look(asked...)
			require.Equal(t, silent, silence)
			require.Equal(t, waits, took)
		}
		for range 2 {
			expect(10*time.Millisecond, false)
			m.answers = time.Hour
			expect(deadWithin, true)
			expect(deadWithin, true, "osd.1")
			time.Sleep(silenceLasts)
			expect(okToStopWithin, true)
			m.answers = 10 * time.Millisecond
			expect(10*time.Millisecond, false)
			m.answers = time.Hour
			expect(okToStopWithin, true, "osd.1")
			m.answers = 400 * time.Millisecond
			time.Sleep(silenceLasts)
			expect(400*time.Millisecond, false, "osd.1")
			expect(400*time.Millisecond, false)
			m.answers = 10 * time.Millisecond
			expect(10*time.Millisecond, false)
		}
	})
}

// manager answers every question with yes, after a while.
type manager struct {
	ceph.Commander
	answers time.Duration
}

func (m *manager) MonCommand(ctx context.Context, _ []byte) (output []byte, status string, err error) {
	select {
	case <-time.After(m.answers):
		return []byte(`{"ok_to_stop": true, "osds": [0, 1]}`), "", nil
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}
