package podspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

func TestPodNamesAreReadable(t *testing.T) {
	for _, c := range []struct{ host, data, want string }{
		{
			"worker041.example.com", "/dev/disk/by-slot/pci-0000:5c:00.0-encl-0:7:0-slot-1",
			"osd-worker041-5c-00-0-encl-0-7-0-slot-1-7pxoo24unl",
		},
		{"node-a", "/dev/sdb", "osd-node-a-sdb-"},
		{"node-a", "vg_ceph/osd_0", "osd-node-a-osd-0-"},
		{"node-a", "/dev/Ünï", "osd-node-a-n-"},
		{"node-a", "/dev/---", "osd-node-a-"},
		{strings.Repeat("a", 63), "/dev/" + strings.Repeat("b", 63), "osd-aaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbbbbb-"},
	} {
		name := podspec.PodName(podspec.OSD{Host: c.host, Data: c.data})
		assert.True(t, strings.HasPrefix(name, c.want), name)
		assert.LessOrEqual(t, len(name), 63)
	}
}

func anOSD() *rapid.Generator[podspec.OSD] {
	return rapid.Custom(func(t *rapid.T) podspec.OSD {
		return podspec.OSD{
			Host: rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?`).Draw(t, "host"),
			Data: rapid.OneOf(rapid.StringMatching(`/dev/[a-zA-Z0-9_:./-]{1,80}`), rapid.StringN(1, 60, -1)).Draw(t, "data"),
			DB:   rapid.SampledFrom([]string{"", "/dev/nvme0n1p1"}).Draw(t, "db"),
			WAL:  rapid.SampledFrom([]string{"", "/dev/nvme1n1p1"}).Draw(t, "wal"),
		}
	})
}

// A name is always one that Kubernetes takes, for the pod as well as for its host name, and follows from the key alone.
func TestPodNamesAreValidAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anOSD().Draw(t, "osd")
		name := podspec.PodName(o)
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			t.Fatalf("%q: %v", name, wrong)
		}
		if again := podspec.PodName(podspec.OSD{Host: o.Host, Data: o.Data}); again != name {
			t.Fatalf("%q with other DB and WAL is %q", name, again)
		}
		if other := anOSD().Draw(t, "other"); other.Key() != o.Key() && podspec.PodName(other) == name {
			t.Fatalf("%q and %q have the same name %q", o.Key(), other.Key(), name)
		}
	})
}

// The parts of a name are cut; what differs only behind the cut has another name all the same.
func TestPodNamesDiffer(t *testing.T) {
	seen := map[string]string{}
	for host := range 100 {
		for _, device := range []string{
			"/dev/sd%c", "/dev/disk/by-id/%c-0000000000000000000000000000000",
			"/dev/x/%c", "/dev/y/%c",
		} {
			for letter := 'a'; letter <= 'z'; letter++ {
				o := podspec.OSD{Host: fmt.Sprintf("a-host-with-a-rather-long-name-%d", host), Data: fmt.Sprintf(device, letter)}
				other, taken := seen[podspec.PodName(o)]
				assert.False(t, taken, "%s and %s", o.Key(), other)
				seen[podspec.PodName(o)] = o.Key()
			}
		}
	}
}
