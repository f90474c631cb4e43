package ceph_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// asks are all questions by the command that they send. Each says whether the answer allows something.
var asks = map[string]func(ceph.Client) (allowed bool, err error){
	"status": func(c ceph.Client) (bool, error) { _, err := c.Status(context.Background()); return false, err },
	"quorum_status": func(c ceph.Client) (bool, error) {
		_, err := c.QuorumStatus(context.Background())
		return false,
			err
	},
	"osd stat": func(c ceph.Client) (bool, error) { _, err := c.OSDEpoch(context.Background()); return false, err },
	"osd dump": func(c ceph.Client) (bool, error) {
		m, err := c.OSDDump(context.Background())
		use(m, err)
		return false, err
	},
	"osd crush dump": func(c ceph.Client) (bool, error) { _, err := c.CrushDump(context.Background()); return false, err },
	"features": func(c ceph.Client) (bool, error) {
		_, err := c.OSDSessions(context.Background())
		return false, err
	},
	"mgr stat": func(c ceph.Client) (bool, error) { _, err := c.Manager(context.Background()); return false, err },
	"osd ok-to-stop": func(c ceph.Client) (bool, error) {
		a, err := c.OKToStop(context.Background(), []int{0, 1})
		return a.OK, err
	},
	"osd last-stat-seq": func(c ceph.Client) (bool, error) {
		_, err := c.LastReports(context.Background(), []int{0})
		return false, err
	},
}

func use(m *ceph.OSDMap, err error) {
	if err == nil {
		m.ChangeEpoch()
		m.Noout()
		for i := range m.OSDs {
			m.OSDs[i].Serving()
		}
	}
}

// FuzzAnswers: whatever a cluster answers, it is understood or an error, and only what says so allows anything.
func FuzzAnswers(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "answers", "*.json"))
	require.NoError(f, err)
	for _, file := range files {
		text := answer(f, strings.TrimSuffix(filepath.Base(file), ".json"))
		for command := range asks {
			f.Add(command, text)
		}
	}
	for command := range asks {
		for _, odd := range []string{
			"", "null", "{}", "[]", "0", `"x"`, "18446744073709551616", "-1", `{"osds":[null]}`,
			`{"ok_to_stop":{"ok_to_stop":true}}`,
		} {
			f.Add(command, odd)
		}
	}
	f.Fuzz(func(t *testing.T, command, output string) {
		ask, known := asks[command]
		if !known {
			return
		}
		allowed, err := ask(one(command, reply{output: output}))
		if allowed && (err != nil || !json.Valid([]byte(output)) || !strings.Contains(output, "true")) {
			t.Fatalf("%q allows something (%v)", output, err)
		}
	})
}

// FuzzMonEndpoints: what is accepted can be put into Ceph's configuration without becoming anything else there.
func FuzzMonEndpoints(f *testing.F) {
	for _, s := range []string{
		"a=10.0.0.1:6789", "a=10.0.0.1:6789,b=10.0.0.2:6789", "10.0.0.1:3300", "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]",
		"[fd00::1]:6789", "mon.example:6789",
		"a=", ",", "[", "]", "a=[v2:", "10.0.0.1:99999", "a=b=c", "10.0.0.1:6789\nkey = value", "a=10.0.0.1:6789 # x", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, err := ceph.ParseMonEndpoints("field", s)
		if err != nil {
			return
		}
		if host == "" || strings.ContainsAny(host, "\n\r\t #;=\x00\"'") {
			t.Fatalf("%q became %q", s, host)
		}
		again, err := ceph.ParseMonEndpoints("field", host)
		if err != nil || again != host {
			t.Fatalf("%q became %q, and that became %q (%v)", s, host, again, err)
		}
	})
}

// FuzzUser: what is accepted is one word, with or without its type.
func FuzzUser(f *testing.F) {
	for _, s := range []string{
		"client.lockkeeper", "lockkeeper", "admin", "client.", "", "client.a b", "mon.",
		"client.client.x", "a\nb", "client.ä",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		user, err := ceph.ParseUser("field", s)
		if err == nil && (user == "" || strings.ContainsAny(user, " \n\r\t\x00=#;") ||
			strings.HasPrefix(user, "client.client.")) {
			t.Fatalf("%q became %q", s, user)
		}
	})
}
