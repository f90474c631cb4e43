// Package spdk would be SPDK's service on a node.
package spdk

import (
	"context"
	"errors"

	"github.com/longhorn/types/pkg/generated/spdkrpc"
)

// DiskState is how a disk is.
type DiskState string

// DiskStateReady is also the state of the disks of data engine v1.
const DiskStateReady DiskState = "ready"

// Server is never made.
type Server struct {
	spdkrpc.UnimplementedSPDKServiceServer
}

// NewServer fails: data engine v2 is not there.
func NewServer(context.Context, int32, int32) (*Server, error) {
	return nil, errors.New("SPDK is not built in")
}
