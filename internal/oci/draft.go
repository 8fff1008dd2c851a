package oci

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// archiveSuffix is the end of the names of archives.
const archiveSuffix = ".tar"

// CreateLayout opens a layout to write to. If it does not exist, it is created: an archive if its name ends with .tar,
// and a folder otherwise. It waits for another process that writes to an archive.
func CreateLayout(ctx context.Context, path string) (*Layout, error) {
	layout := &Layout{draft: newDraft()}
	info, err := os.Stat(path)
	switch exists := err == nil; {
	case exists && info.Mode().IsRegular(), !exists && strings.HasSuffix(path, archiveSuffix):
		created, err := createArchive(ctx, path)
		if err != nil {
			return nil, err
		}
		layout.draft.isChanged.Store(created.old == nil)
		layout.files = created
		return layout, nil
	case exists && !info.IsDir():
		return nil, errors.New("it is neither a file nor a folder")
	case exists: // its files are listed first: another process may begin the layout
		if entries, err := os.ReadDir(path); (err != nil || len(entries) > 0) && !IsLayout(path) {
			return nil, errors.Join(errors.New("the folder is neither an OCI image layout nor empty"), WithoutPath(err))
		}
	}
	_, err = os.Stat(filepath.Join(path, indexFile))
	layout.draft.isChanged.Store(err != nil)
	layout.files = &folder{path: path}
	return layout, nil
}

// A draft has the changes of a layout until they are committed.
type draft struct {
	isChanged atomic.Bool // also if there is no index yet

	mu        sync.Mutex
	index     *v1.IndexManifest // of the layout; nil before it is read
	images    []v1.Descriptor   // those of the index and the added ones; nil before they are asked for
	added     []v1.Descriptor
	referrers map[v1.Hash]*referrer // what is known of manifests: nil for one without a subject
}

func newDraft() *draft { return &draft{referrers: map[v1.Hash]*referrer{}} }

// entryKey returns what an index has once: a name, or the digest of an entry without one.
func entryKey(entry v1.Descriptor) string {
	return cmp.Or(entry.Annotations[refName], entry.Digest.String())
}

// add adds an entry. A tag that was written again is moved.
func (d *draft) add(entry v1.Descriptor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.added, d.images = append(d.added, entry), nil
}

// merge returns the entries of the index with those that were added.
func (d *draft) merge() []v1.Descriptor {
	last := map[string]int{}
	for i, entry := range d.added {
		last[entryKey(entry)] = i
	}
	images := slices.DeleteFunc(slices.Clone(d.index.Manifests), func(old v1.Descriptor) bool {
		_, isReplaced := last[entryKey(old)]
		return isReplaced
	})
	for i, entry := range d.added {
		if last[entryKey(entry)] == i {
			images = append(images, entry)
		}
	}
	return images
}

// referrer returns an image of a layout as a referrer, or nil if it has no subject or can't be read.
func (d *draft) referrer(ctx context.Context, layout *Layout, image v1.Descriptor) *referrer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, isKnown := d.referrers[image.Digest]; isKnown {
		return known
	}
	raw, err := layout.Manifest(ctx, image)
	if err != nil {
		return nil
	}
	d.referrers[image.Digest], _ = asReferrer(image, raw)
	return d.referrers[image.Digest]
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
	l.draft.isChanged.Store(true)
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
	entry := v1.Descriptor{
		MediaType: mediaType(raw, described.MediaType), Digest: described.Digest, Size: int64(len(raw)),
	}
	exists, err := l.HasBlob(ctx, entry)
	if err == nil && !exists {
		err = l.PutBlob(ctx, entry, func(offset int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(raw[offset:])), nil
		})
	}
	if err != nil || tag == "" && refers == nil {
		return err
	}
	if refers != nil {
		entry.ArtifactType = refers.described.ArtifactType
	}
	switch isTag := tag != "" && tag != entry.Digest.String(); {
	case l.repository != "" && isTag:
		entry.Annotations = map[string]string{refName: l.repository + ":" + tag}
	case l.repository != "":
		entry.Annotations = map[string]string{refName: l.repository + "@" + entry.Digest.String()}
	case isTag:
		entry.Annotations = map[string]string{refName: tag}
	}
	l.draft.add(entry)
	return nil
}

// Commit implements Target. It reads the index again: another process may have written to it before this one.
func (l *Layout) Commit(ctx context.Context) error {
	if _, err := l.files.begin(ctx); err != nil {
		return err
	}
	d := l.draft
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.index, err = l.readIndex(); err != nil {
		return err
	}
	isNew := func(entry v1.Descriptor) bool {
		return !slices.ContainsFunc(d.index.Manifests, func(old v1.Descriptor) bool {
			return old.Digest == entry.Digest && entryKey(old) == entryKey(entry)
		})
	}
	if !d.isChanged.Load() && !slices.ContainsFunc(d.added, isNew) {
		return l.files.commit(ctx, nil)
	}
	d.index.Manifests = d.merge()
	raw, err := json.Marshal(d.index)
	if err != nil {
		return err
	}
	if len(raw) > MaxManifest {
		return SizeError("index.json of the layout has more than " + InBytes(MaxManifest) + ", which is the limit")
	}
	if err := l.files.commit(ctx, raw); err != nil {
		return err
	}
	d.added, d.images = nil, nil
	d.isChanged.Store(false)
	return nil
}
