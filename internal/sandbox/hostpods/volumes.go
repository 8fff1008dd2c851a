package hostpods

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
)

// volumeFolder returns the folder of a volume of the pod.
func (p *hostPod) volumeFolder(name string) string { return filepath.Join(p.folder, "volumes", name) }

// writeVolumes creates the folders of all volumes, and updates their files, except for those of an emptyDir.
func (p *hostPod) writeVolumes(ctx context.Context) error {
	for _, volume := range p.first.Spec.Volumes {
		folder := p.volumeFolder(volume.Name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if volume.EmptyDir != nil {
			continue
		}
		files, err := p.files(ctx, sourcesOf(volume.VolumeSource))
		if err == nil {
			err = writeFiles(folder, files)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

// sourcesOf returns the sources of a volume, as a projected volume lists them.
func sourcesOf(volume corev1.VolumeSource) []corev1.VolumeProjection {
	switch {
	case volume.ConfigMap != nil:
		configMap := volume.ConfigMap
		return []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: configMap.LocalObjectReference,
			Items:                configMap.Items,
			Optional:             configMap.Optional,
		}}}
	case volume.Secret != nil:
		secret := volume.Secret
		return []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret.SecretName},
			Items:                secret.Items,
			Optional:             secret.Optional,
		}}}
	case volume.Projected != nil:
		return volume.Projected.Sources
	default:
		return []corev1.VolumeProjection{{}}
	}
}

// files returns the files of sources, by their paths.
func (p *hostPod) files(ctx context.Context, sources []corev1.VolumeProjection) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, source := range sources {
		more, err := p.filesOf(ctx, source)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, more)
	}
	return files, nil
}

// filesOf returns the files of one source.
func (p *hostPod) filesOf(ctx context.Context, source corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case source.ConfigMap != nil:
		data, err := p.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
		return selectKeys(data, source.ConfigMap.Items, source.ConfigMap.Optional, err)
	case source.Secret != nil:
		data, err := p.secret(ctx, source.Secret.Name, source.Secret.Optional)
		return selectKeys(data, source.Secret.Items, source.Secret.Optional, err)
	case source.DownwardAPI != nil:
		return p.downwardFiles(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		token, err := p.token(ctx, source.ServiceAccountToken.Audience)
		return map[string][]byte{source.ServiceAccountToken.Path: token}, err
	default:
		return nil, errors.New("hostpods does not support its kind")
	}
}

func (p *hostPod) downwardFiles(items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, fmt.Errorf("hostpods does not support the source of %s", item.Path)
		}
		value, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		files[item.Path] = []byte(value)
	}
	return files, nil
}

// selectKeys returns the data of the keys of items, or all data if items is empty.
func selectKeys(data map[string][]byte, items []corev1.KeyToPath, optional *bool,
	err error) (map[string][]byte, error) {
	if err != nil || len(items) == 0 {
		return data, err
	}
	selected := map[string][]byte{}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && !isSet(optional) {
			return nil, fmt.Errorf("key %q not found", item.Key)
		}
		if ok {
			selected[item.Path] = value
		}
	}
	return selected, nil
}

// writeFiles replaces the files of a folder. Each file is replaced atomically.
func writeFiles(folder string, files map[string][]byte) error {
	for name, content := range files {
		if err := writeFile(filepath.Join(folder, name), content); err != nil {
			return err
		}
	}
	return filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if _, isWanted := files[filepath.ToSlash(name)]; err != nil || isWanted {
			return err
		}
		return os.Remove(file)
	})
}

// writeFile replaces a file if its content differs, since programs may watch the file.
func writeFile(file string, content []byte) error {
	if current, err := os.ReadFile(file); err == nil && bytes.Equal(current, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
