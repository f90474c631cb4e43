package podspec_test

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

//go:embed testdata/hashes.txt
var hashes string

// TestTemplateHashIsPythons compares with what Python itself made of the same documents.
func TestTemplateHashIsPythons(t *testing.T) {
	seen := 0
	for line := range strings.Lines(hashes) {
		want, document, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || want == "#" {
			continue
		}
		var value any
		require.NoError(t, kjson.Unmarshal([]byte(document), &value), "as the API machinery reads it")
		got, err := podspec.TemplateHash(value)
		require.NoError(t, err)
		assert.Equal(t, want, got, document)
		seen++
	}
	assert.Equal(t, 8, seen)
}

func TestTemplateHashTakesOnlyWhatTheAPIServerGives(t *testing.T) {
	_, err := podspec.TemplateHash(map[string]any{"a": []any{struct{}{}}})
	assert.ErrorContains(t, err, "struct {} is no value of an unstructured object")
}

// FuzzTemplateHash: whatever JSON there is has a hash, and order and spaces do not change it.
func FuzzTemplateHash(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[{}]}`, `"\ud83d"`, `1e400`, `-0.0`, `{"a":{"a":null}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var value, again any
		if kjson.Unmarshal(document, &value) != nil {
			return
		}
		hash, err := podspec.TemplateHash(value)
		require.NoError(t, err)
		assert.Regexp(t, "^[0-9a-f]{16}$", hash)
		written, err := kjson.Marshal(value)
		require.NoError(t, err)
		require.NoError(t, kjson.Unmarshal(written, &again))
		rehashed, err := podspec.TemplateHash(again)
		require.NoError(t, err)
		if !hasFloat(value) { // which may come back as a whole number
			assert.Equal(t, hash, rehashed, string(written))
		}
	})
}

func hasFloat(value any) bool {
	switch v := value.(type) {
	case float64:
		return true
	case []any:
		return slices.ContainsFunc(v, hasFloat)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasFloat)
	}
	return false
}
