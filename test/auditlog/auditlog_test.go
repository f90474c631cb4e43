package auditlog

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadFiles: requests with an object and without, a line that is half written, and a file that was moved.
func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(path, []byte(
		`{"stageTimestamp":"2026-01-02T03:04:05.000006Z","user":{"username":"somebody"},"userAgent":"kubectl",`+
			`"verb":"create","requestURI":"/x?dryRun=All",`+
			`"objectRef":{"resource":"pods","subresource":"eviction","namespace":"a","name":"b"},`+
			`"responseStatus":{"code":429,"message":"not yet"},"annotations":{"c":"d"}}`+"\n"+
			`{"verb":"get","requestURI":"/version"}`+"\n"+`{"verb":"li`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "audit-2026-01-01.log"), []byte(`{"verb":"list"}`+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.log"), []byte(`{"verb":"delete"}`+"\n"), 0o600))
	var all []Event
	require.NoError(t, ReadFiles(path, func(e Event) { all = append(all, e) }))
	require.Len(t, all, 3)
	assert.Equal(t, "list", all[0].Verb)
	e := all[1]
	assert.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), e.At)
	assert.Equal(t, Object{Resource: "pods", Subresource: "eviction", Namespace: "a", Name: "b"}, e.ObjectRef)
	assert.Equal(t, Response{429, "not yet"}, e.Response)
	assert.Equal(t, "somebody", e.User.Username)
	assert.Equal(t, "d", e.Annotations["c"])
	assert.True(t, e.DryRun())
	assert.Equal(t, Object{}, all[2].ObjectRef)
	assert.False(t, all[2].DryRun())
}
