package leaving_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// ago is the value of a taint that was set so long before now.
func ago(d time.Duration) string { return strconv.FormatInt(now.Add(-d).Unix(), 10) }

func deadline(in time.Duration) string { return now.Add(in).Format(time.RFC3339) }

// TestOf reads a node as Cluster Autoscaler, Karpenter and people leave it.
func TestOf(t *testing.T) {
	n := &corev1.Node{}
	n.Spec.Taints = []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Value: "1"}, {Key: "gpu", Value: "2"}}
	assert.Zero(t, leaving.Of(n), "a candidate is not chosen yet")
	n.Spec.Unschedulable, n.DeletionTimestamp = true, &metav1.Time{Time: now}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "3"},
		corev1.Taint{Key: "karpenter.sh/disrupted"})
	assert.Equal(t, leaving.Signs{
		Cordoned: true, Deleting: true, Tainted: true, Taint: "3", Disrupted: true,
	}, leaving.Of(n))
}

func TestNodeClaim(t *testing.T) {
	n := &corev1.Node{}
	assert.Empty(t, leaving.NodeClaim(n))
	n.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "a"},
		{APIVersion: "example.com/v1", Kind: "NodeClaim", Name: "b"},
		{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "storage-x7k2p"},
	}
	assert.Equal(t, "storage-x7k2p", leaving.NodeClaim(n))
}

func TestHow(t *testing.T) {
	for name, c := range map[string]struct {
		leaving.Signs
		expiry time.Duration
		want   leaving.Way
		key    string
	}{
		"in service": {want: leaving.Not},
		"cordoned":   {Signs: leaving.Signs{Cordoned: true}, want: leaving.Cordoned},
		"tainted by Karpenter": {
			Signs: leaving.Signs{Disrupted: true}, want: leaving.Disrupted, key: leaving.DisruptedTaint,
		},
		"deleted":              {Signs: leaving.Signs{Deleting: true}, want: leaving.Deleting},
		"tainted a minute ago": {Signs: tainted(ago(time.Minute)), want: leaving.Removal, key: leaving.RemovalTaint},
		"tainted nearly an hour": {
			Signs: tainted(ago(time.Hour - time.Second)), want: leaving.Removal, key: leaving.RemovalTaint,
		},
		"tainted an hour ago":       {Signs: tainted(ago(time.Hour)), want: leaving.Not},
		"tainted, and it expires":   {Signs: tainted(ago(2 * time.Minute)), expiry: time.Minute, want: leaving.Not},
		"tainted, without a time":   {Signs: tainted(""), want: leaving.Removal, key: leaving.RemovalTaint},
		"tainted, with another one": {Signs: tainted("yesterday"), want: leaving.Removal, key: leaving.RemovalTaint},
		"tainted in the future":     {Signs: tainted(ago(-time.Hour)), want: leaving.Removal, key: leaving.RemovalTaint},
		"tainted long ago, cordoned": {
			Signs: leaving.Signs{Tainted: true, Taint: ago(2 * time.Hour), Cordoned: true}, want: leaving.Cordoned,
		},
		"tainted long ago, and by Karpenter": {
			Signs: leaving.Signs{Tainted: true, Taint: ago(2 * time.Hour), Disrupted: true}, want: leaving.Disrupted,
			key: leaving.DisruptedTaint,
		},
		"all at once": {
			Signs: leaving.Signs{Tainted: true, Disrupted: true, Cordoned: true, Deleting: true}, want: leaving.Deleting,
			key: leaving.RemovalTaint,
		},
	} {
		assert.Equal(t, c.want, c.How(now, c.expiry), name)
		assert.Equal(t, c.key, c.Key(now, c.expiry), name)
	}
}

func tainted(value string) leaving.Signs { return leaving.Signs{Tainted: true, Taint: value} }

