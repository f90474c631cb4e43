package starter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/starter"
)

// TestDecideMons: the job looks when nodes come, go and are cordoned: what it notes of a mon is where it was before it
// was evicted.
func TestDecideMons(t *testing.T) {
	nodes := func(name, why string) map[string]string { return map[string]string{"a": "", name: why} }
	for name, tt := range map[string]struct {
		before, now map[string]string
		says        string
	}{
		"nothing":             {nodes("b", ""), nodes("b", ""), ""},
		"cordoned":            {nodes("b", ""), nodes("b", "is cordoned"), "node b is cordoned"},
		"cordoned for long":   {nodes("b", "is cordoned"), nodes("b", "is cordoned"), ""},
		"cordoned while down": {nodes("b", "is not ready"), nodes("b", "is cordoned"), "node b is cordoned"},
		"down":                {nodes("b", ""), nodes("b", "is not ready"), ""},
		"back":                {nodes("b", "is not ready"), nodes("b", ""), "node b is in service again"},
		"gone":                {nodes("b", ""), nodes("a", ""), "node b is gone"},
		"there":               {nodes("a", ""), nodes("b", ""), "node b is there"},
	} {
		t.Run(name, func(t *testing.T) {
			before := starter.MonSnapshot{Generation: 1, Policy: true, Nodes: tt.before}
			now := starter.MonSnapshot{Generation: 1, Policy: true, Nodes: tt.now}
			assert.Equal(t, tt.says, starter.DecideMons(&before, now))
		})
	}
}
