package rados

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
)

// aKey has the form of a Ceph key, and is none.
const aKey = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="

// silence is the address of a monitor that accepts connections and never says a word.
func silence(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return "v2:" + listener.Addr().String()
}

func TestConnectGivesUp(t *testing.T) {
	config := Config{MonHost: silence(t), User: "admin", Key: aKey, ConnectTimeout: time.Second}
	began := time.Now()
	_, err := Connect(context.Background(), config)
	require.ErrorContains(t, err, "no monitor answers at "+config.MonHost)
	require.True(t, ceph.IsTimeout(err))
	require.NotContains(t, err.Error(), aKey)
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestConnectHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := Connect(ctx, Config{MonHost: silence(t), User: "admin", Key: aKey, ConnectTimeout: time.Second})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 500*time.Millisecond)
}

func TestConnectRefusesNonsense(t *testing.T) {
	good := Config{MonHost: "127.0.0.1", User: "admin", Key: aKey}
	for field, spoil := range map[string]func(*Config){
		"no monitor":  func(c *Config) { c.MonHost = "" },
		"no user":     func(c *Config) { c.User = "" },
		"no Ceph key": func(c *Config) { c.Key = "secret!" },
		"negative":    func(c *Config) { c.CommandTimeout = -time.Second },
	} {
		c := good
		spoil(&c)
		_, err := Connect(context.Background(), c)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "secret!")
	}
	_, err := Dialer{}.Dial(context.Background(), cephcluster.Address{MonHost: "127.0.0.1", User: "osd.3", Key: aKey})
	require.ErrorContains(t, err, "osd.3")
}

// TestTimeoutsAreWholeSeconds: to librados 0 means for ever, and newer ones take no fractions.
func TestTimeoutsAreWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "3", time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60",
	} {
		require.Equal(t, want, seconds(d, DefaultCommandTimeout))
	}
}

func TestKeyDoesNotShow(t *testing.T) {
	config := Config{MonHost: "127.0.0.1", User: "admin", Key: aKey}
	encoded, err := json.Marshal(config)
	require.NoError(t, err)
	var logged strings.Builder
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	logger.Info("connect", "config", config, "key", config.Key)
	for _, text := range []string{
		string(encoded), logged.String(), fmt.Sprint(config),
		fmt.Sprintf("%v %+v %#v %s %q %x", config, config, config, config.Key, config.Key, config.Key),
	} {
		require.NotContains(t, text, aKey)
		require.NotContains(t, text, fmt.Sprintf("%x", aKey))
	}
}

func TestClosed(t *testing.T) {
	c := &Conn{slots: make(chan struct{}, 1), closed: true}
	_, _, err := c.MonCommand(context.Background(), []byte(`{"prefix":"status"}`))
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, c.slots, "its slot is free again")
	c.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = c.MonCommand(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
}
