package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/autoscaler"
	"github.com/lockkeeper/lockkeeper/lab/internal/clusterapi"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/karpenter"
	"github.com/lockkeeper/lockkeeper/lab/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/lab/internal/rookceph"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

func newUp() *cobra.Command {
	wanted := instance.Config{Topology: instance.DefaultTopology(), Ceph: true, Temporal: true}
	var foreground, scaling, karpenting bool
	var scaler autoscaler.Options
	var pools karpenter.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab, or continue one that was kept, and return when all of it is healthy",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if release := os.Getenv("LAB_CEPH"); release != "" && !cmd.Flags().Changed("ceph") {
				if err := (&cephFlag{&wanted}).Set(release); err != nil {
					return fmt.Errorf("LAB_CEPH=%s: %w", release, err)
				}
			}
			if err := checkAutoscaler(scaling, scaler, wanted.Topology); err != nil {
				return err
			}
			if err := checkKarpenter(karpenting, pools); err != nil {
				return err
			}
			var extras []extra
			if scaling {
				extras = append(extras, withAutoscaler(scaler))
			}
			if karpenting {
				extras = append(extras, withKarpenter(pools))
			}
			return up(cmd, wanted, foreground, extras)
		},
	}
	f := cmd.Flags()
	nameFlag(cmd, &wanted.Name)
	t := &wanted.Topology
	f.IntVar(&t.Zones, "zones", t.Zones, "failure domains")
	f.IntVar(&t.NodesPerZone, "nodes-per-zone", t.NodesPerZone, "nodes in each zone")
	f.IntVar(&t.OSDsPerNode, "osds-per-node", t.OSDsPerNode, "OSDs on each node")
	f.IntVar(&t.Mons, "mons", t.Mons, "Ceph monitors")
	f.IntVar(&t.Machines, "machines", t.Machines, "Machines of Cluster API, whose core manager then runs: the first "+
		"nodes are theirs, further ones get nodes without OSDs; 0 is without")
	f.IntVar(&t.NodeCPUs, "node-cpus", t.NodeCPUs, "CPUs that each node says it has")
	f.BoolVar(&scaling, "autoscaler", false, "with the Cluster Autoscaler, once all else is healthy; \"lab autoscaler "+
		"start\" starts it later")
	autoscalerFlags(cmd, &scaler)
	f.BoolVar(&karpenting, "karpenter", false, "with Karpenter, once all else is healthy; \"lab karpenter start\" "+
		"starts it later")
	karpenterFlags(cmd, &pools)
	f.BoolVar(&t.Longhorn, "longhorn", t.Longhorn, "with Longhorn, on all nodes; one lab of a machine at a time")
	f.DurationVar(&t.DownOut, "down-out", t.DownOut, "after which Ceph marks a down OSD out; 0 is never")
	f.StringVar((*string)(&t.OSDPods), "osd-pods", string(t.OSDPods),
		"who runs the OSDs: rook, or none to run them from the CephOSD in $CEPHOSD")
	f.StringVar((*string)(&t.MonStorage), "mon-storage", string(t.MonStorage),
		"where the first mons have their stores: none (of Kubernetes', and ports of the lab), hostpath or pvc (and Services "+
			"with Ceph's own ports). Once they run the lab leaves them to others; $CEPHMON describes them")
	f.StringVar((*string)(&t.OSDStorage), "osd-storage", string(instance.OSDStorageNode),
		"what an OSD's data is tied to: node, a disk of its node; or pvc, a volume of its zone, so that it runs on any node "+
			"there")
	f.StringVar((*string)(&t.CephPeriods), "ceph-periods", string(t.CephPeriods),
		"how often Ceph's daemons report: fast (every second), or default (Ceph's own: every 5 s, 2 s and 1 s)")
	f.Var(&cephFlag{&wanted}, "ceph", "Ceph's major version: 16 (the machine's), 18 or 20 (unpacked once, beside Go's "+
		"build cache); or none. $LAB_CEPH is the default")
	f.StringVar((*string)(&t.CephKeys), "ceph-keys", "", "keys of Ceph's users: aes, aes256k (from 20 on), or both: "+
		"daemons have new ones, clients old ones (default: as a new cluster of the version has)")
	f.StringVar((*string)(&t.ControllerAccounts), "controller-accounts", string(instance.ControllerAccountsShared),
		"as whom Kubernetes' controllers ask: shared, all as system:kube-controller-manager; or own, each as a service "+
			"account")
	f.BoolVar(&wanted.Temporal, "temporal", wanted.Temporal, "with Temporal")
	f.BoolVar(&foreground, "foreground", false, "stay, and end the lab when interrupted")
	return cmd
}

// cephFlag is which Ceph a lab has, if any.
type cephFlag struct{ *instance.Config }

func (f *cephFlag) Type() string { return "version" }

func (f *cephFlag) String() string {
	if f.Config == nil || !f.Ceph {
		return noCeph
	}
	return strconv.Itoa(f.Topology.Release())
}

// noCeph is a lab without Ceph.
const noCeph = "none"

func (f *cephFlag) Set(value string) error {
	f.Ceph = value != noCeph
	if !f.Ceph {
		return nil
	}
	release, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("allowed are 16, 18, 20 and %s", noCeph)
	}
	f.Topology.CephRelease = release
	return nil
}

// extra is a program that is started once all else is healthy.
type extra struct {
	works string // said when it does
	start func(context.Context, *supervisor.Client) error
}

