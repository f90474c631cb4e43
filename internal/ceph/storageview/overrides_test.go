package storageview

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func TestOverrides(t *testing.T) {
	in := Input{
		Pods: []Pod{
			{Name: "a", UID: "1", OSD: 3, State: storage.PodReady, LetGo: true},
			{Name: "b", UID: "2", OSD: 4, State: storage.PodReady},
			{Name: "c", UID: "3", OSD: 5, State: storage.PodTerminating, LetGo: true},
		},
		Mons: Mons{Pods: []MonPod{{Name: "d", UID: "4", Mon: "a", State: storage.PodNotReady, LetGo: true}, {Mon: "b"}}},
	}
	require.Equal(t, []storage.Override{
		{Pod: "a", UID: "1", Daemon: "osd.3"}, {Pod: "d", UID: "4", Daemon: "mon.a"},
	}, overrides(in))
	for i := range 2 * storage.MostOverrides {
		in.Pods = append(in.Pods, Pod{Name: fmt.Sprint(i), LetGo: true})
	}
	require.Len(t, overrides(in), storage.MostOverrides)
}
