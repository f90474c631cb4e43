package kube

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHeldBack: what is set is taken away again, and what is somebody else's stays.
func TestHeldBack(t *testing.T) {
	type set = map[string]string
	ours := set{HeldBack: "ns/p", scaleDownDisabled: "true", doNotDisrupt: "true"}
	for name, c := range map[string]struct {
		has    set
		wanted bool
		want   set
	}{
		"nothing, and wanted":     {nil, true, ours},
		"nothing, and not wanted": {nil, false, nil},
		"ours stays":              {ours, true, ours},
		"ours goes":               {ours, false, set{}},
		"a person's stays":        {set{doNotDisrupt: "true"}, false, set{doNotDisrupt: "true"}},
		"a person's does for one autoscaler": {
			set{scaleDownDisabled: "true"},
			true,
			set{scaleDownDisabled: "true", HeldBack: "ns/p " + doNotDisrupt, doNotDisrupt: "true"},
		},
		"and stays when ours goes": {
			set{scaleDownDisabled: "true", HeldBack: "ns/p " + doNotDisrupt, doNotDisrupt: "true"},
			false,
			set{scaleDownDisabled: "true"},
		},
		"a person's for both": {
			set{scaleDownDisabled: "true", doNotDisrupt: "true"}, true, set{scaleDownDisabled: "true", doNotDisrupt: "true"},
		},
		"a person's word against it": {
			set{scaleDownDisabled: "false"},
			true,
			set{scaleDownDisabled: "false", HeldBack: "ns/p " + doNotDisrupt, doNotDisrupt: "true"},
		},
		"somebody took it away":  {set{HeldBack: "ns/p", doNotDisrupt: "true"}, true, ours},
		"another policy's does":  {set{HeldBack: "ns/q"}, true, set{HeldBack: "ns/q"}},
		"another policy's stays": {set{HeldBack: "ns/q"}, false, set{HeldBack: "ns/q"}},
		"what a person changed since then": {
			set{HeldBack: "ns/p", scaleDownDisabled: "no"}, false, set{scaleDownDisabled: "no"},
		},
		"beside what others have": {
			set{"other": "x"},
			true,
			set{"other": "x", HeldBack: "ns/p", scaleDownDisabled: "true", doNotDisrupt: "true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: c.has}}
			change := heldBack(n, "ns/p", c.wanted)
			raw, err := json.Marshal(append([]operation{{"test", "/metadata/uid", n.UID}}, change...))
			require.NoError(t, err)
			patch, err := jsonpatch.DecodePatch(raw)
			require.NoError(t, err)
			before, err := json.Marshal(n)
			require.NoError(t, err)
			after, err := patch.Apply(before)
			require.NoError(t, err)
			var got corev1.Node
			require.NoError(t, json.Unmarshal(after, &got))
			if len(c.want) == 0 {
				require.Empty(t, got.Annotations)
				return
			}
			require.Equal(t, c.want, got.Annotations)
			require.Empty(t, heldBack(&got, "ns/p", c.wanted), "once is enough")
		})
	}
}

func TestPinnedByPerson(t *testing.T) {
	for _, c := range []struct {
		has  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{scaleDownDisabled: "true"}, true},
		{map[string]string{scaleDownDisabled: "true", HeldBack: "ns/p"}, false},
		{map[string]string{scaleDownDisabled: "true", HeldBack: "ns/p " + doNotDisrupt}, true},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: c.has}}
		require.Equal(t, c.want, PinnedByPerson(n), "%v", c.has)
	}
}
