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

	v1 "github.com/google/go-containerregistry/pkg/v1"

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
	tags    []string // tags at the destination
	from    oci.Store
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
	Error   string   `json:"error,omitempty"` // of the whole copy, such as a full disk

	options    Options
	to         string // destination: a folder, or the prefix of repositories
	isFolder   bool   // the destination is a folder
	releases   []*Release
	fromFolder *oci.Layout // nil for registries
	reading    source.Repositories
	toFolder   *oci.Layout // nil for a registry
	writing    sync.Map    // oci.Target by the name of its repository

	mu    sync.Mutex
	done  int64    // copied bytes
	busy  sync.Map // a mutex for each digest of a repository: two registries may have it
	blobs sync.Map // whether the destination has a blob, by its part
}

// A part is a manifest or blob at the destination.
type part struct {
	repository string // "" in a folder, which has each part once
	digest     v1.Hash
}

// New reads the releases of a source, and collects their signatures.
func New(ctx context.Context, ref, destination string, options Options) (*Mirror, error) {
	m := &Mirror{options: options, to: strings.TrimSuffix(destination, "/")}
	m.reading.Options = options.Source
	var err error
	if m.isFolder, err = isFolder(m.to); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrDestination, destination, err)
	}
	if isMirror(ref) {
		if m.isFolder {
			return nil, fmt.Errorf("%w: %s and %s are folders: copy it with \"cp -r\", or name a registry",
				ErrDestination,
				ref, m.to)
		}
		if m.fromFolder, err = oci.OpenLayout(ref); err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
	}
	for _, store := range options.SignatureStores {
		if _, err := os.Stat(store); err != nil && !strings.Contains(store, "://") {
			return nil, fmt.Errorf("--signature-store %s: %w", store, oci.WithoutPath(err))
		}
	}
	if m.releases, err = Read(ctx, ref, options.Source); err != nil {
		return nil, err
	}
	for _, release := range m.releases {
		if err := m.add(ctx, release); err != nil {
			return nil, err
		}
	}
	if m.isFolder {
		if m.toFolder, err = oci.CreateLayout(ctx, m.to); err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrDestination, m.to, err)
		}
	}
	return m, nil
}

// isFolder reports whether a destination is a folder and not a registry. What is not on disk is a folder if it can't be
// meant as a registry.
func isFolder(destination string) (bool, error) {
	info, err := os.Stat(destination)
	host, _, _ := strings.Cut(destination, "/")
	switch isPath := strings.HasPrefix(destination, ".") || strings.HasPrefix(destination, "/"); {
	case err == nil && info.IsDir():
		return true, nil
	case err == nil, strings.HasSuffix(destination, ".tar"):
		return false, errors.New("it is a file: name a folder, and pack it with tar afterwards")
	case isPath:
		return true, nil
	case source.IsImagePrefix(destination):
		return false, nil
	case host == "", strings.ContainsAny(destination, ":@"), strings.Contains(host, "."), host == "localhost":
		return false, errors.New("write a registry without scheme, tag, digest and capital letters, as in " +
			"registry.internal:5000/mirror, or a folder that begins with ./")
	default:
		return true, nil
	}
}

// IsFolder reports whether the destination is a folder.
func (m *Mirror) IsFolder() bool { return m.isFolder }

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
		m.Notes = append(m.Notes, `the release is not in a registry: copy it with "runlevel release push"`)
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
	if err := release.collectSignatures(ctx, m.options.SignatureStores); err != nil {
		return err
	}
	stores := slices.Concat(release.stores, m.options.SignatureStores)
	err = release.collectSignatures(ctx, release.stores)
	switch {
	case err != nil && len(release.signatures) == 0:
		item.Error = "its signatures can't be read: " + err.Error()
	case err != nil:
		m.Notes = append(m.Notes, "signatures of "+release.image.String()+": "+err.Error())
	case len(release.signatures) == 0 && len(stores) > 0 && m.fromFolder == nil:
		m.Notes = append(m.Notes, "no OpenPGP signature of "+release.image.String()+" in "+strings.Join(stores, ", "))
	}
	return nil
}

// addImage adds an image, unless it is there: then it only gets another tag.
func (m *Mirror) addImage(image reference, tag string) (*Item, error) {
	var item *Item
	for _, other := range m.Items {
		isSamePlace := !m.isFolder && m.nameAt(other.image) == m.nameAt(image) && slices.Contains(other.tags, tag)
		switch isSameDigest := other.image.identifier == image.identifier && !image.isTag(); {
		case other.image == image:
			item = other
		case isSamePlace && !isSameDigest:
			return nil, fmt.Errorf("%w: %s and %s would have the same name there", ErrDestination, other.image, image)
		}
	}
	if item == nil {
		item = &Item{Image: image.String(), image: image}
		item.Destination = reference{m.nameAt(image), image.identifier}.String()
		m.Items = append(m.Items, item)
	}
	if tag != "" && !slices.Contains(item.tags, tag) {
		item.tags = append(item.tags, tag)
	}
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

// Close frees the resources of the mirror.
func (m *Mirror) Close() error {
	if m.toFolder == nil {
		return nil
	}
	return m.toFolder.Close()
}
