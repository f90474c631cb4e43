package cli

import (
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/lockkeeper/lockkeeper/cli/history"
)

const keeperID = "keeper/rook-ceph/rook-ceph"

// remembered is a world whose Temporal remembers what was recorded in the lab. The keeper continued as new in the
// middle.
func remembered(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.records = map[string][]history.Run{}
	for id, file := range map[string]string{
		"drain/node-a": "v0.2-drain-node-a", "drain/node-c": "v0.2-drain-node-c",
		keeperID: "v0.2-keeper-rook-ceph-rook-ceph",
	} {
		f, err := os.Open(filepath.Join("../workflows/testdata", file+".json.gz"))
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		h, err := client.HistoryFromJSON(z, client.HistoryJSONOptions{})
		require.NoError(t, err)
		require.NoError(t, f.Close())
		w.records[id] = []history.Run{{WorkflowID: id, Events: h.GetEvents()}}
	}
	return w
}

func TestHistoryOfADrain(t *testing.T) {
	w := remembered(t)
	c, out, _ := w.command()
	h, err := c.History(t.Context(), "node-c", HistoryOptions{})
	require.NoError(t, err)
	again, err := c.History(t.Context(), "drain/node-c", HistoryOptions{RunID: h.RunID})
	require.NoError(t, err)
	assert.Equal(t, h, again)
	h.Write(out)
	text := out.String()
	for _, want := range []string{
		"drain/node-c, from ", "drain   somebody drains node-c from outside; this job guards it",
		"keeper  drain/node-c asks for the lease of zone zone-z",
		"keeper  set noout on node-c", "drain   ended: Done",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "drain/node-a asks", "that was before")
	assert.NotContains(t, text, "unset noout on node-d", "and that after")
	for i := 1; i < len(h.Entries); i++ {
		assert.False(t, h.Entries[i].At.Before(h.Entries[i-1].At))
	}
}

// TestHistoryOfAKeeper that went on in another run, and was terminated later: all its runs count.
func TestHistoryOfAKeeper(t *testing.T) {
	w := remembered(t)
	whole := w.records[keeperID][0].Events
	half := len(whole) / 2
	second := append([]*historypb.HistoryEvent{{
		EventTime: whole[half].GetEventTime(), EventType: whole[0].GetEventType(),
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				OriginalExecutionRunId: "second",
				WorkflowType:           whole[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType(),
			},
		},
	}}, whole[half:]...)
	w.records[keeperID] = []history.Run{
		{WorkflowID: keeperID, Events: whole[:half]},
		{WorkflowID: keeperID, Events: second},
	}
	c, _, _ := w.command()
	c.Now = func() time.Time { return whole[len(whole)-1].GetEventTime().AsTime().Add(time.Minute) }
	h, err := c.History(t.Context(), keeperID, HistoryOptions{})
	require.NoError(t, err)
	var out strings.Builder
	h.Write(&out)
	for _, node := range []string{"a", "b", "c", "d"} {
		assert.Contains(t, out.String(), "keeper  drain/node-"+node+" asks for the lease")
	}
	late, err := c.History(t.Context(), keeperID, HistoryOptions{Since: 80 * time.Second})
	require.NoError(t, err)
	assert.Less(t, len(late.Entries), len(h.Entries))
	assert.NotEmpty(t, late.Entries)
	assert.Equal(t, h.Entries[len(h.Entries)-1], late.Entries[len(late.Entries)-1])
}

func TestHistoryWithoutTheKeeper(t *testing.T) {
	w := remembered(t)
	w.recordAway = map[string]error{keeperID: errors.New("read the history: connection refused")}
	c, out, _ := w.command()
	h, err := c.History(t.Context(), "node-a", HistoryOptions{})
	require.NoError(t, err)
	h.Write(out)
	assert.Contains(t, out.String(), "drain   ended: Done")
	assert.Contains(t, out.String(), "What the keeper did is not known: read the history: connection refused")
}

func TestHistoryRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		job, run, want string
		code           int
		away           error
	}{
		"nothing recorded": {
			"node-q", "",
			"drain/node-q: no such job is recorded; Temporal forgets what has ended after its retention period",
			ExitFailed, nil,
		},
		"no such run": {
			"node-a", "x", `--run: "x": no such run of drain/node-a; leave it out for the last one`,
			ExitFailed, nil,
		},
		"another kind": {
			"a/b/c", "",
			`JOB: "a/b/c": must be the name of a node, NAMESPACE/NAME of a CephOSD, drain/NODE, fence/NODE, scale-down/NODE, update-osds/[NAMESPACE/]NAME, restart-osds[/NAMESPACE], restart-waiting/[NAMESPACE/]NAME or migrate-mons/[NAMESPACE/]NAME, or keeper/NAMESPACE/POLICY`, ExitUsage, nil,
		},
		"no rollout":         {"ceph/osds", "", "update-osds/ceph/osds: no such job is recorded", ExitFailed, nil},
		"half a keeper":      {"keeper/x", "", `JOB: "x": must be namespace/name of a MaintenancePolicy`, ExitUsage, nil},
		"without a Temporal": {"node-a", "", "Temporal does not answer", ExitFailed, ErrAway},
	} {
		t.Run(name, func(t *testing.T) {
			w := remembered(t)
			w.temporalAway = c.away
			command, _, _ := w.command()
			_, err := command.History(t.Context(), c.job, HistoryOptions{RunID: c.run})
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.code, ExitCode(err))
		})
	}
}
