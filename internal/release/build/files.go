package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/tools/txtar"
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

// entries returns the files of the layer in upstream's order, and last the name of the release.
func (b *builder) entries() ([]txtar.File, error) {
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
	entries := []txtar.File{
		{Name: payload.ReleaseFolder + "/" + payload.ImagesFile, Data: references},
		{Name: payload.ReleaseFolder + "/" + payload.MetadataFile, Data: described},
	}
	settings := fmt.Appendf(nil, "name: %s\n", b.config.Name)
	return slices.Concat(entries, b.files, []txtar.File{{Name: payload.SettingsFile, Data: settings}}), nil
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

// layer returns the files of the release as a compressed tar archive, and the digest of the archive.
func (b *builder) layer() (diff v1.Hash, compressed []byte, err error) {
	entries, err := b.entries()
	if err != nil {
		return v1.Hash{}, nil, err
	}
	var packed bytes.Buffer
	plain, compressor := sha256.New(), gzip.NewWriter(&packed)
	writer := tar.NewWriter(io.MultiWriter(plain, compressor))
	folders := map[string]bool{".": true}
	for _, file := range entries {
		if folder := path.Dir(file.Name); err == nil && !folders[folder] {
			folders[folder] = true
			err = writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o777, ModTime: b.time})
		}
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: file.Name, Mode: 0o444, ModTime: b.time, Size: int64(len(file.Data)),
		}
		if err == nil {
			err = writer.WriteHeader(&header)
		}
		if err == nil {
			_, err = writer.Write(file.Data)
		}
	}
	err = errors.Join(err, writer.Close(), compressor.Close())
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(plain.Sum(nil))}, packed.Bytes(), err
}
