package ceph_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// TestSlowOSDs: the messages are those of Ceph's health check.
func TestSlowOSDs(t *testing.T) {
	for message, want := range map[string]map[int]bool{
		"": {},
		"1 slow ops, oldest one blocked for 33 sec, osd.2 has slow ops":                     {2: true},
		"14 slow ops, oldest one blocked for 61 sec, daemons [osd.0,osd.11] have slow ops.": {0: true, 11: true},
		"3 slow ops, oldest one blocked for 40 sec, daemons [osd.7,mon.a] have slow ops.":   {7: true},
		"9 slow ops, oldest one blocked for 40 sec, mon.osd-1 has slow ops":                 {},
	} {
		var s ceph.Status
		require.NoError(t, json.Unmarshal(
			fmt.Appendf(nil, `{"health":{"status":"HEALTH_WARN","checks":{"SLOW_OPS":{"severity":"HEALTH_WARN","summary":{"message":%q,"count":1},"muted":false}}}}`, message), &s))
		require.Equal(t, want, s.SlowOSDs(), message)
	}
}
