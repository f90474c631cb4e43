// Package rootfs shows programs a root filesystem of their own: the machine's, with volumes where a pod wants them, or
// with the programs and libraries of an image. It knows nothing of Kubernetes, so that a program that only enters one
// starts at once.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// Mount is a file or folder of the machine and where a container sees it.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

// Enter makes this thread, and all it starts, see the machine's files with the mounts on top. With an image,
// programs and libraries are the image's: whatever is in /usr. Nothing is created outside of the calling thread's mount
// namespace.
func Enter(staging, image string, mounts []Mount) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	r := rootfs{dir: staging, image: image}
	if err := r.mirror("/"); err != nil {
		return fmt.Errorf("root filesystem: %w", err)
	}
	// Parents first, so that a volume may be mounted inside another one.
	mounts = slices.Clone(mounts)
	slices.SortStableFunc(mounts,
		func(a, b Mount) int { return len(filepath.Clean(a.Target)) - len(filepath.Clean(b.Target)) })
	if err := r.makeRoom(mounts); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Source, m.Target, err)
		}
	}
	return pivot(staging)
}

// rootfs is a root filesystem under construction. It starts as an empty tmpfs with every entry of the machine's root
// bound into it. A folder of the machine that lacks a mount point is replaced in the same way: by a tmpfs with the same
// entries, in which the mount point can be made.
type rootfs struct {
	dir     string
	image   string   // the folder whose programs and libraries stand for the machine's; "": the machine's own
	own     []string // folders that we made: by mirror, or inside one of those
	volumes []string // where a volume is mounted
}

// programs are the folders of programs and libraries: all of /usr, and what leads there.
var programs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"}

// source is where the contents of a path come from.
func (r *rootfs) source(path string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if r.image != "" && slices.Contains(programs, top) {
		return filepath.Join(r.image, path)
	}
	return path
}

// mirror replaces a folder by a tmpfs with the same entries.
func (r *rootfs) mirror(path string) error {
	source := r.source(path)
	entries, err := os.ReadDir(source)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // in a folder that is closed to us nobody misses anything
		return err
	}
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	here := filepath.Join(r.dir, path)
	if err := unix.Mount("tmpfs", here, "tmpfs", 0, fmt.Sprintf("mode=%o", st.Mode().Perm())); err != nil {
		return fmt.Errorf("tmpfs for %s: %w", path, err)
	}
	// Without this, binding the folder in which we build would bind what we build.
	if err := unix.Mount("", here, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	for _, e := range entries {
		from, kind := r.source(filepath.Join(path, e.Name())), e.Type()
		if path == "/" && from != "/"+e.Name() { // of the image, where it may be something else, or nothing
			st, err := os.Lstat(from)
			if err != nil {
				continue
			}
			kind = st.Mode()
		}
		if err := bindEntry(from, filepath.Join(here, e.Name()), kind); err != nil {
			return err
		}
	}
	if path == "/" && r.image != "" {
		if err := remountReadOnly(filepath.Join(here, "usr")); err != nil { // it is every container's
			return fmt.Errorf("the image's programs: %w", err)
		}
	}
	r.own = append(r.own, path)
	return nil
}

func bindEntry(source, target string, mode fs.FileMode) error {
	if mode&fs.ModeSymlink != 0 {
		to, err := os.Readlink(source)
		if err != nil {
			return ignoreNotExist(err)
		}
		return os.Symlink(to, target)
	}
	if err := makeMountPoint(target, mode.IsDir()); err != nil {
		return err
	}
	return ignoreNotExist(bind(source, target)) // it may have gone since we listed it
}

// resolve is where a path of the container is. Symbolic links in it lead to places in the container, not on the
// machine.
func (r *rootfs) resolve(path string) (string, error) {
	here, err := securejoin.SecureJoin(r.dir, path)
	return "/" + strings.TrimPrefix(strings.TrimPrefix(here, r.dir), "/"), err
}

// makeRoom mirrors the folders that lack a mount point, before anything is mounted: a mirror of /etc, for /etc/keyring,
// would hide what is at /etc/ceph already, and one of /var what was mirrored below it. What is inside of a volume finds
// its room there.
func (r *rootfs) makeRoom(mounts []Mount) error {
	var parents []string
	for _, m := range mounts {
		inside := func(other Mount) bool {
			return strings.HasPrefix(filepath.Clean(m.Target), filepath.Clean(other.Target)+"/")
		}
		if slices.ContainsFunc(mounts, inside) {
			continue
		}
		target, err := r.resolve(m.Target)
		if errors.Is(err, fs.ErrPermission) { // below a folder that is closed to us, of which a mirror is empty
			target, err = filepath.Clean(m.Target), nil
		}
		if err != nil {
			return err
		}
		if parent := r.nearest(target); parent != target {
			parents = append(parents, parent)
		}
	}
	slices.Sort(parents) // each before what is below it
	for _, parent := range slices.Compact(parents) {
		if r.writable(parent) {
			continue
		}
		if err := r.mirror(parent); err != nil {
			return fmt.Errorf("room in %s: %w", parent, err)
		}
	}
	return nil
}

// nearest is the path itself, or the nearest folder above it that exists.
func (r *rootfs) nearest(path string) string {
	for {
		if _, err := os.Lstat(filepath.Join(r.dir, path)); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
}

func (r *rootfs) mount(m Mount) error {
	st, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	target, err := r.resolve(m.Target)
	if err != nil {
		return err
	}
	here := filepath.Join(r.dir, target)
	if target == "/" {
		return errors.New("cannot mount over the root folder")
	}
	if err := r.provide(target, st.IsDir()); err != nil {
		return err
	}
	if err := bind(m.Source, here); err != nil {
		return err
	}
	r.volumes = append(r.volumes, target)
	if m.ReadOnly {
		return remountReadOnly(here)
	}
	return nil
}

// provide makes sure that a mount point exists.
func (r *rootfs) provide(target string, dir bool) error {
	here, parent := filepath.Join(r.dir, target), r.nearest(target)
	if parent == target {
		return nil
	}
	if !r.writable(parent) {
		if err := r.mirror(parent); err != nil {
			return err
		}
	}
	for dir := filepath.Dir(target); dir != parent; dir = filepath.Dir(dir) {
		r.own = append(r.own, dir)
	}
	if err := os.MkdirAll(filepath.Dir(here), 0o755); err != nil {
		return err
	}
	return makeMountPoint(here, dir)
}

// writable tells whether something may be created in a folder: not in one of the machine's, but in ours, and in a pod's
// volume, where container runtimes create missing mount points too.
func (r *rootfs) writable(path string) bool {
	inVolume := func(volume string) bool { return path == volume || strings.HasPrefix(path, volume+"/") }
	return slices.Contains(r.own, path) || slices.ContainsFunc(r.volumes, inVolume)
}

func makeMountPoint(path string, dir bool) error {
	if dir {
		return os.Mkdir(path, 0o755)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// bind is always recursive: a user namespace may not show what lies below the machine's mounts.
func bind(source, target string) error {
	return unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

// remountReadOnly keeps the flags of the mount: in a user namespace they are locked.
func remountReadOnly(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return err
	}
	kept := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC |
		unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, "")
}

// pivot makes dir the root and lets go of the old one.
func pivot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	// The old root is stacked on the new one, and is what "." finds first.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the old root: %w", err)
	}
	return unix.Chdir("/")
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
