package rookceph

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// releaseName is what Ceph calls a release. A monitor takes only a monmap that is made for it or for one of the two
// releases before.
var releaseName = map[int]string{16: "pacific", 18: "reef", 20: "tentacle"}

// makeMonStores gives every monitor the same first monmap and all keys.
func (c cluster) makeMonStores(ctx context.Context, id identity) error {
	monmap := c.path("monmap")
	args := []string{"--create", "--fsid", id.FSID, "--set-min-mon-release", releaseName[c.topo.Release()]}
	if c.topo.Release() >= instance.FirstWithAES256K {
		args = append(args, "--auth-allowed-ciphers", c.ciphers())
	}
	for _, m := range c.mons() {
		args = append(args, "--addv", m.id, m.addr())
	}
	if err := c.run(ctx, "monmaptool", append(args, monmap)...); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range c.mons() {
		g.Go(func() error {
			if err := c.makeMonDir(m); err != nil {
				return err
			}
			return c.run(ctx, "ceph-mon", "--conf", AdminConfig(c.inst), "--mkfs", "--id", m.id,
				"--monmap", monmap, "--keyring", c.path("keys", "all"))
		})
	}
	return g.Wait()
}

// deviceDir is where a node has the disks of its OSDs. The machine has no such folder, so that each node has its own.
const deviceDir = "/dev/lab"

// makeOSDDir makes a folder on the disk of the OSD's node, which the machine finds among the rest of the cluster, too.
// That of a portable OSD is only there: it stays when a node goes for good, and its disk with it.
func (c cluster) makeOSDDir(osd instance.OSD) (string, error) {
	link := c.path("osd-" + strconv.Itoa(osd.ID))
	if c.topo.Portable() {
		return link, os.MkdirAll(link, 0o700)
	}
	dir := filepath.Join(c.inst.NodeDisk(osd.Node), deviceDir, osd.Device)
	if err := os.RemoveAll(dir); err != nil { // of a Prepare that was interrupted
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	target, err := filepath.Rel(filepath.Dir(link), dir)
	if err != nil {
		return "", err
	}
	return dir, os.Symlink(target, link)
}

// makeOSDStores formats the disks of all OSDs, a few at a time.
func (c cluster) makeOSDStores(ctx context.Context, id identity) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(6)
	for _, osd := range c.topo.OSDs() {
		g.Go(func() error {
			name := strconv.Itoa(osd.ID)
			dir, err := c.makeOSDDir(osd)
			if err != nil {
				return err
			}
			keyring, err := os.ReadFile(c.path("keys", osdName(osd.ID)+".keyring"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(dir+"/keyring", keyring, 0o600); err != nil {
				return err
			}
			return c.run(ctx, "ceph-osd", "--conf", AdminConfig(c.inst), "--mkfs", "--no-mon-config", "--id", name,
				"--osd-uuid", id.OSDs[osd.ID], "--bluestore-block-size", strconv.Itoa(osdSize))
		})
	}
	return g.Wait()
}

// cephEnv keeps the caller's CEPH_ARGS and CEPH_CONF, which mean another cluster, away from ours.
func cephEnv(conf string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "CEPH_") {
			env = append(env, kv)
		}
	}
	return append(env, "CEPH_CONF="+conf)
}

func tail(b []byte, n int) string {
	s := strings.TrimSpace(string(b))
	return s[max(0, len(s)-n):]
}