func TestJudge(t *testing.T) {
	there := func(s leaving.Signs) leaving.Sight { return leaving.Sight{Found: true, UID: "1", Signs: s} }
	for name, c := range map[string]struct {
		sight leaving.Sight
		uid   string
		want  leaving.Outcome
	}{
		"deleted":                       {leaving.Sight{}, "1", leaving.Went},
		"registered again, and leaving": {there(leaving.Signs{Cordoned: true}), "2", leaving.Went},
		"whichever there is":            {there(leaving.Signs{Cordoned: true}), "", leaving.StillLeaving},
		"still there, being deleted":    {there(leaving.Signs{Deleting: true}), "1", leaving.StillLeaving},
		"rolled back":                   {there(leaving.Signs{}), "1", leaving.Stayed},
		"its taint is forgotten":        {there(tainted(ago(time.Hour))), "1", leaving.Forgotten},
		"its taint is forgotten, and it is cordoned": {
			there(leaving.Signs{Tainted: true, Taint: ago(time.Hour), Cordoned: true}), "1", leaving.StillLeaving,
		},
	} {
		assert.Equal(t, c.want, c.sight.Judge(c.uid, now, 0), name)
	}
}

// TestWarning: Karpenter's deadline is told an hour and ten minutes before, in other words each time, and in the same
// ones in between.
func TestWarning(t *testing.T) {
	sight := leaving.Sight{Found: true, Signs: leaving.Signs{Disrupted: true, Until: deadline(2 * time.Hour)}}
	var told []string
	var at []time.Duration
	for when := now; ; {
		if w := sight.Warning(when); w != "" {
			told, at = append(told, w), append(at, when.Sub(now))
		}
		next := sight.Next(when, 0)
		if next.IsZero() {
			break
		}
		assert.Equal(t, sight.Warning(when), sight.Warning(next.Add(-time.Second)), "nothing changes before Next")
		when = next
	}
	assert.Equal(t, []time.Duration{time.Hour, 110 * time.Minute, 2 * time.Hour}, at)
	if assert.Len(t, told, 3) {
		assert.NotEqual(t, told[0], told[1])
		assert.NotEqual(t, told[1], told[2])
		assert.Contains(t, told[0], "2026-11-26T14:00:00Z")
	}
	sight.Until = "soon"
	assert.Empty(t, sight.Warning(now.Add(3*time.Hour)))
	assert.Empty(t, leaving.Sight{Signs: leaving.Signs{Until: deadline(0)}}.Warning(now), "it is gone")
}

func TestNext(t *testing.T) {
	s := leaving.Sight{Found: true, Signs: leaving.Signs{Tainted: true, Taint: ago(0), Until: deadline(90 * time.Minute)}}
	assert.Equal(t, now.Add(30*time.Minute), s.Next(now, 0), "an hour before the deadline")
	assert.Equal(t, now.Add(time.Hour), s.Next(now.Add(30*time.Minute), 0), "the taint expires")
	assert.Equal(t, now.Add(10*time.Minute), s.Next(now, 10*time.Minute))
	assert.Zero(t, leaving.Sight{Found: true, Signs: tainted("x")}.Next(now, 0))
}

// FuzzSigns: whatever is written on a node, what was true of it does not change before Next.
func FuzzSigns(f *testing.F) {
	f.Add("1764158400", "2026-11-26T13:00:00Z", int64(3600))
	f.Add("-1", "", int64(0))
	f.Add("9223372036854775807", "9999-12-31T23:59:59Z", int64(1<<40))
	f.Fuzz(func(t *testing.T, taint, until string, after int64) {
		s := leaving.Sight{Found: true, Signs: leaving.Signs{Tainted: true, Taint: taint, Until: until}}
		next := s.Next(now, 0)
		if !next.IsZero() && !next.After(now) {
			t.Fatalf("%v is not after %v", next, now)
		}
		later := now.Add(time.Duration(after&0xffffffff) * time.Second)
		if !next.IsZero() && !later.Before(next) {
			return
		}
		if s.Judge("", now, 0) != s.Judge("", later, 0) || s.Warning(now) != s.Warning(later) {
			t.Fatalf("%+v changes between %v and %v, and says that it will at %v", s, now, later, next)
		}
	})
}
