package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning says that the instance runs already.
var ErrRunning = errors.New("already running")

// Claim is the right to run an instance. It is held by open files, so that the kernel takes it back from whoever dies.
type Claim struct {
	Config Config
	// Resumed says that the instance continues with the data that `lab down --keep` kept.
	Resumed bool
	// Swept says that the remains of a crash were removed.
	Swept bool
	// Turn is held as long as the claim is; nil: there is no need of one.
	Turn *os.File

	lock  *os.File
	guard net.Listener
}

// Acquire claims the instance that wanted describes, under its name. Ports are chosen unless it was kept.
func Acquire(wanted Config) (*Claim, error) {
	inst, err := Locate(wanted.Name)
	if err != nil {
		return nil, err
	}
	// Under the lock of the home, so that nobody else chooses ports or removes folders meanwhile.
	home, err := lockHome()
	if err != nil {
		return nil, err
	}
	defer home.Close()
	c := &Claim{Config: wanted}
	c.lock, err = lockFile(inst.lockPath(), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lab %s is %w: `lab status` shows it, `lab down --name %s` stops it", inst.Name,
			ErrRunning, inst.Name)
	}
	if err != nil {
		return nil, err
	}
	if err := c.settle(inst); err != nil {
		c.Release()
		return nil, err
	}
	return c, nil
}

// settle decides where the instance lives and with which ports, and writes it down.
func (c *Claim) settle(inst Instance) error {
	before, err := Load(inst.Name)
	exists := err == nil
	if exists && before.kept() {
		c.Resumed, inst.Ports = true, before.Ports
		if c.guard, err = inst.Ports.claim(); err != nil {
			return fmt.Errorf("the ports of lab %s, which was kept, are not free: %w", inst.Name, err)
		}
	} else {
		if c.Swept, err = sweep(inst); err != nil {
			return err
		}
		if inst.Ports, c.guard, err = claimPorts(inst.Dir, portsTaken()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(inst.Path("log"), 0o700); err != nil {
		return err
	}
	if c.Resumed {
		c.Config = before
		c.Config.Instance = inst
		return os.Remove(inst.keptPath())
	}
	c.Config.Instance = inst
	return c.Config.Save()
}

// Files are what a process must inherit to hold the claim instead of this one.
func (c *Claim) Files() ([]*os.File, error) {
	guard, err := c.guard.(*net.TCPListener).File()
	held := []*os.File{c.lock, guard}
	if c.Turn != nil {
		held = append(held, c.Turn)
	}
	return held, err
}

// Release gives the claim up, except for whoever inherited it.
func (c *Claim) Release() {
	if c.lock != nil {
		c.lock.Close()
	}
	if c.guard != nil {
		c.guard.Close()
	}
	if c.Turn != nil {
		c.Turn.Close()
	}
}

// Running tells whether somebody holds the claim.
func (i Instance) Running() bool {
	f, err := os.Open(i.lockPath())
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// AwaitStopped waits until nobody holds the claim, and tells whether that came true in time.
func (i Instance) AwaitStopped(timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !i.Running() {
			return true
		}
	}
	return !i.Running()
}

// Keep marks a stopped instance, so that the next start continues with its data.
func (i Instance) Keep() error { return os.WriteFile(i.keptPath(), nil, 0o600) }

// Remove removes a stopped instance, and the home with the last one.
func Remove(inst Instance) error {
	home, err := lockFile(homeLock(), unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer home.Close()
	if inst.Running() {
		return fmt.Errorf("lab %s is %w", inst.Name, ErrRunning)
	}
	if _, err := sweep(inst); err != nil {
		return err
	}
	if err := os.Remove(inst.lockPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if entries, err := os.ReadDir(Home()); err == nil && len(entries) == 1 { // our lock
		if err := os.Remove(homeLock()); err != nil {
			return err
		}
		// From here on others lock a file of their own: then it is their home, or theirs to remove.
		err := os.Remove(Home())
		if err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes the folder of an instance that nobody runs, and tells whether there was one.
func sweep(inst Instance) (bool, error) {
	if _, err := os.Lstat(inst.Dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, os.RemoveAll(inst.Dir)
}

func (c Config) kept() bool {
	_, err := os.Stat(c.keptPath())
	return err == nil
}

func (i Instance) keptPath() string { return i.Path("kept") }
func (i Instance) lockPath() string { return i.Dir + ".lock" }
func homeLock() string              { return filepath.Join(Home(), ".lock") }

func portsTaken() map[int]bool {
	taken := map[int]bool{}
	all, _ := List() // what cannot be read has no ports
	for _, c := range all {
		taken[c.Ports.Base] = true
	}
	return taken
}

// lockHome locks the folder of all instances, and makes it if need be: as often as somebody who removes the last one
// takes it away beneath us.
func lockHome() (*os.File, error) {
	for {
		err := makeHome(Home())
		if err == nil {
			var home *os.File
			if home, err = lockFile(homeLock(), unix.LOCK_EX); err == nil {
				return home, nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// makeHome makes the folder of all instances, which may lie in /tmp, where anybody could have made it before us.
func makeHome(home string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(home, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of ours that only we can write: remove it, or set LAB_HOME", home)
	}
	return nil
}

// lockFile opens and locks a file. Whoever holds the lock may remove the file, so the one we got may not be the one
// that others would lock. A symbolic link is refused: ours are none, and one that leads nowhere could never be locked.
func lockFile(path string, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s is a symbolic link, which no lock of a lab is: remove it (%w)", path, unix.ELOOP)
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), how); err != nil {
			f.Close()
			return nil, err
		}
		ours, err1 := f.Stat()
		theirs, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(ours, theirs) {
			return f, nil
		}
		f.Close()
	}
}
