package storageview_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// markAll gives every pod the mark that names it.
func (w *world) markAll() *world {
	for i := range w.input.Pods {
		p := w.pod(i)
		p.UID = "uid-" + p.Name
		p.Labels[storageview.MarkLabel] = p.Mark()
	}
	return w
}

func TestMarks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   storage.Marks
	}{
		"all are marked": {func(*world) {}, storage.Marks{Proved: 6}},
		"one was replaced": {
			func(w *world) { delete(w.pod(2).Labels, storageview.MarkLabel) },
			storage.Marks{Proved: 5, Unproved: 1},
		},
		"its container restarted": {
			func(w *world) { w.pod(2).Restarts++ },
			storage.Marks{Proved: 5, Unproved: 1},
		},
		"another pod of the same name": {
			func(w *world) { w.pod(2).UID = "later" },
			storage.Marks{Proved: 5, Unproved: 1, Foreign: []string{"rook-ceph-osd-2"}},
		},
		"not ready, but it serves": {
			func(w *world) { w.pod(2).State = storage.PodNotReady },
			storage.Marks{Proved: 5, Stale: 1},
		},
		"its OSD is down, its pod ready": {func(w *world) { w.stop(2, 21) }, storage.Marks{Proved: 5, Stale: 1}},
		"it is stopping, and never comes back": {
			func(w *world) { w.pod(2).State = storage.PodTerminating },
			storage.Marks{Proved: 5},
		},
		"born with the mark of its template": {func(w *world) {
			w.pod(2).State, w.pod(2).UID = storage.PodPending,
				"later"
		}, storage.Marks{Proved: 5, Stale: 1, Foreign: []string{"rook-ceph-osd-2"}}},
		"two pods of one OSD": {func(w *world) {
			w.input.Pods = append(w.input.Pods, newPod(2, "node-2", "zone-1"))
		}, storage.Marks{Proved: 5, Stale: 1}},
		"its pod was seen leaving, and nobody has heard of its OSD since": {func(w *world) {
			w.input.Departed, w.input.LastChange = map[string]int64{"osd.2": 10}, 10
		}, storage.Marks{Proved: 5, Stale: 1}},
		"somebody else's OSD": {func(w *world) {
			w.input.Pods = append(w.input.Pods, newPod(77, "node-0", "zone-0"))
			w.pod(6).Labels[storageview.MarkLabel] = "x.0"
		}, storage.Marks{Proved: 6, Stale: 1, Foreign: []string{"rook-ceph-osd-77"}}},
		"some have a controller": {func(w *world) { w.pod(2).Managed = true }, storage.Marks{Proved: 6, Mixed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sixNodes).markAll()
			c.change(w)
			require.Equal(t, &c.want, w.view().Marks)
			w.view()
			require.Len(t, storageview.Markable(w.input), c.want.Proved+c.want.Unproved)
		})
	}
}
