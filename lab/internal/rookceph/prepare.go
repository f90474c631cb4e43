package rookceph

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// osdSize is what an OSD believes its disk to hold. The file is sparse.
const osdSize = 1 << 30

// preparedFile is written last: a folder without it is the rest of a Prepare that was interrupted.
const preparedFile = "prepared"

// Prepare makes a cluster on disk, or does nothing if there is one. It takes about two seconds, most of which the first
// election and the ceph command need.
func Prepare(ctx context.Context, inst instance.Instance, topo instance.Topology, progress func(string)) error {
	c := cluster{inst: inst, topo: topo}
	if err := c.validate(); err != nil {
		return err
	}
	forget, err := c.usePrograms(ctx, progress)
	if err != nil {
		return err
	}
	defer forget()
	switch _, err := os.Stat(c.path(preparedFile)); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.RemoveAll(c.path()); err != nil {
		return err
	}
	id := c.newIdentity(time.Now())
	if err := c.writeFiles(id); err != nil {
		return err
	}
	if err := c.makeMonStores(ctx, id); err != nil {
		return err
	}
	// OSD stores take a second of disk writes, the first conversation with the monitors two of waiting.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.makeOSDStores(ctx, id) })
	g.Go(func() error { return c.bootstrap(ctx, id, progress) })
	if err := g.Wait(); err != nil {
		return err
	}
	return os.WriteFile(c.path(preparedFile), nil, 0o600)
}

// requirePrograms names the packages to install instead of failing at the first missing program.
func requirePrograms() error {
	missing := map[string]bool{}
	var packages []string
	for _, p := range []struct{ program, pkg string }{
		{"ceph-mon", "ceph-mon"},
		{"ceph-mgr", "ceph-mgr"},
		{"ceph-osd", "ceph-osd"},
		{"ceph", "ceph-common"},
		{"monmaptool", "ceph-common"},
	} {
		if findProgram(p.program) == "" && !missing[p.pkg] {
			missing[p.pkg] = true
			packages = append(packages, p.pkg)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	return fmt.Errorf("Ceph is not installed; as root: apt-get install -y --no-install-recommends %s",
		strings.Join(packages, " "))
}

// findProgram looks where Debian puts daemons, too: they need not be on an ordinary user's PATH.
func findProgram(name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/usr/sbin", "/usr/local/bin") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func (c cluster) writeFiles(id identity) error {
	for _, dir := range []string{"run", "run/crash", "log", "keys", "mgr-" + mgrName} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	entities := c.entities()
	files := map[string]string{
		"ceph.conf":   c.config(id.FSID, c.monHost(), c.machinePlace()),
		"keys/all":    id.keyrings(entities),
		"keys/mon":    id.keyrings(entities[:1]),
		"keys/README": "One keyring per user, and all of them as the monitors got them at first.\n",
	}
	for _, e := range entities[1:] {
		files["keys/"+e.name+".keyring"] = id.keyring(e)
	}
	for name, content := range files {
		if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if c.topo.OSDPods == instance.OSDPodsNone {
		if err := c.writeCephOSD(); err != nil {
			return err
		}
	}
	if err := c.writeCephMon(); err != nil {
		return err
	}
	return c.saveIdentity(id)
}
