package rookceph

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// maxReply is far above any reply that is asked for here.
const maxReply = 16 << 20

// askDaemon sends a command to a daemon's admin socket and decodes its JSON. It costs a fraction of a millisecond,
// where the ceph command starts a Python for a quarter of a second; and it needs no quorum.
func askDaemon(ctx context.Context, socket, command string, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	request, err := json.Marshal(struct {
		Prefix string `json:"prefix"`
		Format string `json:"format"`
	}{command, "json"})
	if err != nil {
		return err
	}
	// A request ends with a NUL, a reply starts with its length, big endian (src/common/admin_socket.cc).
	if _, err := conn.Write(append(request, 0)); err != nil {
		return err
	}
	var size uint32
	if err := binary.Read(conn, binary.BigEndian, &size); err != nil {
		return err
	}
	if size > maxReply {
		return fmt.Errorf("%s: reply of %d bytes", socket, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, reply); err != nil {
		return fmt.Errorf("%s: %s: %w", socket, command, err)
	}
	return nil
}

// quorum is who a monitor believes to be in quorum with. It is empty during an election.
func (c cluster) quorum(ctx context.Context, monID string) ([]int, error) {
	var status struct {
		Quorum []int `json:"quorum"`
	}
	err := askDaemon(ctx, c.adminSocket("mon."+monID), "mon_status", &status)
	return status.Quorum, err
}

// managerActive tells whether the manager that runs on this machine has been given the role: only then it knows the
// command.
func (c cluster) managerActive(ctx context.Context) bool {
	var status json.RawMessage
	return askDaemon(ctx, c.adminSocket("mgr."+mgrName), "mgr_status", &status) == nil
}

// osdActive tells whether an OSD that runs on this machine has been taken in by the monitors.
func (c cluster) osdActive(ctx context.Context, id int) bool {
	var status struct {
		State string `json:"state"`
	}
	return askDaemon(ctx, c.adminSocket(osdName(id)), "status", &status) == nil && status.State == "active"
}
