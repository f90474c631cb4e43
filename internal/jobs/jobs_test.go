package jobs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

func TestIDs(t *testing.T) {
	for id, want := range map[string]struct {
		job    *jobs.Job
		target jobs.Target
		short  string
	}{
		"drain/node-a":          {jobs.DrainNode, jobs.Target{Node: "node-a"}, "node-a"},
		"update-osds/ceph/osds": {jobs.UpdateOSDs, jobs.Target{Namespace: "ceph", Name: "osds"}, "ceph/osds"},
		"scale-down/node-a":     {jobs.ScaleDownNode, jobs.Target{Node: "node-a"}, ""},
		"restart-osds/ceph":     {jobs.RestartOSDs, jobs.Target{Namespace: "ceph"}, ""},
	} {
		j, target, ok := jobs.Parse(id)
		require.True(t, ok, id)
		assert.Same(t, want.job, j)
		assert.Equal(t, want.target, target)
		j, found := jobs.Find(id)
		assert.Same(t, want.job, j)
		assert.Equal(t, id, found)
		if want.short != "" {
			j, found = jobs.Find(want.short)
			assert.Same(t, want.job, j)
			assert.Equal(t, id, found)
		}
	}
	for _, id := range []string{
		"", "/", "drain", "drain/", "drain/a/b", "drain//", "Drain/a", " drain/a", "drains/a", "node-a", "ceph/osds",
		"update-osds/", "update-osds/a", "update-osds/a/", "update-osds//b", "update-osds/a/b/c",
		"restart-osds", "restart-osds/", "restart-osds/a/b", "keeper/a/b",
	} {
		_, target, ok := jobs.Parse(id)
		assert.False(t, ok, id)
		assert.Zero(t, target, id)
	}
	j, id := jobs.Find("a/b/c")
	assert.Nil(t, j)
	assert.Empty(t, id)
	target, ok := jobs.Keeper.Target("keeper/ceph/policy")
	assert.True(t, ok)
	assert.Equal(t, jobs.Target{Namespace: "ceph", Name: "policy"}, target)
}

// What would let two jobs take each other's IDs, signals or words.
func TestEntries(t *testing.T) {
	types, shorts := map[string]bool{}, map[int]bool{}
	for i, j := range append([]*jobs.Job{jobs.Keeper}, jobs.All...) {
		assert.False(t, types[j.Type], "one entry for %s", j.Type)
		types[j.Type] = true
		assert.NotEmpty(t, j.Noun)
		assert.Equal(t, 1, strings.Count(j.Prefix, "/"))
		assert.True(t, strings.HasSuffix(j.Prefix, "/"))
		for _, word := range strings.Split(j.Form, "/") {
			assert.Contains(t, []string{"NAMESPACE", "NAME", "NODE"}, word)
		}
		for _, other := range jobs.All[min(i, len(jobs.All)):] {
			assert.NotEqual(t, j.Prefix, other.Prefix)
		}
		if j.Short != "" {
			slashes := strings.Count(j.Form, "/")
			assert.False(t, shorts[slashes], "two jobs with a short form of %d slashes", slashes)
			shorts[slashes] = true
		}
	}
	for _, j := range jobs.All {
		_, known := lease.ParsePriority(j.Priority.String())
		assert.True(t, known, "%s has no priority", j.Type)
		for _, signal := range []string{jobs.SignalPause, jobs.SignalResume, jobs.SignalAbort} {
			assert.True(t, j.Takes(signal), "every job takes %s", signal)
		}
	}
	assert.Equal(t, []*jobs.Job{jobs.DrainNode, jobs.FenceNode}, jobs.Taking(jobs.SignalDone))
	assert.Equal(t, []*jobs.Job{jobs.UpdateOSDs, jobs.RestartOSDs, jobs.RestartWaiting}, jobs.Taking(jobs.SignalSkip))
}

func TestUsage(t *testing.T) {
	assert.Equal(t, "drain/NODE", jobs.DrainNode.Usage())
	assert.Equal(t, "update-osds/[NAMESPACE/]NAME", jobs.UpdateOSDs.Usage())
	assert.Equal(t, "restart-osds[/NAMESPACE]", jobs.RestartOSDs.Usage())
	assert.Equal(t, "restart-waiting/[NAMESPACE/]NAME", jobs.RestartWaiting.Usage())
}

// Whatever is put together, it is the ID of a job if and only if it has as many parts as the job's form, and none is
// empty; then it is read as these parts, and printed as the same ID again.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SampledFrom(jobs.All).Draw(t, "job")
		parts := rapid.SliceOfN(rapid.StringMatching(`[a-z.-]{0,3}`), 1, 3).Draw(t, "parts")
		good := len(parts) == strings.Count(want.Form, "/")+1 && !slices.Contains(parts, "")
		id := want.ID(parts...)
		j, target, ok := jobs.Parse(id)
		if ok != good {
			t.Fatalf("%s: is an ID: %v, but was taken for one: %v", id, good, ok)
		}
		if read := target.Namespace + target.Name + target.Node; ok && (j != want || read != strings.Join(parts, "")) {
			t.Fatalf("%s became %v, %+v", id, j, target)
		}
	})
}
