package hammer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(second int) time.Time { return time.Unix(int64(second), 0).UTC() }

func times(seconds ...int) (out []time.Time) {
	for _, s := range seconds {
		out = append(out, at(s))
	}
	return out
}

func TestJudge(t *testing.T) {
	x := func(second, osd int) eviction { return eviction{at: at(second), osd: osd, zone: "x"} }
	y := func(second, osd int) eviction { return eviction{at: at(second), osd: osd, zone: "y"} }
	z := func(second, osd int) eviction { return eviction{at: at(second), osd: osd, zone: "z"} }
	tests := map[string]struct {
		evictions []eviction
		ups       map[int][]time.Time
		whole     []time.Time
		most      int
	}{
		"nothing went":    {whole: times(1, 2), most: 0},
		"two of one zone": {evictions: []eviction{x(1, 0), x(2, 1)}, most: 1},
		"one after the other": {
			evictions: []eviction{x(1, 0), y(9, 2)},
			ups:       map[int][]time.Time{0: times(5)}, whole: times(6), most: 1,
		},
		"the first is not up again": {evictions: []eviction{x(1, 0), y(9, 2)}, whole: times(6), most: 2},
		"it is up, and the data not yet whole": {
			evictions: []eviction{x(1, 0), y(9, 2)},
			ups:       map[int][]time.Time{0: times(5)}, whole: times(4, 10), most: 2,
		},
		"its earlier life does not count": {
			evictions: []eviction{x(3, 0), y(9, 2)},
			ups:       map[int][]time.Time{0: times(2)}, whole: times(6), most: 2,
		},
		"another one of its zone is up": {
			evictions: []eviction{x(1, 0), y(9, 2)},
			ups:       map[int][]time.Time{1: times(5)}, whole: times(6), most: 2,
		},
		"three zones":                   {evictions: []eviction{x(1, 0), y(2, 2), z(3, 4)}, most: 3},
		"two zones twice are not three": {evictions: []eviction{x(1, 0), y(2, 2), x(3, 1)}, most: 2},
		"two zones in turn, whole in between": {
			evictions: []eviction{x(1, 0), y(9, 2), x(20, 1)},
			ups:       map[int][]time.Time{0: times(4), 2: times(12)}, whole: times(5, 13), most: 1,
		},
		"nobody ever saw the data whole after the up": {
			evictions: []eviction{x(1, 0), y(9, 2)},
			ups:       map[int][]time.Time{0: times(5)}, most: 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := judge(test.evictions, test.ups, test.whole)
			assert.Equal(t, test.most, v.DomainsMost)
			assert.Equal(t, test.most > 1, len(v.Disturbances) > 0, v.Disturbances)
			assert.Equal(t, len(test.evictions), v.Evictions)
		})
	}
}

func TestReadEvictions(t *testing.T) {
	line := func(second int, pod, subresource, query string, code int, message string) string {
		return fmt.Sprintf(`{"stageTimestamp":%q,"userAgent":"kubectl","objectRef":{"resource":"pods","name":%q,"subresource":%q},"requestURI":"/x%s","responseStatus":{"code":%d,"message":%q}}`,
			at(second).Format(time.RFC3339Nano), pod, subresource, query, code, message)
	}
	deleted := func(second int, pod string, code int) string {
		return strings.Replace(line(second, pod, "", "", code, ""), "{", `{"verb":"delete",`, 1)
	}
	log := logged(t,
		line(20, "rook-ceph-osd-3-abc", "eviction", "", 201, ""),
		line(12, "rook-ceph-osd-1-abc", "eviction", "", 201, ""),
		line(21, "rook-ceph-osd-3-abc", "eviction", "", 201, ""), // asked again
		line(5, "rook-ceph-osd-2-abc", "eviction", "", 201, ""),  // before the judge began
		line(22, "osd-node-a-osd-0-zzzz", "eviction", "", 201, ""),
		line(13, "rook-ceph-osd-4-abc", "eviction", "?dryRun=All", 201, ""),
		line(14, "rook-ceph-osd-4-abc", "", "", 201, ""),
		line(15, "rook-ceph-mon-a-abc", "eviction", "", 201, ""),
		line(16, "rook-ceph-osd-4-abc", "eviction", "", 429, "Cannot evict pod"),
		line(17, "rook-ceph-osd-4-abc", "eviction", "", 500, "This pod has more than one PodDisruptionBudget"),
		line(18, "rook-ceph-osd-4-abc", "eviction", "", 500, "context canceled"),
		deleted(24, "rook-ceph-osd-3-abc", 200), // by its kubelet, in the end
		deleted(25, "rook-ceph-osd-4-abc", 403),
		deleted(26, "rook-ceph-osd-4-abc", 200),
		"no JSON")
	osds := []OSD{
		NewOSD(1, "x", "rook-ceph-osd-1-67d-abc"), NewOSD(3, "y", "rook-ceph-osd-3-67d-abc"),
		NewOSD(4, "y", "rook-ceph-osd-4-67d-abc"), NewOSD(5, "z", "osd-node-a-osd-0-1a2b"),
	}
	granted, failed, err := readEvictions(log, at(10), osds, true)
	require.NoError(t, err)
	assert.Equal(t, []eviction{
		{at: at(12), osd: 1, zone: "x", who: "kubectl"},
		{at: at(20), osd: 3, zone: "y", who: "kubectl"},
		{at: at(22), osd: 5, zone: "z", who: "kubectl"},
		{at: at(26), osd: 4, zone: "y", who: "kubectl"},
	}, granted)
	assert.Equal(t, 1, failed)
	granted, _, err = readEvictions(log, at(10), osds, false)
	require.NoError(t, err)
	assert.Len(t, granted, 3, "no deletion")
}

func TestDeletions(t *testing.T) {
	line := func(second int, verb, resource, subresource, namespace, query string, code int) string {
		return fmt.Sprintf(`{"stageTimestamp":%q,"verb":%q,"user":{"username":"somebody"},"requestURI":"/x%s",`+
			`"objectRef":{"resource":%q,"subresource":%q,"namespace":%q,"name":"a"},"responseStatus":{"code":%d}}`,
			at(second).Format(time.RFC3339Nano), verb, query, resource, subresource, namespace, code)
	}
	log := logged(t,
		line(9, "delete", "pods", "", "ceph", "", 200), // before
		line(11, "delete", "pods", "", "ceph", "", 200),
		line(12, "deletecollection", "pods", "", "ceph", "", 200),
		line(13, "delete", "pods", "", "ceph", "", 403),
		line(14, "deletecollection", "pods", "", "ceph", "", 403),
		line(15, "delete", "pods", "", "ceph", "?dryRun=All", 200),
		line(16, "delete", "pods", "", "shop", "", 200),
		line(17, "create", "pods", "eviction", "ceph", "", 201),
		line(18, "delete", "nodes", "", "", "", 200),
		line(19, "delete", "pods", "", "ceph", "", 404),
		"no JSON")
	granted, refused, err := Deletions(log, "ceph", at(10))
	require.NoError(t, err)
	assert.Equal(t, 2, refused)
	assert.Equal(t, []Deletion{{at(11), "somebody", "a"}, {at(12), "somebody", "a"}}, granted)
}

// logged writes an audit log, and returns its path.
func logged(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	return path
}
