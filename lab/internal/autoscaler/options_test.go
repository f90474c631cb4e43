package autoscaler

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

func TestParseGroup(t *testing.T) {
	if g, err := ParseGroup("zone-x=0:5"); err != nil || g != (Group{Zone: "zone-x", Min: 0, Max: 5}) {
		t.Errorf("%v, %v", g, err)
	}
	for _, bad := range []string{
		"", "zone-x", "zone-x=1", "zone-x=1:", "=1:2", "zone-x=-1:2", "zone-x=3:2", "zone-x=0:0",
	} {
		if _, err := ParseGroup(bad); err == nil || !strings.Contains(err.Error(), "ZONE=MIN:MAX") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestParseFlag(t *testing.T) {
	if name, value, err := ParseFlag("--scan-interval=1s"); err != nil || name != "scan-interval" || value != "1s" {
		t.Errorf("%s=%s, %v", name, value, err)
	}
	for bad, why := range map[string]string{
		"scan-interval": "NAME=VALUE", "=1s": "NAME=VALUE", "nodes=1": "--node-group",
	} {
		if _, _, err := ParseFlag(bad); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestGroups(t *testing.T) {
	small := instance.Topology{Zones: 2, NodesPerZone: 3}
	for _, test := range []struct {
		name  string
		t     instance.Topology
		given []Group
		want  []Group
		err   string
	}{
		{name: "none said", t: small, want: []Group{{"zone-x", 3, 13}, {"zone-y", 3, 13}}},
		{
			name: "as many as Longhorn has ports for", t: instance.Topology{Zones: 3, NodesPerZone: 1, Longhorn: true},
			want: []Group{{"zone-x", 1, 6}, {"zone-y", 1, 6}, {"zone-z", 1, 6}},
		},
		{name: "one zone alone", t: small, given: []Group{{"zone-y", 0, 1}}, want: []Group{{"zone-y", 0, 1}}},
		{name: "no such zone", t: small, given: []Group{{"zone-z", 0, 1}}, err: "zone-z: there are zone-x, zone-y"},
		{name: "twice", t: small, given: []Group{{"zone-x", 0, 1}, {"zone-x", 1, 2}}, err: "twice"},
		{name: "of Cluster API", t: instance.Topology{Zones: 1, NodesPerZone: 1, Machines: 1}, err: "Cluster API"},
	} {
		got, err := Options{Groups: test.given}.groups(test.t)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v", test.name, got, err)
		}
	}
}

func TestFlagsReplaceDefaults(t *testing.T) {
	o := Options{Flags: map[string]string{"scan-interval": "1s", "max-pod-eviction-time": "3s"}}
	args := strings.Join(o.args([]Group{{"zone-x", 1, 5}}), " ")
	for _, want := range []string{
		"--scan-interval=1s", "--max-pod-eviction-time=3s", "--nodes=1:5:zone-x",
		"--scale-down-unneeded-time=0s",
	} {
		if strings.Count(args, want) != 1 {
			t.Errorf("%s in %s", want, args)
		}
	}
	if strings.Contains(args, "200ms") || shortest["scan-interval"] != "200ms" {
		t.Error(args)
	}
}
