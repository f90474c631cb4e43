package main

import (
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

// print prints a plan.
func (f *jobFlags) print(cmd *cobra.Command, plan answer) error {
	return printed(cmd, plan, f.output)
}
