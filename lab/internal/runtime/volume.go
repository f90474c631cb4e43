package runtime

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
)

// VolumeSource reads what volumes are made of.
type VolumeSource interface {
	Objects
	// ClaimPath is the folder of the volume to which a claim is bound.
	ClaimPath(ctx context.Context, namespace, claim string) (string, error)
	// Token is a token of the pod's service account.
	Token(ctx context.Context, pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) ([]byte, error)
}

// Volumes makes the volumes of pods on one node.
type Volumes struct {
	Source VolumeSource
	// Disk stands for the node's own root filesystem: host paths that the machine does not have are made there, so that
	// two nodes do not share them and nothing is left on the machine.
	Disk string
	// Lab is the lab's own folder, below which host paths mean what they say.
	Lab string
}

// Prepare makes the volumes of a pod below dir and tells where each is. It may be called again to bring the contents of
// Secrets, ConfigMaps and tokens up to date.
func (v Volumes) Prepare(ctx context.Context, pod *corev1.Pod, dir string) (map[string]string, error) {
	paths := map[string]string{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		path, err := v.prepare(ctx, pod, volume, filepath.Join(dir, volume.Name))
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		paths[volume.Name] = path
	}
	return paths, nil
}

func (v Volumes) prepare(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, dir string) (string, error) {
	switch {
	case volume.HostPath != nil:
		return v.hostPath(volume.HostPath)
	case volume.PersistentVolumeClaim != nil:
		return v.Source.ClaimPath(ctx, pod.Namespace, volume.PersistentVolumeClaim.ClaimName)
	case volume.Ephemeral != nil:
		return v.Source.ClaimPath(ctx, pod.Namespace, pod.Name+"-"+volume.Name)
	case volume.EmptyDir != nil:
		return dir, os.MkdirAll(dir, 0o777)
	}
	files, err := v.files(ctx, pod, volume)
	if err != nil {
		return "", err
	}
	return dir, writeFiles(dir, files)
}

func (v Volumes) hostPath(source *corev1.HostPathVolumeSource) (string, error) {
	onDisk := filepath.Join(v.Disk, source.Path)
	if strings.HasPrefix(source.Path, v.Lab+"/") {
		onDisk = filepath.Clean(source.Path)
	}
	for _, path := range []string{onDisk, source.Path} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	switch kind {
	case corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate:
		return onDisk, os.MkdirAll(onDisk, 0o755)
	case corev1.HostPathFileOrCreate:
		if err := os.MkdirAll(filepath.Dir(onDisk), 0o755); err != nil {
			return "", err
		}
		return onDisk, os.WriteFile(onDisk, nil, 0o644)
	default: // the others have to be there
	}
	return "", fmt.Errorf("host path %s (%s): %w", source.Path, kind, fs.ErrNotExist)
}

// Mounts tells where a container sees the volumes, given where they are.
func Mounts(pod *corev1.Pod, c *corev1.Container, paths map[string]string) ([]rootfs.Mount, error) {
	readOnlyClaim := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		readOnlyClaim[volume.Name] = volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ReadOnly
	}
	var mounts []rootfs.Mount
	for _, m := range c.VolumeMounts {
		source := paths[m.Name]
		if m.SubPathExpr != "" {
			return nil, fmt.Errorf("volume mount %s: subPathExpr is not supported", m.MountPath)
		}
		if m.SubPath != "" {
			if !filepath.IsLocal(m.SubPath) {
				return nil, fmt.Errorf("volume mount %s: subPath %q leads out of the volume", m.MountPath, m.SubPath)
			}
			source = filepath.Join(source, m.SubPath)
			if _, err := os.Lstat(source); err != nil {
				if err := os.MkdirAll(source, 0o755); err != nil {
					return nil, err
				}
			}
		}
		target := m.MountPath
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
		mounts = append(mounts, rootfs.Mount{Source: source, Target: target, ReadOnly: m.ReadOnly || readOnlyClaim[m.Name]})
	}
	return mounts, nil
}
