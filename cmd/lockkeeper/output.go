package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

// answer is what a command found out.
type answer interface{ Write(w io.Writer) }

// printed prints an answer in words, or as --output says.
func printed(cmd *cobra.Command, a answer, output string) error {
	if output != "" {
		return cli.Encode(cmd.OutOrStdout(), a, output)
	}
	a.Write(cmd.OutOrStdout())
	return nil
}

// ask checks how the answer is to be printed, connects, and asks.
func ask(
	cmd *cobra.Command, connections *cli.Connections, output string, question func(context.Context, *cli.Command) error,
) error {
	if err := cli.CheckOutput(output); err != nil {
		return usage(cmd, err)
	}
	command, _, done, err := connect(cmd, connections)
	if err != nil {
		return err
	}
	defer done()
	command.Output = output
	return question(cmd.Context(), command)
}
