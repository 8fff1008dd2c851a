package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// The images that are surveyed, and copied, at the same time.
const (
	maxSurveys = 8
	maxCopies  = 3
)

// each calls a function for several items at once. The error of an item does not stop the others.
func each(items []*Item, limit int, act func(*Item) error) {
	var group errgroup.Group
	group.SetLimit(limit)
	for _, item := range items {
		if item.Error != "" {
			continue
		}
		group.Go(func() error {
			if err := act(item); err != nil {
				item.Error = err.Error()
			}
			return nil
		})
	}
	_ = group.Wait() // items have their errors
}

// Survey finds out what belongs to each image, and what the destination lacks.
func (m *Mirror) Survey(ctx context.Context) error {
	counted := map[part]bool{}
	each(m.Items, maxSurveys, func(item *Item) error {
		lacking, err := m.survey(ctx, item)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, described := range lacking {
			missing := m.partAt(item, described)
			item.Missing += described.Size
			if !counted[missing] {
				counted[missing] = true
				m.Missing += described.Size
			}
		}
		m.Bytes += item.Bytes
		if item.plan != nil {
			for _, note := range item.plan.Notes {
				m.Notes = append(m.Notes, item.Image+": "+note)
			}
		}
		return err
	})
	return ctx.Err()
}

// survey finds out what belongs to an image, and returns the parts that the destination lacks.
func (m *Mirror) survey(ctx context.Context, item *Item) ([]v1.Descriptor, error) {
	from, described, err := m.find(ctx, item.image)
	if err != nil {
		return nil, err
	}
	defer rest(from)
	options := copy.Options{Referrers: true, Progress: func(done, _ int64) { m.progress(item, done) }}
	if item.plan, err = copy.Find(ctx, from, described, options); err != nil {
		return nil, err
	}
	item.Digest, item.from = described.Digest.String(), from
	for _, part := range item.plan.Blobs {
		item.Bytes += part.Size
	}
	for _, part := range item.plan.Manifests {
		item.Bytes += part.Size
		if part.Subject != nil || part.Tag != "" {
			item.Attached++
		}
	}
	for _, tag := range item.tags {
		item.plan.AddTag(tag)
	}
	target, err := m.target(ctx, item.image)
	if err != nil {
		return nil, err
	}
	defer rest(target)
	lacking, isComplete, err := m.lacking(ctx, item, target)
	item.lacks = !isComplete
	return lacking, err
}

// partAt returns the identity of a part of an image at the destination.
func (m *Mirror) partAt(item *Item, described v1.Descriptor) part {
	if m.isFolder {
		return part{digest: described.Digest}
	}
	return part{m.nameAt(item.image), described.Digest}
}

// lacking returns the manifests and blobs that a destination lacks, and whether it is complete, with all tags and
// referrers.
func (m *Mirror) lacking(ctx context.Context, item *Item, target oci.Target) ([]v1.Descriptor, bool, error) {
	var lacking []v1.Descriptor
	for _, blob := range item.plan.Blobs {
		known := m.partAt(item, blob)
		exists, isKnown := m.blobs.Load(known)
		if !isKnown {
			has, err := target.HasBlob(ctx, blob) // a folder compares its digest
			if err != nil {
				return nil, false, err
			}
			exists = has
			m.blobs.Store(known, has)
		}
		if exists == false {
			lacking = append(lacking, blob)
		}
	}
	isComplete := true
	for _, manifest := range item.plan.Manifests {
		exists, err := hasManifest(ctx, target, manifest)
		if err != nil {
			return nil, false, err
		}
		if !exists {
			lacking = append(lacking, manifest.Descriptor)
			continue
		}
		if manifest.Tag != "" && !manifest.IsAttachment {
			exists, err = resolves(ctx, target, manifest.Tag, manifest.Digest)
		}
		if manifest.Subject != nil && exists && err == nil {
			exists, err = refers(ctx, target, manifest)
		}
		if err != nil {
			return nil, false, err
		}
		isComplete = isComplete && exists
	}
	return lacking, isComplete && len(lacking) == 0, nil
}

