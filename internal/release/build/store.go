package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// A memoryStore has the new parts of a release. The layers of its base are read from where the base is.
type memoryStore struct {
	parts     map[v1.Hash][]byte
	subject   v1.Hash // of the referrers
	referrers []v1.Descriptor
	base      *openImage // nil without a base
}

var _ oci.Store = (*memoryStore)(nil)

// add adds a part.
func (m *memoryStore) add(kind types.MediaType, content []byte) v1.Descriptor {
	sum := sha256.Sum256(content)
	digest := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	m.parts[digest] = content
	return v1.Descriptor{MediaType: kind, Size: int64(len(content)), Digest: digest}
}

// addJSON adds a manifest or a configuration.
func (m *memoryStore) addJSON(kind types.MediaType, value any) (v1.Descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return m.add(kind, content), nil
}

// addReferrer adds a document about an image.
func (m *memoryStore) addReferrer(subject v1.Descriptor, kind types.MediaType, content []byte) error {
	described, err := m.addJSON(types.OCIManifestSchema1, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(kind),
		Config:  m.add(oci.EmptyType, []byte("{}")),
		Layers:  []v1.Descriptor{m.add(kind, content)},
		Subject: &v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest},
	})
	if err == nil {
		described.ArtifactType = string(kind)
		m.subject, m.referrers = subject.Digest, append(m.referrers, described)
	}
	return err
}

// Resolve implements oci.Store: the parts have no tags.
func (m *memoryStore) Resolve(_ context.Context, identifier string) (v1.Descriptor, error) {
	return v1.Descriptor{}, fmt.Errorf("%s: %w", identifier, oci.ErrNotFound)
}

// Manifest implements oci.Store.
func (m *memoryStore) Manifest(_ context.Context, described v1.Descriptor) ([]byte, error) {
	content, isKnown := m.parts[described.Digest]
	if !isKnown {
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, oci.ErrNotFound)
	}
	return content, nil
}

// Blob implements oci.Store.
func (m *memoryStore) Blob(ctx context.Context, described v1.Descriptor, offset int64) (io.ReadCloser, error) {
	content, isKnown := m.parts[described.Digest]
	switch {
	case isKnown && offset <= int64(len(content)):
		return io.NopCloser(bytes.NewReader(content[offset:])), nil
	case m.base != nil:
		return m.base.Blob(ctx, described, offset)
	default:
		return nil, fmt.Errorf("blob %s: %w", described.Digest, oci.ErrNotFound)
	}
}

// Referrers implements oci.Store: those of the release are its documents.
func (m *memoryStore) Referrers(_ context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	if digest != m.subject {
		return nil, nil
	}
	return m.referrers, nil
}

// Close implements oci.Store.
func (m *memoryStore) Close() error {
	if m.base == nil {
		return nil
	}
	return m.base.Close()
}

// Push writes the release and the documents about it to an image in a registry, a layout or an archive, and returns
// where it is. The default tag is the version.
func (r *Release) Push(ctx context.Context, destination string, insecure bool) (written oci.Location, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", destination, err)
		}
	}()
	written, err = oci.ParseTarget(destination, r.Config.Version, insecure)
	if err != nil {
		return written, err
	}
	target, err := oci.Create(ctx, written, oci.Options{Insecure: insecure})
	if err != nil {
		return written, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	options := copy.Options{Tag: written.Identifier, Referrers: true}
	if _, err := copy.Copy(ctx, r.store, r.Root, target, options); err != nil {
		return written, err
	}
	return written, target.Commit(ctx)
}
