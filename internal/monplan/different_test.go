package monplan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// TestWhatOnlyAnotherMonHas: what a restart in place does not give a mon is a difference, and the mon is moved for it
// when somebody asks. What is not known of a mon, as of an adopted one, is none.
func TestWhatOnlyAnotherMonHas(t *testing.T) {
	for _, tt := range []struct {
		what  string
		fixed *monplan.Fixed
		want  monplan.Want // the fields that are compared
		why   string
	}{
		{"as it should be", &monplan.Fixed{DataDir: "/data"}, monplan.Want{DataDir: "/data"}, ""},
		{"not known", nil, monplan.Want{DataDir: "/data", HostNetwork: true}, ""},
		{
			"hostNetwork is new", &monplan.Fixed{DataDir: "/data"},
			monplan.Want{DataDir: "/data", HostNetwork: true},
			"it has an address of its own, and the spec says that of its node (hostNetwork)",
		},
		{
			"no hostNetwork any more", &monplan.Fixed{HostNetwork: true},
			monplan.Want{},
			"it has the address of its node (hostNetwork), and the spec says one of its own",
		},
		{
			"another path", &monplan.Fixed{DataDir: "/data"},
			monplan.Want{DataDir: "/fast"},
			"its store is below /data, and the spec says /fast",
		},
		{"another path, and its store is on a claim", &monplan.Fixed{}, monplan.Want{DataDir: "/fast"}, ""},
	} {
		s := seen("a b c", "d")
		s.Want.HostNetwork, s.Want.DataDir = tt.want.HostNetwork, tt.want.DataDir
		for i := range s.Mons {
			s.Mons[i].Fixed = &monplan.Fixed{HostNetwork: tt.want.HostNetwork, DataDir: tt.want.DataDir}
		}
		s.Mons[1].Fixed = tt.fixed
		var want []monplan.Difference
		if tt.why != "" {
			want = []monplan.Difference{{Mon: "b", Why: tt.why}}
		}
		assert.Equal(t, want, s.Different(), tt.what)
		s.Mode.Migrate = true
		moved := monplan.Next(s)
		if tt.why == "" {
			assert.Nil(t, moved.Work, tt.what)
		} else if assert.NotNil(t, moved.Work, tt.what) {
			assert.Equal(t, "b", moved.Work.Old, tt.what)
			assert.Equal(t, monplan.Migrate, moved.Work.Kind, tt.what)
		}
	}
}
