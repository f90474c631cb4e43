package rookceph

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

func TestWithoutOSDPodsNothingElseChanges(t *testing.T) {
	with, without := sized(3, 2, 2), sized(3, 2, 2)
	without.topo.OSDPods = instance.OSDPodsNone
	names := func(c cluster) (all []string) {
		for _, d := range c.daemons() {
			if d.kind != "osd" {
				all = append(all, d.name())
			}
		}
		return all
	}
	if got := names(without); len(got) != len(without.daemons()) || !slices.Equal(got, names(with)) {
		t.Errorf("%v of %d daemons", got, len(without.daemons()))
	}
}

func TestCephOSDIsEveryDisk(t *testing.T) {
	c := sized(3, 2, 2)
	var want, got []string
	for _, osd := range c.topo.OSDs() {
		want = append(want, osd.Node+":"+deviceDir+"/"+osd.Device)
	}
	for _, s := range c.cephOSD().Spec.Storage {
		for _, host := range s.Hosts {
			for _, osd := range s.OSDs {
				got = append(got, host+":"+osd.Data)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// One template is for every OSD of every lab, and for machines with other folders.
func TestCephOSDNamesNoFolderOfTheMachine(t *testing.T) {
	manifest, err := yaml.Marshal(sized(3, 2, 2).cephOSD())
	if err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"/lab/t", "creationTimestamp", "status:"} {
		if strings.Contains(string(manifest), unwanted) {
			t.Errorf("%q in\n%s", unwanted, manifest)
		}
	}
}

func TestDiskIsOnItsNode(t *testing.T) {
	c := sized(3, 2, 2)
	c.inst.Dir = t.TempDir()
	if err := os.Mkdir(c.path(), 0o700); err != nil {
		t.Fatal(err)
	}
	osd := c.topo.OSDs()[3]
	for _, again := range []bool{false, true} {
		dir, err := c.makeOSDDir(osd)
		if err != nil {
			t.Fatal(err)
		}
		if want := c.inst.Path("nodes", "node-b", "disk", "dev", "lab", "osd-1"); dir != want {
			t.Errorf("%s, want %s", dir, want)
		}
		if left, err := os.ReadDir(c.path("osd-3")); err != nil || len(left) != 0 {
			t.Errorf("again: %v: %v, %v", again, left, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "whoami"), []byte("3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.path("osd-3", "whoami")); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(c.path()); err != nil { // as the next Prepare does
			t.Fatal(err)
		}
		if err := os.Mkdir(c.path(), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPortableDiskIsOnNoNode: what an OSD has written that may run on any node of its zone stays when one of them goes
// for good.
func TestPortableDiskIsOnNoNode(t *testing.T) {
	c := sized(3, 2, 1)
	c.inst.Dir, c.topo.OSDStorage = t.TempDir(), instance.OSDStoragePVC
	for _, osd := range c.topo.OSDs() {
		dir, err := c.makeOSDDir(osd)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "whoami"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(c.inst.NodeDisk(osd.Node)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.path(fmt.Sprintf("osd-%d", osd.ID), "whoami")); err != nil {
			t.Error(err)
		}
	}
}
