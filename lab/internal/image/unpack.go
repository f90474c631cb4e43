package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unpacking brings one release into the cache.
type unpacking struct {
	release  int
	suite    string
	root     string // the folder that is to hold it
	progress func(string)
}

// manifestFile is written last, and says what belongs into the folder.
const manifestFile = ".lab-image.json"

// manifest is what was unpacked.
type manifest struct {
	Version string `json:"version"` // of the package ceph-osd
	Suite   string `json:"suite"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
}

// needed is what a release takes while it is unpacked: packages of 130 MB, and 600 MB of files.
const needed = 1 << 30

// packages are what a Ceph daemon, its command line and a lab's scripts need. Nothing is taken for granted, since no
// package is installed there.
var packages = []string{
	"ceph-mon", "ceph-mgr", "ceph-osd", "ceph-common", "librados2", "python3",
	"bash", "coreutils", "util-linux", "sed", "grep", "hostname", "perl-base", "mawk", "dash", "procps",
	"findutils", "libc-bin",
}

// ensure returns when the release is in the cache, whole.
func (u unpacking) ensure(ctx context.Context) error {
	if u.whole() == nil {
		return nil
	}
	unlock, err := u.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = u.whole()
	switch {
	case err == nil: // somebody else has done it
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		u.progress(fmt.Sprintf("Ceph %d in the cache is damaged (%s): unpack it again", u.release, err))
	}
	if err := u.unpack(ctx); err != nil {
		return fmt.Errorf("unpack Ceph %d from Debian's packages: %w", u.release, err)
	}
	return nil
}

// whole says what is wrong with what the cache has; fs.ErrNotExist: there is nothing.
func (u unpacking) whole() error {
	b, err := os.ReadFile(filepath.Join(u.root, manifestFile))
	if err != nil {
		return err
	}
	var want manifest
	if err := json.Unmarshal(b, &want); err != nil {
		return fmt.Errorf("%s: %w", manifestFile, err)
	}
	files, size, err := count(u.root)
	if err != nil {
		return err
	}
	if files != want.Files || size != want.Bytes {
		return fmt.Errorf("%d files of %d bytes, and there should be %d of %d", files, size, want.Files, want.Bytes)
	}
	return nil
}

// count counts what was unpacked. Python may have compiled a module since.
func count(root string) (files int, size int64, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "__pycache__":
			return filepath.SkipDir
		case d.IsDir(), d.Name() == manifestFile:
			return nil
		}
		files++
		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += info.Size()
		}
		return nil
	})
	return files, size, err
}

// lock waits until no other process unpacks the same release.
func (u unpacking) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(u.root+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the cache of Ceph releases: %w", err)
	}
	for said := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !said {
			u.progress(fmt.Sprintf("Ceph %d is being unpacked by another lab: wait for it", u.release))
			said = true
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}

// unpack fetches and unpacks beside the place where the release belongs, and moves it there when all is well.
func (u unpacking) unpack(ctx context.Context) (err error) {
	if err := u.room(); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(u.root), ".unpack-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	began := time.Now()
	a := apt{dir: filepath.Join(work, "apt"), suite: u.suite}
	if err := a.prepare(ctx); err != nil {
		return err
	}
	u.progress(fmt.Sprintf("Ceph %d: fetch about 130 MB of Debian's packages (%s), once", u.release, u.suite))
	debs, err := a.download(ctx, packages)
	if err != nil {
		return err
	}
	u.progress(fmt.Sprintf("Ceph %d: unpack %d packages", u.release, len(debs)))
	root := filepath.Join(work, "root")
	if err := makeRoot(root); err != nil {
		return err
	}
	m := manifest{Suite: u.suite}
	for _, deb := range debs {
		if err := extract(ctx, deb, root); err != nil {
			return err
		}
		if name, rest, _ := strings.Cut(filepath.Base(deb), "_"); name == "ceph-osd" {
			m.Version, _, _ = strings.Cut(rest, "_")
		}
	}
	if major, _, _ := strings.Cut(m.Version, "."); major != fmt.Sprint(u.release) {
		return fmt.Errorf("the suite %s has Ceph %q now", u.suite, m.Version)
	}
	if err := u.finish(root, m); err != nil {
		return err
	}
	u.progress(fmt.Sprintf("Ceph %s: unpacked in %.0f s", m.Version, time.Since(began).Seconds()))
	return nil
}

func (u unpacking) finish(root string, m manifest) (err error) {
	if m.Files, m.Bytes, err = count(root); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, manifestFile), append(b, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(u.root); err != nil { // damaged
		return err
	}
	return os.Rename(root, u.root)
}

// room says in advance what a full disk would say half-way.
func (u unpacking) room() error {
	var st unix.Statfs_t
	dir := filepath.Dir(u.root)
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if free := st.Bavail * uint64(st.Bsize); free < needed {
		return fmt.Errorf("%s has %d MB free, and %d MB are needed: make room, or set LAB_IMAGES to a folder on another disk",
			dir, free>>20, needed>>20)
	}
	return nil
}

// makeRoot makes an empty root filesystem in which, as in Debian's, all programs are below /usr.
func makeRoot(root string) error {
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// extract unpacks one package. Everything belongs to us: an ordinary user cannot give files away, and nobody minds.
func extract(ctx context.Context, deb, root string) error {
	unpack := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	write := exec.CommandContext(ctx, "tar", "--extract", "--no-same-owner", "--keep-directory-symlink",
		"--directory", root)
	var said bytes.Buffer
	unpack.Stderr, write.Stderr = &said, &said
	pipe, err := unpack.StdoutPipe()
	if err != nil {
		return err
	}
	write.Stdin = pipe
	if err := unpack.Start(); err != nil {
		return err
	}
	err = write.Run()
	if err = errors.Join(err, unpack.Wait()); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(deb), err, strings.TrimSpace(said.String()))
	}
	return nil
}
