package rookceph

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
)

// The answers are Ceph 16.2.15's own.
func TestWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct{ pgs, health, want string }{
		"healthy": {
			`{"pg_ready":true,"pg_summary":{"num_pg_by_state":[{"name":"active+clean","num":32}],"num_pgs":32,"num_bytes":0}}`,
			`{"status":"HEALTH_OK","checks":{},"mutes":[]}`,
			"",
		},
		"an OSD down": {
			`{"pg_ready":true,"pg_summary":{"num_pg_by_state":[{"name":"active+undersized","num":14},{"name":"active+clean","num":18}],"num_pgs":32}}`,
			`{"status":"HEALTH_OK","checks":{},"mutes":[]}`,
			"placement groups: 14 active+undersized, 18 active+clean",
		},
		"no pool yet": {
			`{"pg_ready":true,"pg_summary":{"num_pg_by_state":[],"num_pgs":0}}`,
			`{"status":"HEALTH_OK","checks":{},"mutes":[]}`,
			"0 of 32 placement groups",
		},
		"manager just started": {
			`{"pg_ready":false,"pg_summary":{"num_pg_by_state":[{"name":"active+clean","num":32}],"num_pgs":32}}`,
			`{"status":"HEALTH_OK","checks":{},"mutes":[]}`,
			"the manager has not heard of all OSDs yet",
		},
		"a warning": {
			`{"pg_ready":true,"pg_summary":{"num_pg_by_state":[{"name":"active+clean","num":32}],"num_pgs":32}}`,
			`{"status":"HEALTH_WARN","checks":{"MGR_DOWN":{"severity":"HEALTH_WARN","summary":{"message":"no active mgr","count":0},"muted":false}},"mutes":[]}`,
			"HEALTH_WARN MGR_DOWN: no active mgr",
		},
	} {
		var p pgStat
		var h health
		if err := json.Unmarshal([]byte(test.pgs), &p); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.health), &h); err != nil {
			t.Fatal(err)
		}
		got := p.missing(32)
		if got == "" {
			got = h.missing(false)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAskDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "a.asok")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request := make([]byte, 200)
		n, _ := conn.Read(request)
		reply := []byte(`{"asked":` + string(request[:n-1]) + `,"nul":` +
			map[bool]string{true: "true", false: "false"}[request[n-1] == 0] + `}`)
		_ = binary.Write(conn, binary.BigEndian, uint32(len(reply)))
		_, _ = conn.Write(reply)
	}()
	var reply struct {
		Asked struct{ Prefix, Format string }
		NUL   bool
	}
	if err := askDaemon(t.Context(), socket, "mon_status", &reply); err != nil {
		t.Fatal(err)
	}
	if reply.Asked.Prefix != "mon_status" || reply.Asked.Format != "json" || !reply.NUL {
		t.Errorf("%+v", reply)
	}
	if err := askDaemon(t.Context(), socket+".none", "x", &reply); err == nil {
		t.Error("a daemon that is not there answers")
	}
}
