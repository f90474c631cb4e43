package longhorn

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"path/filepath"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/lab/internal/manifest"
)

//go:embed manifest.yaml
var installation []byte

// crds is the file of the CRDs, beside the programs.
const crds = "crds.yaml"

// install applies the CRDs, and what uses them once they are served.
func install(ctx context.Context, config *rest.Config, client dynamic.Interface, folder string) error {
	b, err := os.ReadFile(filepath.Join(folder, crds))
	if err != nil {
		return err
	}
	kinds, err := manifest.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	applier, err := manifest.NewApplier(config, client)
	if err != nil {
		return err
	}
	if err := applier.Apply(ctx, kinds); err != nil {
		return err
	}
	if err := manifest.AwaitKinds(ctx, client); err != nil {
		return err
	}
	objects, err := manifest.Decode(bytes.NewReader(installation))
	if err != nil {
		return err
	}
	return applier.Apply(ctx, objects)
}
