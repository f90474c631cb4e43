// Package client would talk to SPDK's service. Nothing of it is called with data engine v1.
package client

import (
	"github.com/longhorn/longhorn-spdk-engine/pkg/api"
	"github.com/longhorn/types/pkg/generated/spdkrpc"
)

// SPDKClient answers every question with api.ErrNotBuiltIn.
type SPDKClient struct{}

// NewSPDKClient connects to nothing.
func NewSPDKClient(string) (*SPDKClient, error) { return &SPDKClient{}, nil }

func (*SPDKClient) Close() error { return nil }

// BackupCreateRequest is what a backup takes.
type BackupCreateRequest struct {
	BackupName, SnapshotName, VolumeName, EngineName, BackupTarget, StorageClassName string
	BackingImageName, BackingImageChecksum, CompressionMethod                        string
	ConcurrentLimit                                                                  int32
	Labels                                                                           []string
	Credential                                                                       map[string]string
}

// BackupRestoreRequest is what restoring one takes.
type BackupRestoreRequest struct {
	BackupUrl, EngineName, SnapshotName string
	ConcurrentLimit                     int32
	Credential                          map[string]string
}

func no() error               { return api.ErrNotBuiltIn }
func none[T any]() (T, error) { var t T; return t, api.ErrNotBuiltIn }

// The calls, in the order of the alphabet. None of them looks at what it is given.

func (*SPDKClient) BackingImageCreate(...any) (*api.BackingImage, error) {
	return none[*api.BackingImage]()
}

func (*SPDKClient) BackingImageDelete(...any) error { return no() }

func (*SPDKClient) BackingImageGet(...any) (*api.BackingImage, error) {
	return none[*api.BackingImage]()
}

func (*SPDKClient) BackingImageList(...any) (map[string]*api.BackingImage, error) {
	return none[map[string]*api.BackingImage]()
}

func (*SPDKClient) BackingImageWatch(...any) (*api.BackingImageStream, error) {
	return none[*api.BackingImageStream]()
}

func (*SPDKClient) DiskCreate(...any) (*spdkrpc.Disk, error) {
	return none[*spdkrpc.Disk]()
}

func (*SPDKClient) DiskDelete(...any) error { return no() }

func (*SPDKClient) DiskGet(...any) (*spdkrpc.Disk, error) {
	return none[*spdkrpc.Disk]()
}

func (*SPDKClient) EngineBackupCreate(...any) (*spdkrpc.BackupCreateResponse, error) {
	return none[*spdkrpc.BackupCreateResponse]()
}

func (*SPDKClient) EngineBackupRestore(...any) error { return no() }

func (*SPDKClient) EngineBackupStatus(...any) (*spdkrpc.BackupStatusResponse, error) {
	return none[*spdkrpc.BackupStatusResponse]()
}

func (*SPDKClient) EngineCreate(...any) (*api.Engine, error) {
	return none[*api.Engine]()
}

func (*SPDKClient) EngineDelete(...any) error { return no() }

func (*SPDKClient) EngineDeleteTarget(...any) error { return no() }

func (*SPDKClient) EngineExpand(...any) error { return no() }

func (*SPDKClient) EngineGet(...any) (*api.Engine, error) {
	return none[*api.Engine]()
}

func (*SPDKClient) EngineList(...any) (map[string]*api.Engine, error) {
	return none[map[string]*api.Engine]()
}

func (*SPDKClient) EngineReplicaAdd(...any) error { return no() }

func (*SPDKClient) EngineReplicaDelete(...any) error { return no() }

func (*SPDKClient) EngineRestoreStatus(...any) (*spdkrpc.RestoreStatusResponse, error) {
	return none[*spdkrpc.RestoreStatusResponse]()
}

func (*SPDKClient) EngineResume(...any) error { return no() }

func (*SPDKClient) EngineSnapshotClone(...any) error { return no() }

func (*SPDKClient) EngineSnapshotCreate(...any) (string, error) {
	return none[string]()
}

func (*SPDKClient) EngineSnapshotDelete(...any) error { return no() }

func (*SPDKClient) EngineSnapshotHash(...any) error { return no() }

func (*SPDKClient) EngineSnapshotHashStatus(...any) (*spdkrpc.EngineSnapshotHashStatusResponse, error) {
	return none[*spdkrpc.EngineSnapshotHashStatusResponse]()
}

func (*SPDKClient) EngineSnapshotPurge(...any) error { return no() }

func (*SPDKClient) EngineSnapshotRevert(...any) error { return no() }

func (*SPDKClient) EngineSuspend(...any) error { return no() }

func (*SPDKClient) EngineSwitchOverTarget(...any) error { return no() }

func (*SPDKClient) EngineWatch(...any) (*api.EngineStream, error) {
	return none[*api.EngineStream]()
}

func (*SPDKClient) LogGetFlags(...any) (string, error) {
	return none[string]()
}

func (*SPDKClient) LogSetFlags(...any) error { return no() }

func (*SPDKClient) LogSetLevel(...any) error { return no() }

func (*SPDKClient) MetricsGet(...any) (*spdkrpc.Metrics, error) {
	return none[*spdkrpc.Metrics]()
}

func (*SPDKClient) ReplicaCreate(...any) (*api.Replica, error) {
	return none[*api.Replica]()
}

func (*SPDKClient) ReplicaDelete(...any) error { return no() }

func (*SPDKClient) ReplicaGet(...any) (*api.Replica, error) {
	return none[*api.Replica]()
}

func (*SPDKClient) ReplicaList(...any) (map[string]*api.Replica, error) {
	return none[map[string]*api.Replica]()
}

func (*SPDKClient) ReplicaRebuildingDstSetQosLimit(...any) error { return no() }

func (*SPDKClient) ReplicaRebuildingDstShallowCopyCheck(...any) (*spdkrpc.ReplicaRebuildingDstShallowCopyCheckResponse, error) {
	return none[*spdkrpc.ReplicaRebuildingDstShallowCopyCheckResponse]()
}

func (*SPDKClient) ReplicaSnapshotCloneDstStatusCheck(...any) (*spdkrpc.ReplicaSnapshotCloneDstStatusCheckResponse, error) {
	return none[*spdkrpc.ReplicaSnapshotCloneDstStatusCheckResponse]()
}

func (*SPDKClient) ReplicaWatch(...any) (*api.ReplicaStream, error) {
	return none[*api.ReplicaStream]()
}
