package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	cephrados "github.com/ceph/go-ceph/rados"
)

// Ceph connects to the lab's Ceph as its administrator.
func Ceph() (*cephrados.Conn, error) {
	conn, err := cephrados.NewConn()
	if err != nil {
		return nil, err
	}
	conf := os.Getenv("CEPH_CONF")
	if err := errors.Join(conn.ReadConfigFile(conf), conn.SetConfigOption("rados_mon_op_timeout", "5"),
		conn.Connect()); err != nil {
		return nil, fmt.Errorf("CEPH_CONF=%q: %w", conf, err)
	}
	return conn, nil
}

// Ask asks the mons a question without arguments.
func Ask(ceph *cephrados.Conn, command string, answer any) error {
	request, err := json.Marshal(map[string]string{"prefix": command, "format": "json"})
	if err != nil {
		return err
	}
	out, _, err := ceph.MonCommand(request)
	if err == nil {
		err = json.Unmarshal(out, answer)
	}
	if err != nil {
		return fmt.Errorf("ceph %s: %w", command, err)
	}
	return nil
}

// Status is what the mons answer to "status".
type Status struct {
	Quorum []string `json:"quorum_names"`
	MonMap struct {
		Mons int `json:"num_mons"`
	} `json:"monmap"`
	OSDMap struct {
		Total int `json:"num_osds"`
		Up    int `json:"num_up_osds"`
	} `json:"osdmap"`
	PGMap struct {
		States []struct {
			Name string `json:"state_name"`
		} `json:"pgs_by_state"`
	} `json:"pgmap"`
}

// Clean tells whether all placement groups are, as the manager last reported to the mons.
func (s Status) Clean() bool {
	for _, x := range s.PGMap.States {
		if !strings.HasPrefix(x.Name, "active+clean") {
			return false
		}
	}
	return true
}
