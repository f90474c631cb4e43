package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

func TestUnitOf(t *testing.T) {
	o := rollout.OSD{Host: "node-a", Domain: "zone-x"}
	location := map[string]string{"host": "elsewhere", "zone": "zone-x", "Cage": "cage-7", "row": ""}
	for name, c := range map[string]struct {
		domain      string
		maxParallel int
		want        string
	}{
		"one at a time":                      {"OSD", 0, ""},
		"one at a time is the default":       {"", 1, ""},
		"several at a time, but of one zone": {"osd", 3, "zone-x"},
		"a host is where its pod runs":       {"Host", 0, "node-a"},
		"any type of CRUSH's, in any case":   {"CAGE", 0, "cage-7"},
		"one that is nowhere yet":            {"Rack", 0, "node-a"},
		"a type without a name":              {"row", 0, "node-a"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, rollout.UnitOf(c.domain, c.maxParallel, o, location))
		})
	}
}
