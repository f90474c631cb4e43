package quorum_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMajoritiesAreCountedHereAlone: nobody else says how many mons are a majority.
func TestMajoritiesAreCountedHereAlone(t *testing.T) {
	counts := regexp.MustCompile(`/ ?2 ?\+ ?1\b`)
	var found []string
	for _, dir := range []string{"activities", "cli", "cmd", "internal", "starter", "worker", "workflows"} {
		root := filepath.Join("..", "..", dir)
		require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if counts.Match(text) {
				found = append(found, filepath.ToSlash(path))
			}
			return err
		}))
	}
	assert.Equal(t, []string{"../../internal/quorum/quorum.go"}, found)
}
