package ceph_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// monitors are a Commander in memory: each command's prefix has its answer.
type monitors struct {
	mu      sync.Mutex
	answers map[string]reply
	sent    []string            // the commands, in JSON
	before  func(prefix string) // each is answered; nil: nothing happens
}

func (m *monitors) MonitorCommand(ctx context.Context, _ string, command []byte) ([]byte, string, error) {
	return m.MonCommand(ctx, command)
}

type reply struct {
	output string
	status string
	code   int // a negative errno
}

func (m *monitors) MonCommand(ctx context.Context, command []byte) ([]byte, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.sent = append(m.sent, string(command))
	var c struct {
		Prefix string `json:"prefix"`
	}
	if err := json.Unmarshal(command, &c); err != nil {
		return nil, "", err
	}
	if m.before != nil {
		m.before(c.Prefix)
	}
	r, known := m.answers[c.Prefix]
	if !known {
		return nil, "command not known", codeError(-int(syscall.EINVAL))
	}
	if r.code != 0 {
		return []byte(r.output), r.status, codeError(r.code)
	}
	return []byte(r.output), r.status, nil
}

// codeError is an error as go-ceph returns it.
type codeError int

func (e codeError) Error() string  { return "rados: " + syscall.Errno(-e).Error() }
func (e codeError) ErrorCode() int { return int(e) }

// answer reads what a real cluster answered.
func answer(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "answers", name+".json"))
	require.NoError(t, err)
	return string(text)
}
