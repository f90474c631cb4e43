package main

import "github.com/spf13/cobra"

func newCommand() *cobra.Command {
	return &cobra.Command{Use: "lab"}
}
