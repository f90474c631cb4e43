package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

// jobFlags are those of every command that starts a job.
type jobFlags struct {
	plan    bool
	options cli.StayOptions
	output  string
}

// add adds them; what is the kind of job, end how it comes to its end, and plan what --plan prints.
func (f *jobFlags) add(cmd *cobra.Command, what, end, plan string) {
	flags := cmd.Flags()
	flags.BoolVar(&f.plan, "plan", false, plan)
	flags.BoolVar(&f.options.Follow, "follow", false, "print what happens until the "+what+" "+end)
	flags.BoolVar(&f.options.Wait, "wait", false, "wait until the "+what+" "+end)
	flags.DurationVar(&f.options.Timeout, "timeout", 0, "of --wait and --follow; the "+what+" goes on. 0: wait for ever")
	flags.StringVarP(&f.output, "output", "o", "", "of --plan: json or yaml")
}

// check refuses flags that make no sense together.
func (f *jobFlags) check() error {
	switch {
	case f.options.Timeout < 0:
		return errors.New("--timeout: must not be negative; 0 waits for ever")
	case f.options.Timeout > 0 && !f.options.Wait && !f.options.Follow:
		return errors.New("--timeout: needs --wait or --follow")
	case f.plan && (f.options.Wait || f.options.Follow):
		return errors.New("--plan: changes nothing, so there is nothing to --wait for or to --follow")
	case f.output != "" && !f.plan:
		return errors.New("--output: needs --plan")
	}
	return cli.CheckOutput(f.output)
}

// planned is a job that can be foretold.
type planned struct {
	start func() error
	plan  func() (answer, error)
}

// run checks the flags, connects, and starts the job, or prints the plan of it.
func (f *jobFlags) run(
	cmd *cobra.Command, connections *cli.Connections, of func(context.Context, *cli.Command) (planned, error),
) error {
	if err := f.check(); err != nil {
		return usage(cmd, err)
	}
	command, _, done, err := connect(cmd, connections)
	if err != nil {
		return err
	}
	defer done()
	job, err := of(cmd.Context(), command)
	if err != nil {
		return err
	}
	if !f.plan {
		return job.start()
	}
	plan, err := job.plan()
	if err != nil {
		return err
	}
	return printed(cmd, plan, f.output)
}
