package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestOldLibrados has a worker whose librados is older than the type of key that every new cluster has. It says so
// wherever somebody looks, keeps everything closed, and another worker, with the cluster's own librados, finds all as
// it should be.
func TestOldLibrados(t *testing.T) {
	if !turns.OnlyWithAll("a worker with an old librados") {
		return
	}
	t.Parallel()
	w := &world{name: fmt.Sprintf("e2e-%d-old", os.Getpid()), ownLibrados: true}
	w.makeLab(t, []string{"--ceph", "20", "--zones", "3", "--nodes-per-zone", "1", "--osds-per-node", "1"})
	defer func() {
		if t.Failed() {
			w.describe(t)
		}
	}()
	require.NoError(t, w.installObjects())
	require.NoError(t, w.start("worker"))
	require.NoError(t, w.start("watch"))

	const why = `the key of client\.lockkeeper is of type AES256K, and this program runs with librados 16\.[0-9.]+, which cannot read it: use librados 20\.2\.4 or newer`
	policy := func(field string) []string {
		return []string{"-n", cephNamespace, "get", "maintenancepolicy", policyName, "-o", "jsonpath={.status." + field + "}"}
	}
	require.NoError(t, w.eventually(patience, why, "kubectl", policy("message")...))
	require.NoError(t, w.eventually(patience, "^no$", "kubectl", policy("mayDrain")...))
	require.NoError(t, w.eventually(patience, why, "lockkeeper", "status"))
	require.NoError(t, w.eventually(patience, why+`\n *→ run a worker whose image has that librados`,
		"lockkeeper", "doctor"))
	log, err := os.ReadFile(filepath.Join(w.dir, "worker.log"))
	require.NoError(t, err)
	require.Regexp(t, why, string(log))

	require.NoError(t, w.stop("worker", syscall.SIGTERM))
	w.ownLibrados = false
	require.NoError(t, w.start("worker"))
	require.NoError(t, w.eventually(patience, "^any node$", "kubectl", policy("mayDrain")...))
}
