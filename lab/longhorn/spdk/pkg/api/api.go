// Package api has the answers of SPDK's service, as far as somebody reads them.
package api

import (
	"github.com/longhorn/longhorn-spdk-engine/pkg/types"
	"github.com/longhorn/types/pkg/generated/spdkrpc"
)

// Replica is a replica.
type Replica struct {
	Name, UUID, LvsName, LvsUUID, State, ErrorMsg string
	SpecSize, ActualSize                          uint64
	PortStart, PortEnd                            int32
}

// Engine is an engine.
type Engine struct {
	Name, Frontend, Endpoint, State, ErrorMsg, UUID string
	SpecSize                                        uint64
	Port, TargetPort, StandbyTargetPort, UblkID     int32
	ReplicaAddressMap                               map[string]string
	ReplicaModeMap                                  map[string]types.Mode
	Snapshots                                       map[string]*Lvol
	Head                                            *Lvol
}

// Lvol is a snapshot, or the head of a volume.
type Lvol struct {
	Name, Parent, CreationTime, SnapshotTimestamp string
	ActualSize                                    uint64
	Children                                      map[string]bool
	UserCreated                                   bool
}

// BackingImage is a backing image.
type BackingImage struct {
	Name, BackingImageUUID, DiskUUID, LvsUUID, State string
	ExpectedChecksum, CurrentChecksum, ErrorMsg      string
	Size                                             uint64
	Progress                                         int32
}

// The streams of changes.
type (
	ReplicaStream      struct{ stream[Replica] }
	EngineStream       struct{ stream[Engine] }
	BackingImageStream struct{ stream[BackingImage] }
)

type stream[T any] struct{}

func (stream[T]) Recv() (*T, error) { return nil, ErrNotBuiltIn }

// Disk is a disk.
type Disk = spdkrpc.Disk
