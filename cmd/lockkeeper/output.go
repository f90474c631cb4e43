package main

import (
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
