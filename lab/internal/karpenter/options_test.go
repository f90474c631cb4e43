package karpenter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

func TestParseFlag(t *testing.T) {
	name, value, err := ParseFlag("--batch-idle-duration=1s")
	if err != nil || name != "batch-idle-duration" || value != "1s" {
		t.Errorf("%s=%s, %v", name, value, err)
	}
	for bad, why := range map[string]string{
		"log-level": "NAME=VALUE", "=1s": "NAME=VALUE", "metrics-port=1": "it is the lab's",
		"instance-types-file-path=x": "--node-cpus",
	} {
		if _, _, err := ParseFlag(bad); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestFlagsReplaceDefaults(t *testing.T) {
	args := strings.Join(Options{Flags: map[string]string{"batch-idle-duration": "1s"}}.args(), " ")
	for _, want := range []string{"--batch-idle-duration=1s", "--disable-leader-election=true"} {
		if strings.Count(args, want) != 1 {
			t.Errorf("%s in %s", want, args)
		}
	}
	if strings.Contains(args, "100ms") || shortest["batch-idle-duration"] != "100ms" {
		t.Error(args)
	}
}

// TestInstanceTypes: there is something smaller for Karpenter to prefer, and a machine is never of no CPU.
func TestInstanceTypes(t *testing.T) {
	for cpus, want := range map[int]string{16: "lab-16 lab-8 lab-4", 3: "lab-3 lab-1", 1: "lab-1"} {
		text, err := instanceTypes(instance.Topology{Zones: 2, NodeCPUs: cpus})
		if err != nil {
			t.Fatal(err)
		}
		var types []instanceType
		if err := json.Unmarshal(text, &types); err != nil {
			t.Fatal(err)
		}
		var names []string
		for i, kind := range types {
			names = append(names, kind.Name)
			if len(kind.Offerings) != 2 || i > 0 && kind.Offerings[0].Price >= types[i-1].Offerings[0].Price {
				t.Errorf("%+v", kind)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%d CPUs: %s, want %s", cpus, got, want)
		}
	}
}
