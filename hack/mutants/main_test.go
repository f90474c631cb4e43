package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestApply: whoever changes what a mutant breaks hears of it at once, and not on the day on which the mutants are
// played.
func TestApply(t *testing.T) {
	t.Chdir("../..")
	all, err := read("hack/mutants")
	require.NoError(t, err)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			_, err := m.overlay(t.TempDir())
			require.NoError(t, err)
		})
	}
}
