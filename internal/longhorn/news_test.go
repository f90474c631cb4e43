package longhorn_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// detach detaches a volume from a node; its replicas stop.
func (w *world) detach(name, node string) *world {
	for i := range w.Volumes {
		if w.Volumes[i].Name == name {
			w.Volumes[i].State = longhorn.Detached
		}
	}
	for i, r := range w.Replicas {
		if r.Volume == name {
			w.Replicas[i].Desired, w.Replicas[i].Current = longhorn.Stopped, longhorn.Stopped
		}
	}
	m := w.manager(node)
	m.Engines = slices.DeleteFunc(slices.Clone(m.Engines), func(e string) bool { return e == name+"-e-0" })
	return w
}

// TestWaits: what only changes who uses which volume can wait, unless somebody must stay who could go until then.
func TestWaits(t *testing.T) {
	used := func() *world { return newWorld("a", "b", "c").volume("v", "a", "b").volume("w", "b", "c") }
	keptBy := func(node string) *world {
		return newWorld("a", "b", "c").volume("v", "a", "b").with(func(w *world) {
			w.Kept, w.EvictOnRemoval = []string{node}, true
		})
	}
	attached := func() *world { return used().attach("v", "a").attach("w", "c") }
	for name, c := range map[string]struct {
		before, now *world
		waits       bool
	}{
		"nothing":                              {used(), used(), true},
		"the first volume is attached":         {used(), used().attach("v", "a"), false},
		"one more, and everybody stays anyway": {used().attach("v", "c").attach("w", "a"), attached(), true},
		"one is detached":                      {attached(), attached().detach("w", "c"), true},
		"all are detached":                     {attached(), used(), true},
		"a replica fails": {
			attached(), attached().with(func(w *world) { w.replica("v", "a").Failed = true }), false,
		},
		"it is repaired":     {attached().with(func(w *world) { w.replica("v", "a").Healthy = false }), attached(), false},
		"a node is cordoned": {attached(), attached().cordon("a"), false},
		"it is free":         {attached().cordon("a"), attached().cordon("a").detach("v", "a"), false},
		"it is uncordoned":   {attached().cordon("a"), attached(), false},
		"another one keeps it, from which no autoscaler is held back": {keptBy("a"), keptBy("b"), false},
		"a volume is made": {used(), used().volume("x", "a"), false},
		"a node is new":    {attached(), attached().with(func(w *world) { *w = *addNode(w, "d") }), false},
		"its instance manager stops": {
			used(), used().with(func(w *world) { w.manager("a").State = "error" }), false,
		},
		"Longhorn's setting is switched on": {
			attached().with(func(w *world) { w.Settings.ClusterAutoscaler = false }), attached(), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.waits, longhorn.Decide(c.before.World).Waits(longhorn.Decide(c.now.World)))
		})
	}
}

func addNode(w *world, name string) *world {
	more := newWorld(name)
	w.Nodes, w.Managers = append(w.Nodes, more.Nodes...), append(w.Managers, more.Managers...)
	return w
}

// TestWhatWaitsLosesNothing: as long as the next decision waits, everything that the one before lets happen may happen.
func TestWhatWaitsLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawn(t)
		d := longhorn.Decide(w.World)
		w.Kept = d.Kept
		next := d
		volume := func(t *rapid.T) string { return rapid.SampledFrom(w.Volumes).Draw(t, "volume").Name }
		on := func(t *rapid.T) string { return rapid.SampledFrom(w.Managers).Draw(t, "on").Node }
		changes := map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if next = longhorn.Decide(w.World); !d.Waits(next) {
					d, w.Kept = next, next.Kept
				}
				model{w.World}.checkOpen(t, d, open(d), spare(d))
			},
			"cordon": func(t *rapid.T) { w.cordon(on(t)) },
		}
		if len(w.Volumes) > 0 {
			maps.Copy(changes, map[string]func(*rapid.T){
				"attach": func(t *rapid.T) { w.attach(volume(t), on(t)) },
				"detach": func(t *rapid.T) { w.detach(volume(t), on(t)) },
			})
		}
		if len(w.Replicas) > 0 {
			changes["fail"] = func(t *rapid.T) { w.Replicas[rapid.IntRange(0, len(w.Replicas)-1).Draw(t, "r")].Failed = true }
		}
		t.Repeat(changes)
	})
}
