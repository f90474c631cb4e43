package longhorn

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/kubelet"
)

// version is that of the images, of which only the names are real.
const version = "v1.10.0"

// nextVersion is another name of the image of instance managers: to replace them by an upgrade.
const nextVersion = "v1.10.1"

// The programs that the nested module lab/longhorn builds.
var programs = []string{
	"longhorn-manager", "longhorn-instance-manager", "longhorn", "backing-image-manager", "grpc_health_probe",
}

func folder(bin string) string { return filepath.Join(bin, "longhorn") }

// The ports of what instance managers start, and of files between backing-image managers: below those of all labs and
// above those of the machine's own services, and none that Longhorn's pods have for themselves.
const (
	firstPort      = 2400
	slotPorts      = 300 // a replica takes ten, an engine one
	firstImagePort = 8800
	slotImagePorts = 20 // a file takes one
)

//go:embed scripts/instance-manager.sh
var instanceManagerScript string

//go:embed scripts/backing-image-manager.sh
var backingImageManagerScript string

//go:embed scripts/nc.sh
var ncScript string

//go:embed scripts/qemu-img.sh
var qemuImgScript string

// Images are Longhorn's images. Their programs are those in the folder bin, their scripts are written below lab.
func Images(bin, lab string) (map[string]kubelet.Image, error) {
	scripts := filepath.Join(lab, "longhorn")
	ports := filepath.Join(scripts, "ports")
	if err := os.MkdirAll(ports, 0o700); err != nil {
		return nil, err
	}
	settings := strings.NewReplacer("LAB_SLOTS", strconv.Itoa(instance.MaxLonghornNodes),
		"LAB_FIRST_PORT", strconv.Itoa(firstPort), "LAB_SLOT_PORTS", strconv.Itoa(slotPorts),
		"LAB_FIRST_IMAGE_PORT", strconv.Itoa(firstImagePort), "LAB_SLOT_IMAGE_PORTS", strconv.Itoa(slotImagePorts))
	for name, text := range map[string]string{
		"instance-manager":      settings.Replace(instanceManagerScript),
		"backing-image-manager": settings.Replace(backingImageManagerScript),
		"nc":                    ncScript, "qemu-img": qemuImgScript,
	} {
		if err := os.WriteFile(filepath.Join(scripts, name), []byte(text), 0o700); err != nil {
			return nil, err
		}
	}
	program := func(name string) string { return filepath.Join(folder(bin), name) }
	instanceManager := kubelet.Image{
		Entrypoint: []string{"/usr/local/bin/instance-manager"},
		Files: map[string]string{
			"/usr/local/bin/instance-manager":          filepath.Join(scripts, "instance-manager"),
			"/usr/local/bin/longhorn-instance-manager": program("longhorn-instance-manager"),
			"/usr/local/bin/longhorn":                  program("longhorn"),
			"/usr/local/bin/grpc_health_probe":         program("grpc_health_probe"),
			"/usr/local/bin/nc":                        filepath.Join(scripts, "nc"),
			"/usr/local/bin/qemu-img":                  filepath.Join(scripts, "qemu-img"),
			"/run/lab-longhorn-ports":                  ports,
		},
		// The sockets of volumes: whoever uses a volume finds it on the disk of the node to which it is attached.
		NodeFolders: map[string]string{"/var/run": socketFolder},
	}
	return map[string]kubelet.Image{
		"longhornio/longhorn-manager:" + version: {
			Files: map[string]string{"/usr/local/bin/longhorn-manager": program("longhorn-manager")},
		},
		"longhornio/longhorn-engine:" + version: {
			Files: map[string]string{"/usr/local/bin/longhorn": program("longhorn")},
		},
		"longhornio/longhorn-instance-manager:" + version:     instanceManager,
		"longhornio/longhorn-instance-manager:" + nextVersion: instanceManager,
		"longhornio/backing-image-manager:" + version: {
			Files: map[string]string{
				"/usr/local/bin/backing-image-manager": filepath.Join(scripts, "backing-image-manager"),
				"/usr/local/lib/backing-image-manager": program("backing-image-manager"),
				"/usr/local/bin/qemu-img":              filepath.Join(scripts, "qemu-img"),
				"/run/lab-longhorn-ports":              ports,
			},
		},
	}, nil
}

// socketFolder is where a node's disk has the sockets of the volumes that are attached to it.
const socketFolder = "run"

// SocketPath is the socket of a volume, on the disk of the node to which it is attached.
func SocketPath(disk, volume string) string {
	return filepath.Join(disk, socketFolder, "longhorn-"+volume+".sock")
}

// Furnish lets the manager enter the namespaces of its node, which are those of its own container. Only the folder ns
// is there: with a whole /proc/1 its search for the ancestors of a process would never end.
func Furnish(disk string) error {
	init := filepath.Join(disk, "proc", "1")
	if err := os.MkdirAll(init, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/proc/self/ns", filepath.Join(init, "ns")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("namespaces of the node: %w", err)
	}
	return nil
}
