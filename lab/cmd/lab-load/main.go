// Command lab-load writes to a Ceph pool, reads back and verifies until it is told to stop (SIGTERM or SIGINT), and
// reports what a user of the storage would have noticed. It is a program of its own because it needs librados, which
// the lab itself does without.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/load"
)

// exitDamage says that a write was lost or failed, as opposed to 1: the load could not be run.
const exitDamage = 3

var errDamage = errors.New("writes failed or were lost")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := command().ExecuteContext(ctx)
	switch {
	case errors.Is(err, errDamage):
		os.Exit(exitDamage)
	case err != nil:
		fmt.Fprintln(os.Stderr, "lab-load:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	conf, user, pool, reportFile string
	load                         load.Options
	duration, drain              time.Duration
}

func command() *cobra.Command {
	s := settings{load: load.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "lab-load --conf FILE --pool POOL",
		Short: "Write, read back and verify objects until SIGTERM, then print a report as JSON",
		Long: `Write, read back and verify objects until SIGTERM, then print a report as JSON.

An operation that takes long is a stall, one that returns an error has failed, and an acknowledged write that cannot be read
back is lost. Exit status 0: no write failed and none was lost; 3: some did; 1: the load could not be run.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.conf, "conf", "", "ceph.conf of the cluster (required)")
	f.StringVar(&s.user, "user", "client.admin", "Ceph user")
	f.StringVar(&s.pool, "pool", "lab", "pool to write to")
	f.StringVar(&s.reportFile, "report-file", "", "file that is replaced with the latest report every second")
	f.IntVar(&s.load.Objects, "objects", s.load.Objects, "number of objects, which are written over and over")
	f.IntVar(&s.load.ObjectSize, "object-size", s.load.ObjectSize, "bytes of each object")
	f.IntVar(&s.load.Workers, "workers", s.load.Workers, "operations under way at the same time")
	f.IntVar(&s.load.Rate, "rate", s.load.Rate, "operations per second, half of them writes")
	f.DurationVar(&s.duration, "duration", 0, "end after this time (0: with SIGTERM)")
	f.DurationVar(&s.drain, "drain", 10*time.Second,
		"how long to wait for the last operations and the last verification of all objects")
	cobra.CheckErr(cmd.MarkFlagRequired("conf"))
	return cmd
}

func (s settings) run(ctx context.Context) error {
	if err := s.load.Validate(); err != nil {
		return err
	}
	store, err := openPool(s.conf, s.user, s.pool, s.load.ObjectSize)
	if err != nil {
		return err
	}
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	l, err := load.Start(ctx, store, s.load)
	if err != nil {
		return err
	}
	if err := s.reportUntil(ctx.Done(), l); err != nil {
		return err
	}
	// An operation that still hangs after this is in the report as a stall.
	if err := l.Wait(s.drain); err != nil {
		fmt.Fprintln(os.Stderr, "lab-load:", err)
	}
	return s.finish(l.Report())
}

func (s settings) reportUntil(done <-chan struct{}, l *load.Load) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		if err := s.save(l.Report(), true); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		case <-every.C:
		}
	}
}

func (s settings) finish(r load.Report) error {
	if err := s.save(r, false); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if r.LostWrites+r.FailedWrites > 0 {
		return errDamage
	}
	return nil
}

func (s settings) save(r load.Report, running bool) error {
	if s.reportFile == "" {
		return nil
	}
	r.Running = running
	return r.WriteFile(s.reportFile)
}
