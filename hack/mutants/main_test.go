package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// TestListed: docs/mutants.md has a row for each mutant, in the order of their names, and says which tests find it.
func TestListed(t *testing.T) {
	t.Chdir("../..")
	all, err := read("hack/mutants")
	require.NoError(t, err)
	var want, listed []string
	for _, m := range all {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", m.name, m.breaks, m.invariant, m.foundBy()))
	}
	text, err := os.ReadFile(filepath.Join("docs", "mutants.md"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	require.Equal(t, want, listed)
}
