package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJobID(t *testing.T) {
	for job, want := range map[string]string{
		"node-a": "drain/node-a", "drain/node-a": "drain/node-a", "keeper/rook-ceph/rook-ceph": "keeper/rook-ceph/rook-ceph",
		"ceph/osds": "update-osds/ceph/osds", "update-osds/ceph/osds": "update-osds/ceph/osds",
		"restart-osds/rook-ceph": "restart-osds/rook-ceph",
	} {
		id, err := jobID(job)
		require.NoError(t, err)
		assert.Equal(t, want, id)
	}
	for _, job := range []string{
		"", "drain/", "keeper/x", "update-osds/ceph", "restart-osds/", "restart-osds/a/b",
		"a/b/c", "A/b", "/b", "a/",
	} {
		_, err := jobID(job)
		assert.ErrorContains(t, err, "must be ", job)
	}
	_, err := JobID("keeper/a/b")
	require.Error(t, err, "nobody holds or stops a keeper")
}

// Whatever the command, a name without a namespace means the one in the namespace that kubectl would use.
func TestNamesWithoutANamespace(t *testing.T) {
	asked := 0
	current := func() (string, error) { asked++; return "here", nil }
	for job, want := range map[string]string{
		"restart-osds": "restart-osds/here", "update-osds/osds": "update-osds/here/osds", "keeper/ceph": "keeper/here/ceph",
	} {
		got, err := FullName(job, current)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		_, err = jobID(got)
		require.NoError(t, err)
	}
	for name, want := range map[string]string{"osds": "here/osds", "update-osds/osds": "here/osds"} {
		got, err := CephOSDName(name, current)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, 5, asked)

	none := func() (string, error) { return "", errors.New("no kubeconfig") }
	for _, job := range []string{
		"", "node-a", "drain", "drain/", "drain/node-a", "ceph/osds", "keeper/", "keeper/a/b",
		"update-osds", "update-osds/", "update-osds/ceph/osds", "restart-osds/", "restart-osds/ceph",
	} {
		got, err := FullName(job, none)
		require.NoError(t, err, "nobody has to be asked")
		assert.Equal(t, job, got)
	}
	for _, name := range []string{"ceph/osds", "update-osds/ceph/osds"} {
		got, err := CephOSDName(name, none)
		require.NoError(t, err)
		assert.Equal(t, "ceph/osds", got)
	}
	_, err := FullName("restart-osds", none)
	require.EqualError(t, err, "no kubeconfig")
}

func TestOSDNamed(t *testing.T) {
	for osd, want := range map[string]string{
		"3": "osd.3", "osd.3": "osd.3", "node-a:/dev/sdb": "node-a:/dev/sdb", "rook-ceph-osd-3": "rook-ceph-osd-3",
	} {
		got, err := osdNamed(osd)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, osd := range []string{"", "node-a:sdb", ":/dev/sdb", "OSD 3", "-1"} {
		_, err := osdNamed(osd)
		assert.ErrorContains(t, err, "OSD: ", osd)
	}
}

// FuzzJob: whatever is asked for, it is the ID of one workflow of ours, or refused.
func FuzzJob(f *testing.F) {
	for _, s := range []string{
		"node-a", "drain/node-a", "keeper/a/b", "drain/", "keeper/", "drain/drain/a", "keeper/a/b' OR 1=1", "", "ceph/osds",
		"update-osds/a/b", "update-osds/a", "restart-osds/a", "restart-osds/a/b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := jobID(s)
		if err != nil {
			return
		}
		kind, rest, _ := strings.Cut(id, "/")
		slashes, known := map[string]int{"drain": 0, "keeper": 1, "update-osds": 1, "restart-osds": 0}[kind]
		if !known || rest == "" || strings.Count(rest, "/") != slashes || strings.ContainsAny(id, "' \n\"\\") {
			t.Fatalf("%q became %q", s, id)
		}
	})
}
