package rookceph

import (
	"context"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// CheckInstalled says which packages to install if Ceph's programs are missing, and unpacks those of another release
// than the machine's.
func CheckInstalled(ctx context.Context, topo instance.Topology, progress func(string)) error {
	if topo.Release() == image.Machine {
		return requirePrograms()
	}
	_, err := image.Root(ctx, topo.Release(), progress)
	return err
}
