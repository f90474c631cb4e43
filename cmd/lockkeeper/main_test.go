package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/cli"
)

// What is wrong with flags and arguments is said before anything is asked of anybody.
func TestUsageErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no such command":    {[]string{"drian"}, `unknown command "drian"`},
		"no such flag":       {[]string{"status", "--colour"}, "unknown flag: --colour"},
		"no node":            {[]string{"drain"}, "NODE: is required"},
		"two nodes":          {[]string{"abort", "a", "b"}, "JOB: one at a time, not 2"},
		"negative grace":     {[]string{"drain", "a", "--grace-period", "-2"}, "--grace-period: must be 0 or more"},
		"negative timeout":   {[]string{"drain", "a", "--wait", "--timeout", "-1s"}, "--timeout: must not be negative"},
		"timeout of nothing": {[]string{"drain", "a", "--timeout", "1m"}, "--timeout: needs --wait or --follow"},
		"plan and follow":    {[]string{"drain", "a", "--plan", "--follow"}, "--plan: changes nothing"},
		"output of a drain":  {[]string{"drain", "a", "-o", "json"}, "--output: needs --plan"},
		"odd output":         {[]string{"status", "-o", "wide"}, `--output: "wide": must be json or yaml`},
		"watch in JSON":      {[]string{"status", "-w", "-o", "json"}, "--watch: is for people"},
		"all and one": {
			[]string{"status", "-A", "-n", "rook-ceph"},
			"--all-namespaces: does not go with --namespace",
		},
		"no CephOSD":          {[]string{"update-osds"}, "CEPHOSD: exactly one is required"},
		"plan and wait":       {[]string{"update-osds", "a/b", "--plan", "--wait"}, "--plan: changes nothing"},
		"restart of one":      {[]string{"restart-osds", "osd.3"}, `unknown command "osd.3"`},
		"output of a restart": {[]string{"restart-osds", "-o", "json"}, "--output: needs --plan"},
		"odd signal output":   {[]string{"pause", "ceph/osds", "-o", "wide"}, `--output: "wide": must be json or yaml`},
		"skip nothing":        {[]string{"skip", "ceph/osds"}, "JOB OSD: both are required"},
		"done with two":       {[]string{"done", "a", "b"}, "NODE: one at a time, not 2"},
		"watch with argument": {[]string{"watch", "node-a"}, `unknown command "node-a"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := root()
			cmd.SetArgs(test.args)
			err := cmd.ExecuteContext(t.Context())
			require.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, "--help`", "says where to look")
			assert.Equal(t, cli.ExitUsage, cli.ExitCode(err))
		})
	}
}

func TestFlagsOfDrain(t *testing.T) {
	f := drainFlags{gracePeriod: -1}
	f.input.Policy = "ceph"
	require.NoError(t, f.complete("rook-ceph"))
	assert.Equal(t, "rook-ceph/ceph", f.input.Policy)
	assert.Nil(t, f.input.Eviction.GracePeriodSeconds, "each pod's own")
	f.gracePeriod = 0
	require.NoError(t, f.complete(""))
	assert.Equal(t, 0, *f.input.Eviction.GracePeriodSeconds)
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"version"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Regexp(t, `^lockkeeper \S+, go\S+, \w+/\w+\n$`, out.String())
}

// Whatever becomes of Kubernetes or Temporal, the message says where it was looked for.
func TestNoKubernetes(t *testing.T) {
	cmd := root()
	cmd.SetArgs([]string{"status", "--kubeconfig", "no-such-file"})
	err := cmd.ExecuteContext(t.Context())
	require.ErrorContains(t, err, "Kubernetes configuration: ")
	require.ErrorContains(t, err, "no-such-file")
	assert.Equal(t, cli.ExitFailed, cli.ExitCode(err))
}

// FuzzDrainFlags: whatever follows the flags of drain, it is understood or refused with a usage error that says where
// to look.
func FuzzDrainFlags(f *testing.F) {
	for _, s := range []string{
		"1h", "-1s", "1", "9999999h", "", "1h30m", "infinity", "0x10", "-1", "99999999999999999999",
	} {
		f.Add(s, s, "a/b", "ns")
	}
	f.Fuzz(func(t *testing.T, timeout, grace, policy, namespace string) {
		cmd := root()
		// --plan does not go with --wait, so that nobody is asked anything.
		cmd.SetArgs([]string{
			"drain", "node-a", "--plan", "--wait",
			"--timeout=" + timeout, "--grace-period=" + grace, "--policy=" + policy, "--namespace=" + namespace,
		})
		err := cmd.ExecuteContext(t.Context())
		if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--help`") {
			t.Fatalf("%q %q %q %q: %v", timeout, grace, policy, namespace, err)
		}
	})
}
