package longhorncluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestMarksNoMoreThanCounted: the budget lets all marked pods go but one less than were counted when it was written.
// Who is spare is another node by now: with a third mark two could go.
func TestMarksNoMoreThanCounted(t *testing.T) {
	var s sight
	for _, name := range []string{"a", "b", "c"} {
		p := storageview.Pod{
			Name: name, UID: name, State: storage.PodReady, Labels: map[string]string{kube.LonghornNode: name},
		}
		state := longhorn.Spare
		if name == "c" { // it was spare, and is kept by now
			state, p.Labels[storageview.MarkLabel] = longhorn.Kept, p.Mark()
		}
		s.pods = append(s.pods, p)
		s.world.Managers = append(s.world.Managers, longhorn.Manager{Name: name, Node: name, State: longhorn.Running})
		s.decision.Managers = append(s.decision.Managers, longhorn.Verdict{Manager: name, Node: name, State: state})
	}
	names := func(most int) (names []string, left int) {
		pods, left := s.toMark(most)
		for _, p := range pods {
			names = append(names, p.Name)
		}
		return names, left
	}
	for most, want := range map[int][]string{0: {"a", "b"}, 1: nil, 2: {"a"}, 3: {"a", "b"}} {
		got, left := names(most)
		require.Equal(t, want, got, most)
		require.Equal(t, 2-len(got), left, most)
	}
}
