package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Options are what Karpenter is started with.
type Options struct {
	// NoNodePool leaves it to others to make NodePools: without one Karpenter adds no node.
	NoNodePool bool `json:"noNodePool,omitempty"`
	// Flags are flags of the program without their dashes. They replace those that the lab would have.
	Flags map[string]string `json:"flags,omitempty"`
}

// shortest are the flags that have it act at once. What no flag shortens is in docs/karpenter.md.
var shortest = map[string]string{
	"batch-idle-duration":                 "100ms", // 1 s by default
	"batch-max-duration":                  "1s",    // 10 s
	"kube-client-qps":                     "1000",
	"kube-client-burst":                   "2000",
	"disable-leader-election":             "true",
	"disable-cluster-state-observability": "true", // metrics, which nobody reads here
	"log-level":                           "debug",
}

// reserved are the flags that the lab alone has.
var reserved = map[string]string{
	"health-probe-port": "it is the lab's", "metrics-port": "it is the lab's",
	"instance-types-file-path": "machines are as large as --node-cpus says",
}

// ParseFlag reads NAME=VALUE.
func ParseFlag(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	name = strings.TrimLeft(name, "-")
	if !ok || name == "" {
		return "", "", fmt.Errorf("%q: allowed is NAME=VALUE, as batch-idle-duration=1s", s)
	}
	if why := reserved[name]; why != "" {
		return "", "", fmt.Errorf("%q: not this flag: %s", s, why)
	}
	return name, value, nil
}

func (o Options) args() []string {
	flags := maps.Clone(shortest)
	maps.Copy(flags, o.Flags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = append(args, "--"+name+"="+flags[name])
	}
	return args
}
