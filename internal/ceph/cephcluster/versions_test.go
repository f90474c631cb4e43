package cephcluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
)

func TestMixedImages(t *testing.T) {
	mons := func(images ...string) (out []storageview.MonPod) {
		for i, image := range images {
			out = append(out, storageview.MonPod{Mon: string(rune('a' + i)), Image: image})
		}
		return out
	}
	for name, c := range map[string]struct {
		mons []storageview.MonPod
		want string
	}{
		"none":            {},
		"all alike":       {mons: mons("ceph:1", "ceph:1", "ceph:1")},
		"one not to tell": {mons: mons("", "ceph:1", "ceph:1")},
		"none to tell":    {mons: mons("", "")},
		"one is ahead": {
			mons: mons("ceph:1", "ceph:2", "ceph:1"),
			want: "the upgrade of the mons is under way: mon.a runs ceph:1 and mon.b ceph:2",
		},
		"the last one": {
			mons: mons("", "ceph:1", "ceph:2"),
			want: "the upgrade of the mons is under way: mon.b runs ceph:1 and mon.c ceph:2",
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, mixedImages(c.mons)) })
	}
}

func TestUpgradeOfCephadm(t *testing.T) {
	says := func(messages ...string) (s ceph.Status) {
		events := map[string]map[string]string{}
		for i, m := range messages {
			events[string(rune('a'+i))] = map[string]string{"message": m}
		}
		answer, err := json.Marshal(map[string]any{"progress_events": events})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(answer, &s))
		return s
	}
	require.Empty(t, underWay(says()))
	require.Empty(t, underWay(says("Rebalancing after osd.3 marked out")))
	require.Equal(t, "cephadm is at it: Upgrade to 18.2.7 (2m)",
		underWay(says("Global Recovery Event", "Upgrade to 18.2.7 (2m)")))
}
