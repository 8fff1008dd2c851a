// Package mirror copies releases, with the images that they name and the signatures of both, to another registry, or to
// a folder and from there into a registry that can't reach the first one.
//
// It chooses what is copied, and verifies the result; package oci/copy copies. It touches no cluster, but writes the
// settings with which clusters find the copies.
//
// Start with New.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
	"github.com/runlevel/runlevel/internal/source"
)

// ErrDestination is the error of a destination that can't be used.
var ErrDestination = errors.New("DESTINATION")

// Options are the options of New.
type Options struct {
	Source          source.Options
	SignatureStores []string // with OpenPGP signatures, beside those that the release names: see signature.Collect
	// Progress gets the bytes of blobs that the destination has so far; may be nil.
	Progress func(done, total int64)
}

// An Item is an image of a mirror.
type Item struct {
	Image       string `json:"image"`
	Destination string `json:"destination"`
	Digest      string `json:"digest,omitempty"`
	Bytes       int64  `json:"bytes"`              // of its manifests and blobs, with those of signatures
	Missing     int64  `json:"missing"`            // those that the destination lacks
	Attached    int    `json:"attached,omitempty"` // signatures and other images that belong to it
	Copied      bool   `json:"copied,omitempty"`
	Error       string `json:"error,omitempty"`

	image   reference
	tag     string // tag at the destination; "" for none
	plan    *copy.Plan
	done    int64    // copied bytes
	lacks   bool     // the destination lacks something
	release *Release // nil for an image of one
	needs   []*Item  // the images of the release, which are copied before it
}

// A Mirror is the copy of releases to a destination.
type Mirror struct {
	Items   []*Item  `json:"images"`
	Bytes   int64    `json:"bytes"`   // of all images
	Missing int64    `json:"missing"` // what the destination lacks, each blob once
	Notes   []string `json:"notes,omitempty"`

	options  Options
	from     string // folder of the source; "" for registries
	to       string // destination: a folder, or the prefix of repositories
	isFolder bool   // the destination is a folder
	isNew    bool   // the destination was not on disk
	releases []*Release
	reading  *stores[oci.Store]
	writing  *stores[oci.Target]

	mu     sync.Mutex
	done   int64     // copied bytes
	hashed *sync.Map // blobs of the folder whose digest was compared, and whether it is right
}

// New reads the releases of a source, and collects their signatures.
func New(ctx context.Context, ref, destination string, options Options) (*Mirror, error) {
	m := &Mirror{options: options, hashed: &sync.Map{}, to: strings.TrimSuffix(destination, "/")}
	info, err := os.Stat(destination)
	m.isNew = err != nil
	m.isFolder = err == nil && info.IsDir() || !source.IsImagePrefix(m.to)
	if m.isFolder && (err == nil && !info.IsDir() || strings.HasSuffix(m.to, ".tar")) {
		return nil, fmt.Errorf("%w: %s is a file: name a folder, and pack it with \"tar\" afterwards, or a registry",
			ErrDestination, m.to)
	}
	if isMirror(ref) {
		m.from = ref
	}
	if m.from != "" && m.isFolder {
		return nil, fmt.Errorf("%w: %s and %s are folders: copy it with \"cp -r\", or name a registry", ErrDestination,
			ref, m.to)
	}
	if m.releases, err = Read(ctx, ref, options.Source); err != nil {
		return nil, err
	}
	for _, release := range m.releases {
		if err := m.add(ctx, release); err != nil {
			return nil, err
		}
	}
	return m, m.openStores(ctx)
}

// add adds the images of a release, and the release as the last one.
func (m *Mirror) add(ctx context.Context, release *Release) error {
	var needs []*Item
	for _, image := range release.images {
		item, err := m.addImage(image, m.tagAt(image))
		if err != nil {
			return err
		}
		needs = append(needs, item)
	}
	if release.image == (reference{}) {
		if m.isFolder {
			return fmt.Errorf("%w: a folder has releases by their names in a registry, and SOURCE is not in one: push "+
				"the release first, or name a registry", ErrDestination)
		}
		m.Notes = append(m.Notes, `the release is in no registry: copy it with "runlevel release push"`)
		return nil
	}
	name := m.nameAt(release.image)
	if !m.isFolder && (name == release.image.repository || strings.HasPrefix(release.image.repository, m.to+"/")) {
		return fmt.Errorf("%w: %s is where the release comes from", ErrDestination, m.to)
	}
	tag := m.tagAt(release.image)
	if !m.isFolder { // there, the tag of a release that was built again would remove the one before
		tag = cmp.Or(release.tag, tag)
	}
	item, err := m.addImage(release.image, tag)
	if err != nil {
		return err
	}
	item.release, item.needs = release, needs
	stores := slices.Concat(release.stores, m.options.SignatureStores)
	err = release.collectSignatures(ctx, stores)
	switch {
	case err != nil && len(release.signatures) == 0:
		item.Error = "its signatures can't be read: " + err.Error()
	case err != nil:
		m.Notes = append(m.Notes, "signatures of "+release.image.String()+": "+err.Error())
	case len(release.signatures) == 0 && len(stores) > 0 && m.from == "":
		m.Notes = append(m.Notes, "no OpenPGP signature of "+release.image.String()+" in "+strings.Join(stores, ", "))
	}
	return nil
}

// addImage adds an image, unless another release has it, too.
func (m *Mirror) addImage(image reference, tag string) (*Item, error) {
	for _, other := range m.Items {
		switch isSamePlace := m.nameAt(other.image) == m.nameAt(image) && other.tag == tag && image.isTag(); {
		case other.image == image:
			return other, nil
		case isSamePlace && !m.isFolder:
			return nil, fmt.Errorf("%w: %s and %s would have the same name there", ErrDestination, other.image, image)
		}
	}
	item := &Item{Image: image.String(), image: image, tag: tag}
	item.Destination = reference{m.nameAt(image), image.identifier}.String()
	m.Items = append(m.Items, item)
	return item, nil
}

// nameAt returns the repository of an image at the destination.
func (m *Mirror) nameAt(image reference) string {
	if m.isFolder {
		return image.repository
	}
	return m.to + "/" + image.path()
}

// tagAt returns the tag of an image at the destination. In a registry, an image by digest gets one, too: registries may
// delete manifests without a tag.
func (m *Mirror) tagAt(image reference) string {
	switch _, hex, _ := strings.Cut(image.identifier, ":"); {
	case image.isTag():
		return image.identifier
	case m.isFolder:
		return ""
	default:
		return "digest-" + hex[:12]
	}
}

// progress adds the progress of an item to that of all.
func (m *Mirror) progress(item *Item, done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done, item.done = m.done+done-item.done, done
	if m.options.Progress != nil {
		m.options.Progress(m.done, m.Bytes)
	}
}

// Failed returns the number of images that are not complete at the destination.
func (m *Mirror) Failed() (count int) {
	for _, item := range m.Items {
		if item.Error != "" {
			count++
		}
	}
	return count
}

// Close frees the resources of the mirror. It removes a folder to which nothing was copied.
func (m *Mirror) Close() error {
	err := errors.Join(m.reading.close(), m.writing.close())
	if m.isFolder && m.isNew {
		_ = os.Remove(m.to) // fails if there is anything in it
	}
	return err
}
