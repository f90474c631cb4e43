package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestCephOSDInDisorder is each thing that people do to a CephOSD in the middle of a rollout, once, on a day on which
// nothing else happens. The World judges; in the end every OSD is what its spec says, and has one pod.
func TestCephOSDInDisorder(t *testing.T) {
	t.Parallel()
	const long = 30 * time.Minute
	set := func(field string, value any) func(*scene) {
		return func(s *scene) { (&disorder{scene: s}).edit(field, value) }
	}
	for name, c := range map[string]struct {
		spec  map[string]any
		dbs   bool
		first func(*scene) // before the new image
		then  func(*scene) // a minute after it
		stays bool         // nothing may happen in that minute
	}{
		"paused":       {first: set("paused", true), then: set("paused", nil), stays: true},
		"no window":    {first: set("windows", edits["window"].values[0]), then: set("windows", nil), stays: true},
		"short window": {first: set("windows", []any{opening("*/10 * * * *", "3m")})},
		"maxParallel":  {spec: map[string]any{"maxParallel": int64(2)}},
		"pauseBetween": {spec: map[string]any{"pauseBetween": "2m"}},
		"canary":       {spec: map[string]any{"canary": map[string]any{"soak": "2m"}}},
		"approval": {
			spec: map[string]any{"canary": map[string]any{"soak": "10s", "approval": true}},
			then: func(s *scene) { (&disorder{scene: s, osdSet: "Zone"}).approve() },
		},
		"somebody else's pod": {first: func(s *scene) { s.ForeignPod(true) }, then: func(s *scene) { s.ForeignPod(false) }},
		"a copy of a pod":     {first: func(s *scene) { s.Duplicate("osd.3") }},
		"an OSD leaves": {
			first: func(s *scene) { s.Leave("osd.3", true) },
			then:  func(s *scene) { s.Leave("osd.3", false) },
		},
		"an OSD leaves for good, and comes back": {
			first: func(s *scene) {
				s.Leave("osd.3", true)
				s.MarkOut("osd.3", true)
				require.True(s, s.Await(long, func() bool { return s.PodState("osd.3") == storage.PodNone }),
					"nobody needs its data")
			},
			then: func(s *scene) { s.Leave("osd.3", false) },
		},
		"two DBs change places":  {dbs: true, first: func(s *scene) { s.MoveDB("osd.3") }},
		"a pod without its data": {first: func(s *scene) { s.Annotate("osd.3", podspec.DataAnnotation, "") }},
		"no CephOSD": {
			first: func(s *scene) { s.DeleteCephOSD() }, then: func(s *scene) { s.RestoreCephOSD() },
			stays: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := osdsBy("Zone", c.spec)
			opts.DBs, opts.JudgeCanary = c.dbs, true
			play(t, opts, func(s *scene) {
				s.settleOSDs()
				time.Sleep(time.Minute)
				if c.first != nil {
					c.first(s)
				}
				time.Sleep(time.Minute)
				s.SetImage("ceph:2")
				time.Sleep(time.Minute)
				if c.stays {
					require.Equal(s, map[string]int{sim.FirstImage: 12}, s.Images())
				}
				if c.then != nil {
					c.then(s)
				}
				s.awaitImage("ceph:2", long)
				s.awaitWhole()
				require.Empty(s, append(s.Outdated(), s.Strays()...))
			})
		})
	}
}