// up starts a lab, and then what else is wanted in it.
func up(cmd *cobra.Command, wanted instance.Config, foreground bool, extras []extra) error {
	if err := wanted.Topology.Validate(); err != nil {
		return err
	}
	progress := newProgress(cmd.OutOrStdout())
	if err := checkPrograms(cmd.Context(), wanted, progress); err != nil {
		return err
	}
	turn, err := awaitTurn(cmd.Context(), wanted, progress)
	if err != nil {
		return err
	}
	claim, err := instance.Acquire(wanted)
	if err != nil {
		turn.Close() // of nil, too
		return err
	}
	claim.Turn = turn
	defer claim.Release()
	if err := announce(cmd, claim, wanted, progress); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	launched, err := supervisor.Launch(claim, foreground)
	if err != nil {
		claim.Release()
		return errors.Join(err, instance.Remove(claim.Config.Instance))
	}
	interrupted := context.AfterFunc(ctx, launched.Stop)
	err = launched.Await(progress)
	if ctx.Err() != nil {
		launched.Stop()
		return errors.Join(errors.New("interrupted"), instance.Remove(claim.Config.Instance))
	}
	if err != nil {
		return fmt.Errorf("%w\nlogs: %s (`lab down` removes them)", err, claim.Config.Path("log"))
	}
	client := supervisor.NewClient(claim.Config.Instance)
	for _, e := range extras {
		if err := e.start(ctx, client); err != nil {
			return errors.Join(err, client.Stop(context.WithoutCancel(ctx), false), launched.Wait())
		}
		progress(e.works)
	}
	progress("lab " + claim.Config.Name + " is up: eval \"$(lab env" + nameHint(claim.Config.Name) + ")\"")
	if !foreground {
		interrupted()
		return nil
	}
	<-ctx.Done()
	launched.Stop()
	return instance.Remove(claim.Config.Instance)
}

// awaitTurn waits until one lab with a Ceph less is up than may be, if $LAB_TURNS says so. Labs without do not count:
// they leave the processors to others. One that was kept has a turn if there is one, and goes on without otherwise: its
// ports are nobody's until it is up, and the longer it waits the more likely somebody else has them.
func awaitTurn(ctx context.Context, wanted instance.Config, progress func(string)) (*os.File, error) {
	folder := os.Getenv("LAB_TURNS")
	if folder == "" || !wanted.Ceph {
		return nil, nil //nolint:nilnil // no need of one
	}
	if !instance.Kept(wanted.Name) {
		return instance.AwaitTurn(ctx, folder, func() { progress("waiting for other labs to end, as $LAB_TURNS says") })
	}
	atOnce, end := context.WithCancel(ctx)
	end()
	turn, err := instance.AwaitTurn(atOnce, folder, func() { progress("going on beside more labs than $LAB_TURNS says") })
	if errors.Is(err, context.Canceled) {
		return nil, ctx.Err()
	}
	return turn, err
}

// checkPrograms says what has to be installed or built before such a lab can be had.
func checkPrograms(ctx context.Context, wanted instance.Config, progress func(string)) error {
	if wanted.Topology.Machines > 0 {
		if err := clusterapi.Check(bin()); err != nil {
			return err
		}
	}
	if wanted.Topology.Longhorn {
		if err := longhorn.Check(bin()); err != nil {
			return err
		}
	}
	if !wanted.Ceph {
		return nil
	}
	return rookceph.CheckInstalled(ctx, wanted.Topology, progress)
}

// bin is the folder of the lab's programs.
func bin() string {
	binary, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(binary)
}

// announce says what is about to be started, and refuses to continue a kept lab as something that it is not.
func announce(cmd *cobra.Command, claim *instance.Claim, wanted instance.Config, progress func(string)) error {
	cfg := claim.Config
	switch {
	case claim.Swept:
		progress("removed what a crash had left in " + cfg.Dir)
	case claim.Resumed:
		for _, flag := range []string{
			"zones", "nodes-per-zone", "osds-per-node", "mons", "machines", "node-cpus", "longhorn", "down-out", "osd-pods",
			"osd-storage", "mon-storage", "ceph-periods", "ceph", "ceph-keys", "controller-accounts", "temporal",
		} {
			if cmd.Flags().Changed(flag) &&
				(wanted.Topology != cfg.Topology || wanted.Ceph != cfg.Ceph || wanted.Temporal != cfg.Temporal) {
				return errors.Join(fmt.Errorf("--%s: lab %s was kept with other sizes; `lab down%s` removes it", flag, cfg.Name,
					nameHint(cfg.Name)), cfg.Keep())
			}
		}
		progress("continuing with the data in " + cfg.Dir)
	}
	t := cfg.Topology
	progress(fmt.Sprintf("starting lab %s: %d zones × %d nodes, ports from %d, in %s", cfg.Name, t.Zones, t.NodesPerZone,
		cfg.Ports.Base, cfg.Dir))
	return nil
}

// newProgress prints lines with the seconds since it was made.
func newProgress(w io.Writer) func(string) {
	began := time.Now()
	return func(line string) {
		fmt.Fprintf(w, "%6.1fs  %s\n", time.Since(began).Seconds(), line)
	}
}

// nameHint is the flag with which another command finds the same lab.
func nameHint(name string) string {
	if name == instance.DefaultName {
		return ""
	}
	return " --name " + name
}
