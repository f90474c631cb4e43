package podspec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// Of the two OSDs of host a the other, a:/dev/sdc, is always up to date.
func TestStandings(t *testing.T) {
	set, desired := twoOSDs(t)
	wellKnown := podspec.Nodes{"a": ""}
	for name, c := range map[string]struct {
		pods  [][]change // of a:/dev/sdb
		nodes podspec.Nodes
		want  string // state, then the pod, then why it is away
	}{
		"up to date":                       {[][]change{{released, isReady}}, wellKnown, "up-to-date osd-a"},
		"nobody knows of nodes":            {nil, nil, "missing"},
		"no pod":                           {nil, wellKnown, "missing"},
		"no pod, and the node is cordoned": {nil, podspec.Nodes{"a": "node a is cordoned"}, "unready: node a is cordoned"},
		"no pod, and no node":              {nil, podspec.Nodes{}, "unready: its host a is no node"},
		"its pod terminates":               {[][]change{{terminating}}, wellKnown, "unready"},
		"its pod has just ended": {
			[][]change{{released, evicted}},
			wellKnown,
			"unready: its pod ended: Failed Evicted; it is made anew at 2026-11-21T12:00:30Z",
		},
		"its pod has a wrong name":        {[][]change{{named("x"), released, isReady}}, wellKnown, "out-of-date x"},
		"two pods, of which one is ready": {[][]change{{released, isReady}, {named("x")}}, wellKnown, "up-to-date osd-a"},
		"a ReplicaSet has it": {
			[][]change{{released, isReady, ofReplicaSet}},
			wellKnown,
			"unready: pod osd-a",
		},
		"its pod runs on a cordoned node": {
			[][]change{{released, isReady}},
			podspec.Nodes{"a": "node a is cordoned"},
			"up-to-date osd-a",
		},
		"its pod was made, and is not ready": {[][]change{{crashes}}, wellKnown, "unready osd-a"},
	} {
		t.Run(name, func(t *testing.T) {
			pods := []*corev1.Pod{render(set, desired[1], released, isReady)}
			for _, changes := range c.pods {
				pods = append(pods, render(set, desired[0], changes...))
			}
			classified := set.Classify(desired, pods)
			all := classified.Standings(desired, c.nodes)
			require.Len(t, all, 2, "one for each OSD")
			for _, x := range all {
				if x.OSD.Key() != desired[0].Key() {
					continue
				}
				got := string(x.State)
				if x.Pod != nil {
					got += " " + x.Pod.Name
				}
				if x.Away != "" {
					got += ": " + x.Away
				}
				require.True(t, strings.HasPrefix(got, c.want), "%s, want %s", got, c.want)
			}
		})
	}
}

func TestLeftAlone(t *testing.T) {
	set, desired := twoOSDs(t)
	for want, changes := range map[string][]change{
		"is run by ReplicaSet osd-a-sdb-x7k2p; `kubectl delete rs osd-a-sdb-x7k2p --cascade=orphan` leaves the pod to " +
			"lockkeeper": {ofReplicaSet},
		"is not lockkeeper's: it has none of the annotations of an OSD's pod": {
			without(podspec.HashAnnotation, podspec.HostAnnotation, podspec.DataAnnotation),
		},
	} {
		c := set.Classify(desired, []*corev1.Pod{render(set, desired[0], changes...)})
		require.Contains(t, c.Foreign[0].LeftAlone(), want)
	}
}