// hasManifest reports whether a destination has a manifest. In a folder, one that no index names is also listed.
func hasManifest(ctx context.Context, target oci.Target, manifest copy.Manifest) (bool, error) {
	if manifest.IsAttachment {
		return copy.HasAttachment(ctx, target, manifest)
	}
	if !manifest.IsChild {
		exists, err := resolves(ctx, target, manifest.Digest.String(), manifest.Digest)
		if err != nil || !exists {
			return false, err
		}
	}
	_, err := target.Manifest(ctx, manifest.Descriptor)
	if errors.Is(err, oci.ErrNotFound) || oci.IsWrong(err) {
		return false, nil
	}
	return err == nil, err
}

// resolves reports whether a tag or digest is a digest in a store.
func resolves(ctx context.Context, store oci.Store, identifier string, digest v1.Hash) (bool, error) {
	described, err := store.Resolve(ctx, identifier)
	if errors.Is(err, oci.ErrNotFound) {
		return false, nil
	}
	return err == nil && described.Digest == digest, err
}

// refers reports whether a store knows a manifest as a referrer of its subject.
func refers(ctx context.Context, store oci.Store, manifest copy.Manifest) (bool, error) {
	all, err := store.Referrers(ctx, manifest.Subject.Digest)
	return slices.ContainsFunc(all, func(d v1.Descriptor) bool { return d.Digest == manifest.Digest }), err
}

// Copy copies what the destination lacks, and verifies the copies. A release is copied after its images, and only if
// all of them are complete.
func (m *Mirror) Copy(ctx context.Context) error {
	if m.isFolder {
		err := m.toFolder.Commit(ctx) // makes it a layout
		if err == nil && !isMirror(m.to) {
			err = writeEntries(m.to, []folderEntry{}) // none is complete
		}
		if err != nil {
			return err
		}
	}
	var images, releases []*Item
	for _, item := range m.Items {
		if item.release == nil {
			images = append(images, item)
		} else {
			releases = append(releases, item)
		}
	}
	if err := m.copyAll(ctx, images); err != nil {
		return err
	}
	for _, item := range releases {
		if slices.ContainsFunc(item.needs, func(image *Item) bool { return image.Error != "" }) && item.Error == "" {
			item.Error = "not copied, since its images are not complete"
		}
	}
	if err := m.copyAll(ctx, releases); err != nil || !m.isFolder {
		return err
	}
	for _, item := range releases {
		if item.Error == "" {
			if err := writeContents(m.to, item.release); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyAll copies what the destination lacks of items, and then asks the destination for all of them.
func (m *Mirror) copyAll(ctx context.Context, items []*Item) error {
	if !slices.ContainsFunc(items, func(item *Item) bool { return item.lacks && item.Error == "" }) {
		return ctx.Err()
	}
	each(items, maxCopies, func(item *Item) error { return m.copy(ctx, item) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m.isFolder {
		if err := m.toFolder.Commit(ctx); err != nil {
			return err
		}
	}
	m.blobs.Range(func(blob, exists any) bool {
		return exists == true || m.blobs.CompareAndDelete(blob, false)
	})
	each(items, maxSurveys, func(item *Item) error {
		target, err := m.target(ctx, item.image)
		if err != nil {
			return err
		}
		defer rest(target)
		lacking, isComplete, err := m.lacking(ctx, item, target)
		if err == nil && len(lacking) > 0 {
			err = fmt.Errorf("after the copy, the destination lacks %s", lacking[0].Digest)
		} else if err == nil && !isComplete {
			err = errors.New("after the copy, the destination lacks a tag or a referrer")
		}
		item.Copied = item.lacks && err == nil
		return err
	})
	return ctx.Err()
}

// copy copies what the destination lacks of an image.
func (m *Mirror) copy(ctx context.Context, item *Item) error {
	if !item.lacks {
		return nil
	}
	target, err := m.target(ctx, item.image)
	if err != nil {
		return err
	}
	lock, _ := m.busy.LoadOrStore(m.nameAt(item.image)+"@"+item.Digest, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	defer rest(item.from, target)
	_, err = item.plan.Copy(ctx, target)
	return err
}
