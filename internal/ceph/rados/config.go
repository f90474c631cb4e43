package rados

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Config says how to reach a cluster.
type Config struct {
	MonHost string // Ceph's option mon_host: "10.0.0.1:6789,10.0.0.2:6789"
	User    string // without "client."
	Key     Key
	// ConnectTimeout is how long to look for a monitor that lets us in. 0: DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// CommandTimeout is how long a command waits for its answer, for a quorum above all. 0: DefaultCommandTimeout.
	CommandTimeout time.Duration
}

// librados waits for ever unless it is told not to, and it is told in whole seconds.
const (
	DefaultConnectTimeout = 5 * time.Second
	DefaultCommandTimeout = 3 * time.Second
)

// Key is the secret key of a Ceph user. It does not show when it is printed or logged.
type Key string

const hidden = "(hidden)"

func (Key) String() string { return hidden }

// GoString implements fmt.GoStringer, for %#v.
func (Key) GoString() string { return hidden }

// LogValue implements slog.LogValuer.
func (Key) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler, for JSON and the like.
func (Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// validate finds what librados would stumble over, without telling the key.
func (c Config) validate() error {
	switch {
	case c.MonHost == "":
		return fmt.Errorf("no monitor is named")
	case c.User == "":
		return fmt.Errorf("no user is named")
	case c.ConnectTimeout < 0 || c.CommandTimeout < 0:
		return fmt.Errorf("a timeout is negative")
	}
	if c.Key.keyType() == 0 {
		return fmt.Errorf("the key of client.%s is no Ceph key: %d characters, want 40 of base64, or 60 of type AES256K",
			c.User, len(c.Key))
	}
	return nil
}

// options are librados' settings, in the order in which they are set. Nothing is read from files or written to any.
func (c Config) options() [][2]string {
	command := seconds(c.CommandTimeout, DefaultCommandTimeout)
	return [][2]string{
		{"mon_host", c.MonHost},
		{"keyring", ""},
		{"key", string(c.Key)},
		{"rados_mon_op_timeout", command},
		{"rados_osd_op_timeout", command},
		{"client_mount_timeout", seconds(c.ConnectTimeout, DefaultConnectTimeout)},
		// Try several monitors at once: with one after the other, a lost one would cost a caller its whole timeout.
		{"mon_client_hunt_parallel", "3"},
		{"mon_client_hunt_interval", "1"},
		{"log_file", ""},
		{"log_to_stderr", "false"},
		{"admin_socket", ""},
	}
}

// seconds rounds up: 0 would mean for ever.
func seconds(d, otherwise time.Duration) string {
	return strconv.Itoa(int(math.Ceil(cmp.Or(d, otherwise).Seconds())))
}
