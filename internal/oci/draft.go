package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// archiveSuffix is the end of the names of archives.
const archiveSuffix = ".tar"

// CreateLayout opens a layout to write to. If it isn't there, it is created: an archive if its name ends with .tar, and
// a folder otherwise.
func CreateLayout(path string) (*Layout, error) {
	layout := &Layout{draft: newDraft()}
	info, err := os.Stat(path)
	switch isThere := err == nil; {
	case isThere && info.Mode().IsRegular(), !isThere && strings.HasSuffix(path, archiveSuffix):
		layout.draft.isNew = !isThere
		layout.files, err = createArchive(path)
		return layout, err
	case isThere && !info.IsDir():
		return nil, errors.New("it is neither a file nor a folder")
	case isThere && !IsLayout(path):
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			return nil, errors.Join(errors.New("the folder is neither an OCI image layout nor empty"), WithoutPath(err))
		}
	}
	_, err = os.Stat(filepath.Join(path, indexFile))
	layout.draft.isNew = err != nil
	layout.files = &folder{path: path}
	return layout, nil
}

// A draft has the changes of a layout until they are committed.
type draft struct {
	isNew bool // there is no index yet

	mu        sync.Mutex
	added     []v1.Descriptor
	untagged  []v1.Descriptor // added if no manifest contains them
	nested    map[v1.Hash]bool
	referrers map[v1.Hash]*referrer // what is known of manifests: nil for one without a subject
}

func newDraft() *draft { return &draft{nested: map[v1.Hash]bool{}, referrers: map[v1.Hash]*referrer{}} }

// merge returns the entries of an index with those of the draft. A tag that was written again is moved.
func (d *draft) merge(images []v1.Descriptor) []v1.Descriptor {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range d.added {
		images = slices.DeleteFunc(images, func(old v1.Descriptor) bool {
			name := entry.Annotations[refName]
			return old.Annotations[refName] == name && (name != "" || old.Digest == entry.Digest)
		})
		images = append(images, entry)
	}
	return images
}

// settle adds the manifests without a tag that no other manifest contains, and reports whether there are any changes.
func (d *draft) settle(images []v1.Descriptor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range d.untagged {
		isSame := func(other v1.Descriptor) bool {
			return other.Digest == entry.Digest && repositoryOf(other) == repositoryOf(entry)
		}
		if !d.nested[entry.Digest] && !slices.ContainsFunc(images, isSame) && !slices.ContainsFunc(d.added, isSame) {
			d.added = append(d.added, entry)
		}
	}
	d.untagged = nil
	return d.isNew || len(d.added) > 0
}

// repositoryOf returns the name of an entry without its tag or digest.
func repositoryOf(entry v1.Descriptor) string {
	name := entry.Annotations[refName]
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		return name[:colon]
	}
	return name
}

// referrer returns an image of a layout as a referrer, or nil if it has no subject.
func (d *draft) referrer(ctx context.Context, layout *Layout, image v1.Descriptor) (*referrer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, isKnown := d.referrers[image.Digest]; isKnown {
		return known, nil
	}
	raw, err := layout.Manifest(ctx, image)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := asReferrer(image, raw)
	if err == nil {
		d.referrers[image.Digest] = found
	}
	return found, err
}

// HasBlob implements Target. A blob with another content than its digest says is written again.
func (l *Layout) HasBlob(ctx context.Context, described v1.Descriptor) (bool, error) {
	content, err := l.Blob(ctx, described, 0)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer content.Close()
	checked, err := NewDigestReader(Interruptible(ctx, content), described)
	if err != nil {
		return false, err
	}
	err = checked.Verify()
	return err == nil, ctx.Err()
}

// PutBlob implements Target.
func (l *Layout) PutBlob(ctx context.Context, described v1.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	return l.files.putBlob(ctx, described, open)
}

// PutManifest implements Target.
func (l *Layout) PutManifest(ctx context.Context, described v1.Descriptor, raw []byte, tag string) error {
	if err := CheckManifest(described, raw); err != nil {
		return err
	}
	refers, err := asReferrer(described, raw)
	if err != nil {
		return err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	entry := v1.Descriptor{
		MediaType: mediaType(raw, described.MediaType), Digest: described.Digest, Size: int64(len(raw)),
	}
	err = l.files.putBlob(ctx, entry, func(offset int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw[offset:])), nil
	})
	if err != nil {
		return err
	}
	if refers != nil {
		entry.ArtifactType = refers.described.ArtifactType
	}
	if name := l.entryName(entry.Digest, tag); name != "" {
		entry.Annotations = map[string]string{refName: name}
	}
	l.draft.add(entry, index.Manifests, tag == "" && refers == nil)
	return nil
}

// entryName returns the name of an image in the index.
func (l *Layout) entryName(digest v1.Hash, tag string) string {
	switch {
	case l.repository == "":
		return tag
	case tag == "":
		return l.repository + "@" + digest.String()
	default:
		return l.repository + ":" + tag
	}
}

func (d *draft) add(entry v1.Descriptor, nested []v1.Descriptor, mayBeNested bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, child := range nested {
		d.nested[child.Digest] = true
	}
	if mayBeNested {
		d.untagged = append(d.untagged, entry)
	} else {
		d.added = append(d.added, entry)
	}
}

// Commit implements Target.
func (l *Layout) Commit(ctx context.Context) error {
	index, err := l.index()
	if err != nil {
		return err
	}
	if !l.draft.settle(index.Manifests) {
		return nil
	}
	index.Manifests = l.draft.merge(index.Manifests)
	raw, err := json.Marshal(index)
	if err != nil {
		return err
	}
	if len(raw) > MaxManifest {
		return SizeError("index.json of the layout has more than " + InBytes(MaxManifest) + ", which is the limit")
	}
	if err := l.files.commit(ctx, raw); err != nil {
		return err
	}
	l.draft.mu.Lock()
	defer l.draft.mu.Unlock()
	l.draft.added, l.draft.isNew = nil, false
	return nil
}
