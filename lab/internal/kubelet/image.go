package kubelet

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
)

// Image is an image that is the machine's own files with a few more.
type Image struct {
	// Entrypoint runs in a container without a command, before the container's arguments.
	Entrypoint []string
	// Files are where a container sees files or folders of the machine: target to source.
	Files map[string]string
	// NodeFolders are where a container sees folders of its node's disk, which are made when missing: target to source.
	NodeFolders map[string]string
}

// image is what the container's image has beside the machine's files, if the lab knows it.
func (c *container) image() (Image, bool) {
	i, known := c.pod.node.kubelet.Images[c.spec.Image]
	return i, known
}

// imageMounts are the image's files, as mounts.
func (c *container) imageMounts() ([]rootfs.Mount, error) {
	i, _ := c.image()
	var mounts []rootfs.Mount
	for target, source := range i.Files {
		mounts = append(mounts, rootfs.Mount{Source: source, Target: target})
	}
	for target, folder := range i.NodeFolders {
		source := filepath.Join(c.pod.node.kubelet.Disk(c.pod.node.name), folder)
		if err := os.MkdirAll(source, 0o755); err != nil {
			return nil, err
		}
		mounts = append(mounts, rootfs.Mount{Source: source, Target: target})
	}
	return mounts, nil
}

// withEntrypoint is the container with the command that its image gives it.
func (c *container) withEntrypoint() *corev1.Container {
	i, known := c.image()
	if !known || len(c.spec.Command) > 0 || len(i.Entrypoint) == 0 {
		return c.spec
	}
	spec := c.spec.DeepCopy()
	spec.Command = i.Entrypoint
	return spec
}
