package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/rookceph"
)

func newKubeconfig() *cobra.Command {
	return withName("kubeconfig", "Print the path of the administrator's kubeconfig",
		func(cmd *cobra.Command, cfg instance.Config) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cfg.Kubeconfig())
			return err
		})
}

func newEnv() *cobra.Command {
	cmd := withName("env", "Print shell variables, so that kubectl, ceph and temporal just work",
		func(cmd *cobra.Command, cfg instance.Config) error {
			w := cmd.OutOrStdout()
			for _, v := range environment(cfg) {
				fmt.Fprintf(w, "export %s=%s\n", v[0], quote(v[1]))
			}
			// Here $PATH is the shell's own.
			_, err := fmt.Fprintf(w, "export PATH=%s:\"$PATH\"\n", quote(cfg.Path("bin")))
			return err
		})
	cmd.Example = `  eval "$(lab env)"; kubectl get nodes; ceph -s; temporal workflow list`
	return cmd
}

func environment(cfg instance.Config) [][2]string {
	// Where labs live follows from variables that whoever sees ours may lack.
	env := [][2]string{
		{"LAB_HOME", filepath.Dir(cfg.Dir)},
		{"LAB_NAME", cfg.Name},
		{"KUBECONFIG", cfg.Kubeconfig()},
		{"LAB_AUDIT_LOG", cfg.AuditLog()},
	}
	if cfg.Temporal {
		env = append(env, [2]string{"TEMPORAL_ADDRESS", instance.Loopback(cfg.Ports.TemporalFrontend())},
			[2]string{"TEMPORAL_UI", "http://" + instance.Loopback(cfg.Ports.TemporalUI())})
	}
	if cfg.Ceph {
		env = append(env, [2]string{"CEPH_CONF", rookceph.AdminConfig(cfg.Instance)})
		env = append(env, [2]string{"CEPHMON", rookceph.CephMonManifest(cfg.Instance)})
		if cfg.Topology.OSDPods == instance.OSDPodsNone {
			env = append(env, [2]string{"CEPHOSD", rookceph.CephOSDManifest(cfg.Instance)})
		}
	}
	return env
}

// quote makes a word that every shell takes as it is.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
