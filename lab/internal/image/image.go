package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Releases are the major versions of Ceph that the lab has, oldest first.
var Releases = []int{16, 18, 20}

// Machine is the release that is installed on the machine, and needs no image.
const Machine = 16

// suites are Debian's names of the distributions whose packages have a release.
var suites = map[int]string{18: "trixie", 20: "forky"}

// repository is the name of the lab's images; their tags are releases.
const repository = "lab/ceph"

// Name is the image of a release, as it stands in a pod.
func Name(release int) string { return repository + ":" + strconv.Itoa(release) }

// ErrUnknown says that there is no such image.
var ErrUnknown = errors.New("no such image")

// Release is the Ceph that an image has. A name without a slash, such as none, stands for the machine's own files. The
// error is ErrUnknown for a name that nobody could pull.
func Release(name string) (int, error) {
	if !strings.Contains(name, "/") {
		return Machine, nil
	}
	for _, release := range Releases {
		if name == Name(release) {
			return release, nil
		}
	}
	return 0, fmt.Errorf("%w: %q; the lab has %s, and the machine's own files under every name without a slash",
		ErrUnknown, name, names())
}

// Check says whether there is such a release.
func Check(release int) error {
	if slices.Contains(Releases, release) {
		return nil
	}
	return fmt.Errorf("no Ceph %d: allowed are %s", release, list(Releases, ", "))
}

func names() string {
	var all []string
	for _, release := range Releases {
		all = append(all, Name(release))
	}
	return strings.Join(all, ", ")
}

func list(numbers []int, separator string) string {
	var all []string
	for _, n := range numbers {
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, separator)
}

// Cache is the folder of all unpacked releases.
func Cache() (string, error) {
	if dir := os.Getenv("LAB_IMAGES"); dir != "" {
		return filepath.Abs(dir)
	}
	if cache := os.Getenv("GOCACHE"); filepath.IsAbs(cache) {
		return filepath.Join(filepath.Dir(cache), "lockkeeper-lab", "images"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the root filesystems of other Ceph releases: %w; set LAB_IMAGES to one", err)
	}
	return filepath.Join(dir, "lockkeeper-lab", "images"), nil
}

// Root is the root filesystem of a release, unpacked if that has not been done before; "" stands for the machine's.
// Several processes may ask at once: one unpacks, the others wait.
func Root(ctx context.Context, release int, progress func(string)) (string, error) {
	if err := Check(release); err != nil || release == Machine {
		return "", err
	}
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("the cache of Ceph releases: %w", err)
	}
	u := unpacking{
		release: release, suite: suites[release], root: filepath.Join(cache, "ceph-"+strconv.Itoa(release)),
		progress: progress,
	}
	if _, ok := checked.Load(u.root); ok {
		return u.root, nil
	}
	if err := u.ensure(ctx); err != nil {
		return "", err
	}
	checked.Store(u.root, true)
	return u.root, nil
}

// checked are the root filesystems that this process has found whole.
var checked sync.Map
