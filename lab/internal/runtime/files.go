package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
)

// file is one file of a volume whose contents come from the API.
type file struct {
	data []byte
	mode fs.FileMode
}

// files gives the contents of a volume by path.
func (v Volumes) files(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (map[string]file, error) {
	switch {
	case volume.Secret != nil:
		s := volume.Secret
		return v.secret(ctx, pod.Namespace, s.SecretName, s.Items, s.DefaultMode, s.Optional)
	case volume.ConfigMap != nil:
		s := volume.ConfigMap
		return v.configMap(ctx, pod.Namespace, s.Name, s.Items, s.DefaultMode, s.Optional)
	case volume.DownwardAPI != nil:
		return downwardAPI(pod, volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		all := map[string]file{}
		for i := range volume.Projected.Sources {
			files, err := v.projection(ctx, pod, &volume.Projected.Sources[i], volume.Projected.DefaultMode)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, files)
		}
		return all, nil
	}
	return nil, errors.New("unsupported kind: the lab has hostPath, persistentVolumeClaim, ephemeral, emptyDir, secret, " +
		"configMap, downwardAPI and projected")
}

func (v Volumes) projection(
	ctx context.Context, pod *corev1.Pod, p *corev1.VolumeProjection, mode *int32,
) (map[string]file, error) {
	switch {
	case p.Secret != nil:
		return v.secret(ctx, pod.Namespace, p.Secret.Name, p.Secret.Items, mode, p.Secret.Optional)
	case p.ConfigMap != nil:
		return v.configMap(ctx, pod.Namespace, p.ConfigMap.Name, p.ConfigMap.Items, mode, p.ConfigMap.Optional)
	case p.DownwardAPI != nil:
		return downwardAPI(pod, p.DownwardAPI.Items, mode)
	case p.ServiceAccountToken != nil:
		token, err := v.Source.Token(ctx, pod, p.ServiceAccountToken)
		if err != nil {
			return nil, fmt.Errorf("token of service account %s: %w", pod.Spec.ServiceAccountName, err)
		}
		return map[string]file{p.ServiceAccountToken.Path: {token, 0o600}}, nil
	}
	return nil, errors.New("unsupported projection: the lab has secret, configMap, downwardAPI and serviceAccountToken")
}

func (v Volumes) secret(
	ctx context.Context, namespace, name string, items []corev1.KeyToPath, mode *int32, optional *bool,
) (map[string]file, error) {
	secret, err := v.Source.Secret(ctx, namespace, name)
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	return selectItems(secret.Data, items, mode, optional, "Secret", name)
}

func (v Volumes) configMap(
	ctx context.Context, namespace, name string, items []corev1.KeyToPath, mode *int32, optional *bool,
) (map[string]file, error) {
	cm, err := v.Source.ConfigMap(ctx, namespace, name)
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := maps.Clone(cm.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for k, s := range cm.Data {
		data[k] = []byte(s)
	}
	return selectItems(data, items, mode, optional, "ConfigMap", name)
}

// selectItems takes all keys under their own names, or only the items under the names that they ask for.
func selectItems(
	data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool, kind, name string,
) (map[string]file, error) {
	files := map[string]file{}
	if len(items) == 0 {
		for k, b := range data {
			files[k] = file{b, fileMode(nil, mode)}
		}
		return files, nil
	}
	for _, item := range items {
		b, ok := data[item.Key]
		if err := missingKey(ok, optional, kind, name, item.Key); err != nil {
			return nil, err
		}
		if ok {
			files[item.Path] = file{b, fileMode(item.Mode, mode)}
		}
	}
	return files, nil
}

func downwardAPI(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32) (map[string]file, error) {
	files := map[string]file{}
	for _, item := range items {
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = Field(pod, item.FieldRef.FieldPath)
		} else if item.ResourceFieldRef != nil {
			value, err = resource.ExtractResourceValueByContainerName(item.ResourceFieldRef, pod,
				item.ResourceFieldRef.ContainerName)
		}
		if err != nil {
			return nil, err
		}
		files[item.Path] = file{[]byte(value), fileMode(item.Mode, mode)}
	}
	return files, nil
}

func fileMode(own, all *int32) fs.FileMode {
	for _, m := range []*int32{own, all} {
		if m != nil {
			return fs.FileMode(*m)
		}
	}
	return 0o644
}

// writeFiles makes a folder hold exactly these files. Each is replaced as a whole, so that a reader never sees half of
// it.
func writeFiles(dir string, files map[string]file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("path %q leads out of the volume", name)
		}
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, f.data) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		tmp := filepath.Join(filepath.Dir(path), "..tmp-"+filepath.Base(path))
		if err := os.WriteFile(tmp, f.data, f.mode); err != nil {
			return err
		}
		if err := os.Rename(tmp, path); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if _, wanted := files[name]; wanted {
			return nil
		}
		return os.Remove(path)
	})
}
