package instance

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

func TestLocate(t *testing.T) {
	t.Setenv("LAB_HOME", "/tmp/h")
	if inst, err := Locate("a-1"); err != nil || inst.Dir != "/tmp/h/a-1" {
		t.Errorf("got %v, %v", inst, err)
	}
	for _, name := range []string{"", "A", "a/b", "..", "-a", "a-", strings.Repeat("a", 21)} {
		if _, err := Locate(name); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	t.Setenv("LAB_HOME", "/tmp/"+strings.Repeat("h", 60))
	if _, err := Locate("a"); err == nil || !strings.Contains(err.Error(), "LAB_HOME") {
		t.Errorf("long folder: %v", err)
	}
}

// claim acquires an instance in a home of the test's own.
func acquire(t *testing.T, name string) *Claim {
	t.Helper()
	c, err := Acquire(Config{Instance: Instance{Name: name}, Topology: DefaultTopology()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shortHome(t *testing.T) {
	home, err := os.MkdirTemp("", "lab") //nolint:usetesting // the name of the test would make it too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	t.Setenv("LAB_HOME", home+"/h")
}

func TestClaimsExclude(t *testing.T) {
	shortHome(t)
	a := acquire(t, "a")
	if _, err := Acquire(Config{Instance: Instance{Name: "a"}}); !errors.Is(err, ErrRunning) {
		t.Errorf("claimed twice: %v", err)
	}
	b := acquire(t, "b")
	if a.Config.Ports == b.Config.Ports {
		t.Errorf("same ports: %v", a.Config.Ports)
	}
	if !a.Config.Running() {
		t.Error("does not run")
	}
	a.Release()
	if a.Config.Running() {
		t.Error("runs after its release")
	}
	again := acquire(t, "a")
	if !again.Swept || again.Resumed {
		t.Errorf("swept %t, resumed %t: want the rest of a crash to be removed", again.Swept, again.Resumed)
	}
	again.Release()
	b.Release()
	for _, c := range []*Claim{again, b} {
		if err := Remove(c.Config.Instance); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(Home()); err == nil {
		t.Error("the home was left behind")
	}
}

// Whoever removes the last lab removes the home, while others move in.
func TestTheHomeGoesBeneathThoseWhoMoveIn(t *testing.T) {
	shortHome(t)
	var all errgroup.Group
	for _, name := range []string{"a", "b", "c"} {
		all.Go(func() error {
			for range 20 {
				c, err := Acquire(Config{Instance: Instance{Name: name}, Topology: DefaultTopology()})
				if err != nil {
					return fmt.Errorf("acquire %s: %w", name, err)
				}
				c.Release()
				if err := Remove(c.Config.Instance); err != nil {
					return fmt.Errorf("remove %s: %w", name, err)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(Home()); err == nil {
		t.Error("the home was left behind")
	}
}

// `lab down` of a lab that does not exist, by several at once.
func TestTheHomeIsRemovedBySeveral(t *testing.T) {
	shortHome(t)
	nobody, err := Locate("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if err := makeHome(Home()); err != nil {
			t.Fatal(err)
		}
		var all errgroup.Group
		for range 4 {
			all.Go(func() error { return Remove(nobody) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(Home()); err == nil {
		t.Error("the home was left behind")
	}
}

// TestALockThatIsALink: it is refused, be there anything where it points to or not.
func TestALockThatIsALink(t *testing.T) {
	shortHome(t)
	if err := makeHome(Home()); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{t.TempDir() + "/nowhere/nothing", t.TempDir()} {
		if err := os.Symlink(to, homeLock()); err != nil {
			t.Fatal(err)
		}
		if home, err := lockHome(); !errors.Is(err, unix.ELOOP) {
			t.Errorf("a link to %s: %v, %v", to, home, err)
		}
		if err := os.Remove(homeLock()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeptInstanceContinuesOnItsPorts(t *testing.T) {
	shortHome(t)
	a := acquire(t, "a")
	a.Release()
	if Kept(a.Config.Name) {
		t.Error("it runs")
	}
	if err := a.Config.Keep(); err != nil {
		t.Fatal(err)
	}
	if !Kept(a.Config.Name) {
		t.Error("it was kept")
	}
	// Another lab does not take the ports meanwhile, even if its search starts at them.
	b := acquire(t, "b")
	defer b.Release()
	other, err := Acquire(Config{Instance: Instance{Name: "a"}, Topology: Topology{Zones: 9}})
	if err != nil {
		t.Fatal(err)
	}
	if !other.Resumed || other.Config.Ports != a.Config.Ports || other.Config.Topology != a.Config.Topology {
		t.Errorf("resumed %t with %+v, want %+v", other.Resumed, other.Config, a.Config)
	}
	other.Release()
	if err := a.Config.Keep(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", Loopback(a.Config.Ports.CephMon(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Acquire(Config{Instance: Instance{Name: "a"}}); err == nil || !strings.Contains(err.Error(), "not free") {
		t.Errorf("with a port taken: %v", err)
	}
}

func TestBlocksDoNotOverlap(t *testing.T) {
	p := Ports{Base: firstBlock}
	first, last := p.CephDaemons()
	if p.CephMon(maxMons) >= first || last >= firstBlock+blockSize || p.TemporalInternal()+20 >= p.CephMon(0) {
		t.Errorf("mon %d, daemons %d-%d", p.CephMon(maxMons), first, last)
	}
	if lastBlock+blockSize > 32768 {
		t.Error("blocks reach into the ports of outgoing connections")
	}
	if (Ports{Base: lastBlock}).Network() >= 64 {
		t.Error("more blocks than ranges of pod addresses")
	}
}

func TestGuardKeepsOthersOut(t *testing.T) {
	p, guard, err := claimPorts(t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	if q, other, err := claimPorts(t.Name(), nil); err != nil || q == p {
		t.Errorf("block %v twice (%v)", q, err)
	} else {
		other.Close()
	}
}

func TestProcessIsNotMistaken(t *testing.T) {
	started, _, err := processStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := Process{PID: os.Getpid(), Started: started, Boot: bootID()}
	if !p.alive() {
		t.Error("we are not alive")
	}
	p.Started = "1"
	if p.alive() {
		t.Error("took us for somebody else")
	}
}

// TestAddressesOfLabsDiffer: pods have 127.64 to 127.127.
func TestAddressesOfLabsDiffer(t *testing.T) {
	seen := map[string]int{}
	for base := firstBlock; base <= lastBlock; base += blockSize {
		p := Ports{Base: base}
		cidr := p.ServiceCIDR()
		if other, ok := seen[cidr]; ok {
			t.Errorf("ports %d and %d: both have %s", base, other, cidr)
		}
		seen[cidr] = base
		network, err := netip.ParsePrefix(cidr)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{1, 255} {
			if a := netip.MustParseAddr(p.ServiceAddress(i)); !network.Contains(a) || !a.IsLoopback() || a.As4()[1] < 128 {
				t.Errorf("ports %d: %s in %s", base, a, cidr)
			}
		}
	}
}
