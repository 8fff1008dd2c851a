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
	var mu sync.Mutex
	type part struct {
		repository string // "" in a folder, which has each part once
		digest     v1.Hash
	}
	counted := map[part]bool{}
	each(m.Items, maxSurveys, func(item *Item) error {
		lacking, err := m.survey(ctx, item)
		mu.Lock()
		defer mu.Unlock()
		for _, described := range lacking {
			missing := part{digest: described.Digest}
			if !m.isFolder {
				missing.repository = m.nameAt(item.image)
			}
			item.Missing += described.Size
			if !counted[missing] {
				counted[missing] = true
				m.Missing += described.Size
			}
		}
		m.Bytes += item.Bytes
		return err
	})
	return ctx.Err()
}

// survey finds out what belongs to an image, and returns the parts that the destination lacks.
func (m *Mirror) survey(ctx context.Context, item *Item) ([]v1.Descriptor, error) {
	from, described, err := m.find(ctx, item.Image)
	if err != nil {
		return nil, err
	}
	if item.plan, err = copy.Find(ctx, from, described, copy.Options{
		Tag: item.tag, Referrers: true, Progress: func(done, _ int64) { m.progress(item, done) },
	}); err != nil {
		return nil, err
	}
	item.Digest = described.Digest.String()
	for _, part := range item.plan.Blobs {
		item.Bytes += part.Size
	}
	for _, part := range item.plan.Manifests {
		item.Bytes += part.Size
		if part.Subject != nil || part.Tag != "" && part.Tag != item.tag {
			item.Attached++
		}
	}
	target, err := m.writing.get(m.nameAt(item.image))
	if err != nil {
		return nil, err
	}
	lacking, isComplete, err := m.lacking(ctx, item.plan, target)
	item.lacks = !isComplete
	return lacking, err
}

// find returns an image at the first of its mirrors that has it, or at its own location.
func (m *Mirror) find(ctx context.Context, name string) (store oci.Store, described v1.Descriptor, failed error) {
	for _, location := range m.options.Source.Mirrors.Locations(name) {
		image, err := parseReference(location)
		if err == nil {
			store, err = m.reading.get(image.repository)
		}
		if err == nil {
			described, err = store.Resolve(ctx, image.identifier)
		}
		if err == nil {
			return store, described, nil
		}
		if location != name {
			err = fmt.Errorf("%s: %w", location, err)
		}
		failed = errors.Join(failed, err)
	}
	return nil, described, failed
}

// lacking returns the manifests and blobs that a destination lacks, and whether it is complete, with all tags and
// referrers.
func (m *Mirror) lacking(ctx context.Context, plan *copy.Plan, target oci.Target) ([]v1.Descriptor, bool, error) {
	var lacking []v1.Descriptor
	for _, blob := range plan.Blobs {
		if isThere, err := m.hasBlob(ctx, target, blob); err != nil {
			return nil, false, err
		} else if !isThere {
			lacking = append(lacking, blob)
		}
	}
	isComplete := true
	for _, manifest := range plan.Manifests {
		isThere, err := hasManifest(ctx, target, manifest)
		if err != nil {
			return nil, false, err
		}
		if !isThere {
			lacking = append(lacking, manifest.Descriptor)
			continue
		}
		if manifest.Tag != "" {
			isThere, err = resolves(ctx, target, manifest.Tag, manifest.Digest)
		}
		if manifest.Subject != nil && isThere && err == nil {
			isThere, err = refers(ctx, target, manifest)
		}
		if err != nil {
			return nil, false, err
		}
		isComplete = isComplete && isThere
	}
	return lacking, isComplete && len(lacking) == 0, nil
}

// hasBlob reports whether a destination has a blob. A folder compares its digest, so each blob is asked for once.
func (m *Mirror) hasBlob(ctx context.Context, target oci.Target, blob v1.Descriptor) (bool, error) {
	if isThere, isKnown := m.hashed.Load(blob.Digest); isKnown {
		return isThere.(bool), nil
	}
	isThere, err := target.HasBlob(ctx, blob)
	if err == nil && m.isFolder {
		m.hashed.Store(blob.Digest, isThere)
	}
	return isThere, err
}

// hasManifest reports whether a destination has a manifest. One that an index names is not listed in a folder.
func hasManifest(ctx context.Context, target oci.Target, manifest copy.Manifest) (bool, error) {
	if !manifest.IsChild {
		return resolves(ctx, target, manifest.Digest.String(), manifest.Digest)
	}
	_, err := target.Manifest(ctx, manifest.Descriptor)
	if errors.Is(err, oci.ErrNotFound) {
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
	images := slices.DeleteFunc(slices.Clone(m.Items), func(item *Item) bool { return item.release != nil })
	releases := slices.DeleteFunc(slices.Clone(m.Items), func(item *Item) bool { return item.release == nil })
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

// copyAll copies what the destination lacks of items, and then opens the destination again to verify them.
func (m *Mirror) copyAll(ctx context.Context, items []*Item) error {
	items = slices.DeleteFunc(slices.Clone(items), func(item *Item) bool { return !item.lacks })
	each(items, maxCopies, func(item *Item) error {
		target, err := m.writing.get(m.nameAt(item.image))
		if err == nil {
			_, err = item.plan.Copy(ctx, target)
		}
		return err
	})
	if len(items) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	if target, err := m.writing.get(m.nameAt(items[0].image)); err != nil {
		return err
	} else if err := target.Commit(ctx); err != nil { // of the whole folder
		return err
	}
	written, err := m.openTargets(ctx)
	if err != nil {
		return err
	}
	m.hashed = &sync.Map{}
	each(items, maxSurveys, func(item *Item) error {
		target, err := written.get(m.nameAt(item.image))
		if err != nil {
			return err
		}
		lacking, isComplete, err := m.lacking(ctx, item.plan, target)
		if err == nil && len(lacking) > 0 {
			err = fmt.Errorf("after the copy, the destination lacks %s", lacking[0].Digest)
		} else if err == nil && !isComplete {
			err = errors.New("after the copy, the destination lacks a tag, or a referrer of it")
		}
		item.Copied = err == nil
		return err
	})
	return errors.Join(ctx.Err(), written.close())
}
