package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/payload"
)

// channelsKey has the channels of a release in its metadata, where update services read them.
const channelsKey = "io.openshift.upgrades.graph.release.channels"

// releaseMetadata is the content of release-metadata as upstream writes it.
type releaseMetadata struct {
	Kind     string            `json:"kind"`
	Version  string            `json:"version"`
	Previous []string          `json:"previous"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// An entry is a file of the layer.
type entry struct {
	name string
	text []byte
}

// entries returns the files of the layer in upstream's order, and last the name of the release.
func (b *builder) entries() ([]entry, error) {
	references, err := b.imageReferences()
	if err != nil {
		return nil, err
	}
	metadata := releaseMetadata{
		Kind: "cincinnati-metadata-v0", Version: b.config.Version,
		Previous: slices.Sorted(slices.Values(b.config.Previous)),
	}
	if metadata.Previous == nil {
		metadata.Previous = []string{}
	}
	if len(b.config.Channels) > 0 {
		metadata.Metadata = map[string]string{channelsKey: strings.Join(b.config.Channels, ",")}
	}
	described, err := json.MarshalIndent(metadata, "", "  ")
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{payload.ReleaseFolder + "/" + payload.ImagesFile, references},
		{payload.ReleaseFolder + "/" + payload.MetadataFile, described},
	}
	for _, file := range b.files {
		entries = append(entries, entry{payload.ReleaseFolder + "/" + file.name, file.text})
	}
	return append(entries, entry{payload.SettingsFile, fmt.Appendf(nil, "name: %s\n", b.config.Name)}), nil
}

// imageReferences returns the content of image-references.
func (b *builder) imageReferences() ([]byte, error) {
	stream := imagev1.ImageStream{
		TypeMeta:   metav1.TypeMeta{Kind: "ImageStream", APIVersion: imagev1.GroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: b.config.Version, CreationTimestamp: metav1.NewTime(b.time)},
	}
	for _, name := range sortedKeys(b.images) {
		image := b.images[name]
		stream.Spec.Tags = append(stream.Spec.Tags, imagev1.TagReference{
			Name: name, Annotations: image.Annotations,
			From: &corev1.ObjectReference{Kind: "DockerImage", Name: image.Image},
		})
	}
	return json.MarshalIndent(stream, "", "  ")
}

// layer returns the files of the release as a tar archive, and compressed.
func (b *builder) layer() (plain, compressed []byte, err error) {
	entries, err := b.entries()
	if err != nil {
		return nil, nil, err
	}
	var archive, packed bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := tar.Header{Typeflag: tar.TypeDir, Name: payload.ReleaseFolder, Mode: 0o777, ModTime: b.time}
	if err := writer.WriteHeader(&header); err != nil {
		return nil, nil, err
	}
	for _, file := range entries {
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: file.name, Mode: 0o444, ModTime: b.time, Size: int64(len(file.text)),
		}
		if err := writer.WriteHeader(&header); err != nil {
			return nil, nil, err
		}
		if _, err := writer.Write(file.text); err != nil {
			return nil, nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, nil, err
	}
	compressor := gzip.NewWriter(&packed)
	if _, err := compressor.Write(archive.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := compressor.Close(); err != nil {
		return nil, nil, err
	}
	return archive.Bytes(), packed.Bytes(), nil
}
