package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Group is a node group: the nodes of a zone, whose number the autoscaler keeps between Min and Max.
type Group struct {
	Zone string `json:"zone"`
	Min  int    `json:"min"`
	Max  int    `json:"max"`
}

// Options are what an autoscaler is started with.
type Options struct {
	// Groups are the node groups; zones without one are left alone. None: every zone has one.
	Groups []Group `json:"groups,omitempty"`
	// Flags are flags of the program without their dashes. They replace those that the lab would have.
	Flags map[string]string `json:"flags,omitempty"`
}

// shortest are the flags that have it act at once, where it waits for ten seconds to ten minutes by default.
var shortest = map[string]string{
	"scan-interval":                    "200ms",
	"scale-down-unneeded-time":         "0s",
	"scale-down-unready-time":          "0s",
	"scale-down-delay-after-add":       "0s",
	"scale-down-delay-after-delete":    "0s",
	"scale-down-delay-after-failure":   "0s",
	"unremovable-node-recheck-timeout": "0s",
	"node-delete-delay-after-taint":    "0s",
	"max-drain-parallelism":            "10",
	"max-scale-down-parallelism":       "20",
	"kube-client-qps":                  "1000",
	"kube-client-burst":                "2000",
	"write-status-configmap":           "false",
	// Without it a pod that cannot be scheduled counts only when it is two seconds old.
	"bypassed-scheduler-names": "default-scheduler",
}

// reserved are the flags that the lab alone has.
var reserved = map[string]string{
	"nodes": "groups are said by --node-group", "kubeconfig": "it is the lab's", "cloud-provider": "it is the lab",
}

// newMachines is how many machines a group may add by default.
const newMachines = 10

// ParseGroup reads ZONE=MIN:MAX.
func ParseGroup(s string) (Group, error) {
	zone, sizes, ok := strings.Cut(s, "=")
	from, to, both := strings.Cut(sizes, ":")
	least, err1 := strconv.Atoi(from)
	most, err2 := strconv.Atoi(to)
	if !ok || !both || zone == "" || err1 != nil || err2 != nil || least < 0 || most < max(least, 1) {
		return Group{}, fmt.Errorf("%q: allowed is ZONE=MIN:MAX, as zone-x=1:5", s)
	}
	return Group{Zone: zone, Min: least, Max: most}, nil
}

// ParseFlag reads NAME=VALUE.
func ParseFlag(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	name = strings.TrimLeft(name, "-")
	if !ok || name == "" {
		return "", "", fmt.Errorf("%q: allowed is NAME=VALUE, as max-pod-eviction-time=10s", s)
	}
	if why := reserved[name]; why != "" {
		return "", "", fmt.Errorf("%q: not this flag: %s", s, why)
	}
	return name, value, nil
}

// Check says why there can be no autoscaler with these options in a lab of that size.
func (o Options) Check(t instance.Topology) error {
	_, err := o.groups(t)
	return err
}

// groups are the node groups of a lab of that size.
func (o Options) groups(t instance.Topology) ([]Group, error) {
	if t.Machines > 0 {
		return nil, fmt.Errorf("not in a lab with --machines: its nodes belong to Machines of Cluster API")
	}
	if len(o.Groups) == 0 {
		return defaultGroups(t), nil
	}
	seen := map[string]bool{}
	for _, g := range o.Groups {
		if !slices.Contains(t.ZoneNames(), g.Zone) {
			return nil, fmt.Errorf("--node-group %s: there are %s", g.Zone, strings.Join(t.ZoneNames(), ", "))
		}
		if seen[g.Zone] {
			return nil, fmt.Errorf("--node-group %s: said twice", g.Zone)
		}
		seen[g.Zone] = true
	}
	return o.Groups, nil
}

// defaultGroups has no group become smaller than it is, so that what a lab begins with stays until somebody wants it
// otherwise. Longhorn has ports for so many nodes only.
func defaultGroups(t instance.Topology) []Group {
	most := t.NodesPerZone + newMachines
	if t.Longhorn {
		most = max(t.NodesPerZone, instance.MaxLonghornNodes/t.Zones)
	}
	var groups []Group
	for _, zone := range t.ZoneNames() {
		groups = append(groups, Group{Zone: zone, Min: t.NodesPerZone, Max: most})
	}
	return groups
}

func (o Options) args(groups []Group) []string {
	flags := maps.Clone(shortest)
	maps.Copy(flags, o.Flags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = append(args, "--"+name+"="+flags[name])
	}
	for _, g := range groups {
		args = append(args, fmt.Sprintf("--nodes=%d:%d:%s", g.Min, g.Max, g.Zone))
	}
	return args
}
