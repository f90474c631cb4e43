package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestMonsGetAnotherRelease: three adopted mons get the image of another release where they are, one after the other,
// under write load. The manager of before, which starts itself anew for that, finds them. So it does after all of them
// have moved, if it was restarted once, as the plan says. An image that they cannot take no mon gets, and one for which
// the OSDs have to go first waits for them.
func TestMonsGetAnotherRelease(t *testing.T) {
	if !turns.Has("mons get another release", 4*time.Minute) {
		return
	}
	t.Parallel()
	w := &world{name: fmt.Sprintf("e2e-%d-release", os.Getpid()), cephMon: true}
	w.up(t, append(slices.Clone(twoNodesPerZone), "--ceph", "16", "--mon-storage", "hostpath"))
	defer func() {
		if t.Failed() {
			w.describe(t)
		}
	}()
	require.NoError(t, w.begins())
	upgrade := func(release, storage string) {
		var err error
		require.NoError(t, w.pull("lab/ceph:"+release))
		w.knownMons, err = w.monsAndPods()
		require.NoError(t, err)
		require.NoError(t, w.setCephMon(`{"podTemplate": {"image": "lab/ceph:`+release+`"}}`))
		require.NoError(t, until(patience, w.restartedMons))
		require.NoError(t, w.awaitMons("3", storage))
		require.NoError(t, w.eventually(patience, `"mon": {\s+"ceph version `+release+`[^}]*": 3\s+}`, "ceph", "versions"))
		require.NoError(t, w.whole())
	}
	mons := func(image string) error {
		return w.setCephMon(`{"podTemplate": {"image": "lab/ceph:` + image + `"}}`)
	}
	says := func(why string) error {
		job := "migrate-mons/" + cephNamespace + "/" + cephMonName
		return w.eventually(patience, why, "lockkeeper", "status", job, "-o", "json")
	}
	require.NoError(t, mons("20"))
	require.NoError(t, says("lab/ceph:20: Ceph 20.* take one in between first"))
	upgrade("18", "HostPath")
	require.NoError(t, mons("16"))
	require.NoError(t, says("lab/ceph:16: mon.a runs Ceph 18.* cannot go back to 16"))
	require.NoError(t, w.whole())
	require.NoError(t, mons("18"))

	storage, err := w.changeStorage()
	require.NoError(t, err)
	require.NoError(t, w.run("lockkeeper", "migrate-mons", cephNamespace+"/"+cephMonName))
	require.NoError(t, w.awaitMons("3", storage))
	plan := []string{"lockkeeper", "migrate-mons", cephNamespace + "/" + cephMonName, "--plan"}
	require.NoError(t, w.eventually(patience, "pod rook-ceph-mgr-a-.* was started before every mon", plan[0], plan[1:]...))
	require.NoError(t, w.run("kubectl", "-n", cephNamespace, "rollout", "restart", "deployment/rook-ceph-mgr-a"))
	require.NoError(t, w.run("kubectl", "-n", cephNamespace, "rollout", "status", "deployment/rook-ceph-mgr-a",
		"--timeout=2m"))

	require.NoError(t, mons("20"))
	require.NoError(t, says("require_osd_release is still pacific"))
	require.NoError(t, w.run("lockkeeper", "restart-osds", "-n", cephNamespace, "--update-domain", "Zone",
		"--image", "lab/ceph:18", "--wait"))
	require.NoError(t, w.run("ceph", "osd", "require-osd-release", "reef"))
	upgrade("20", storage)
}

// pull has an image be there before anything needs it. The first time that takes minutes, and a mon that waits for
// it is missed meanwhile, and replaced.
func (w *world) pull(image string) error {
	const pod = "pull"
	if err := w.run("kubectl", "run", pod, "--image="+image, "--restart=Never", "--command", "--", "true"); err != nil {
		return err
	}
	err := w.run("kubectl", "wait", "pod/"+pod, "--for=jsonpath={.status.phase}=Succeeded",
		"--timeout="+patience.String())
	return errors.Join(err, w.run("kubectl", "delete", "pod", pod))
}
