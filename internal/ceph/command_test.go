package ceph_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// TestCommandsAreExactly pins every byte that is sent to the monitors: a value of the wrong JSON type aborts them.
func TestCommandsAreExactly(t *testing.T) {
	text, err := os.ReadFile("testdata/commands.txt")
	require.NoError(t, err)
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if call, command, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			want[call] = command
		}
	}
	ctx := context.Background()
	calls := map[string]func(ceph.Client){
		"Status":                func(c ceph.Client) { c.Status(ctx) },
		"QuorumStatus":          func(c ceph.Client) { c.QuorumStatus(ctx) },
		"OSDSessions":           func(c ceph.Client) { c.OSDSessions(ctx) },
		"SessionsOf(a)":         func(c ceph.Client) { c.SessionsOf(ctx, []string{"a"}) },
		"OSDDump":               func(c ceph.Client) { c.OSDDump(ctx) },
		"MonVersions":           func(c ceph.Client) { c.MonVersions(ctx) },
		"OSDEpoch":              func(c ceph.Client) { c.OSDEpoch(ctx) },
		"CrushDump":             func(c ceph.Client) { c.CrushDump(ctx) },
		"Manager":               func(c ceph.Client) { c.Manager(ctx) },
		"OKToStop(0)":           func(c ceph.Client) { c.OKToStop(ctx, []int{0}) },
		"OKToStop(0,12)":        func(c ceph.Client) { c.OKToStop(ctx, []int{0, 12}) },
		"LastReports(7)":        func(c ceph.Client) { c.LastReports(ctx, []int{7}) },
		"SetNoout(node-a)":      func(c ceph.Client) { c.SetNoout(ctx, "node-a") },
		"SetNoout(osd.1,osd.2)": func(c ceph.Client) { c.SetNoout(ctx, "osd.1", "osd.2") },
		"UnsetNoout(node-a)":    func(c ceph.Client) { c.UnsetNoout(ctx, "node-a") },
		"OKToStopMon(a)":        func(c ceph.Client) { c.OKToStopMon(ctx, "a") },
		"OKToRemoveMon(a)":      func(c ceph.Client) { c.OKToRemoveMon(ctx, "a") },
		"OKToAddMon":            func(c ceph.Client) { c.OKToAddMon(ctx) },
		"RemoveMon(a)":          func(c ceph.Client) { c.RemoveMon(ctx, "a") },
		"ProvedQuorum":          func(c ceph.Client) { c.ProvedQuorum(ctx) },
	}
	require.Len(t, want, len(calls))
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			mons := &monitors{answers: map[string]reply{
				"quorum_status": {output: answer(t, "clean.quorum_status")}, "config-key set": {},
			}}
			call(ceph.Client{Commander: mons})
			require.Equal(t, want[name], strings.Join(mons.sent, "\t"))
		})
	}
}

func TestNothingIsSentForNothing(t *testing.T) {
	mons := &monitors{}
	client := ceph.Client{Commander: mons}
	answer, err := client.OKToStop(context.Background(), nil)
	require.NoError(t, err)
	require.True(t, answer.OK, "no OSDs may always stop")
	require.Error(t, client.SetNoout(context.Background(), "node-a", ""))
	require.Error(t, client.SetNoout(context.Background()))
	require.Error(t, client.UnsetNoout(context.Background(), ""))
	reports, err := client.LastReports(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, reports)
	require.Empty(t, mons.sent)
}
