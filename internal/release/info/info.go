// Package info describes a release: its version, its components and images, what it deletes, and what its image says
// about it.
//
// It does not judge a release (lint does), and compares only images (package plan compares manifests). The text of a
// release isn't trusted: who prints it makes it printable.
//
// Start with Describe.
package info

import (
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Info describes a release. Manifests that the filters exclude are only counted.
type Info struct {
	Name    string        `json:"name,omitempty"`
	Version string        `json:"version,omitempty"`
	Source  source.Format `json:"source"`

	Image      string   `json:"image,omitempty"` // with its digest; only of an image in a registry
	Digest     string   `json:"digest,omitempty"`
	Created    string   `json:"created,omitempty"`
	Platforms  []string `json:"platforms,omitempty"`
	BaseDigest string   `json:"baseDigest,omitempty"` // digest of the image that the release was added to
	Content    string   `json:"content"`              // hash of the manifests and images, wherever they are read

	Previous []string       `json:"previous"` // versions that may be updated to this one
	Next     []string       `json:"next,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Versions []string       `json:"versions,omitempty"` // of parts that the images declare, such as kubernetes 1.34.1

	Components []Component `json:"components"`
	Levels     []string    `json:"levels"`
	Objects    int         `json:"objects"`
	Excluded   int         `json:"excluded,omitempty"`
	Tombstones []Object    `json:"tombstones"`
	Hooks      []Object    `json:"hooks"` // Deployments with lifecycle hooks
	Tests      []Object    `json:"tests"`

	Images     []Image      `json:"images"`
	Size       *Size        `json:"size,omitempty"` // of all images; nil if it was not requested
	Attached   []Attachment `json:"attached,omitempty"`
	Signatures []Signature  `json:"signatures,omitempty"` // those beside the image

	Unreadable []string `json:"unreadable,omitempty"` // reasons why something of the above is missing
}

// A Component owns files of the release.
type Component struct {
	Name       string   `json:"name"` // "" for files whose names have none
	Levels     []string `json:"levels"`
	Files      int      `json:"files"`
	Objects    int      `json:"objects"`
	Tombstones int      `json:"tombstones"`
}

// An Object is an object of the release, with the place of its manifest.
type Object struct {
	kinds.ID
	File   string                 `json:"file"`
	Line   int                    `json:"line"`
	Stages []deploymenthook.Stage `json:"stages,omitempty"` // stages of a rollout that have hooks
}

// An Image is an image that the release refers to.
type Image struct {
	Name   string     `json:"name"`
	Image  string     `json:"image"`            // pull spec
	Commit string     `json:"commit,omitempty"` // commit and repository that the image was built from
	Source string     `json:"source,omitempty"`
	Size   *ImageSize `json:"size,omitempty"`
}

// The annotations of images in image-references.
const (
	commitAnnotation = "io.openshift.build.commit.id"
	sourceAnnotation = "io.openshift.build.source-location"
)

// Describe describes a release by its files.
func Describe(release *source.Release, read *payload.Payload) *Info {
	i := &Info{
		Name: read.Name, Version: read.Version, Source: release.Kind, Image: release.Image, Digest: release.Digest,
		Content: read.Content, Previous: append([]string{}, read.Metadata.Previous...), Next: read.Metadata.Next,
		Metadata: read.Metadata.Metadata, Excluded: len(read.Excluded),
		Components: []Component{}, Tombstones: []Object{}, Hooks: []Object{}, Tests: []Object{}, Images: []Image{},
	}
	files := map[string]bool{}
	for _, m := range slices.Concat(read.Manifests, read.Tests) {
		i.addManifest(m, !files[m.Path])
		files[m.Path] = true
	}
	for _, component := range i.Components {
		i.Levels = sortedOnce(append(i.Levels, component.Levels...))
	}
	i.addImages(release.FS, read)
	return i
}

// addManifest counts a manifest and its file, and lists it if it has a special meaning.
func (i *Info) addManifest(m *payload.Manifest, isNewFile bool) {
	name, object := graph.ParseName(m.File()), Object{ID: m.ID(), File: m.Path, Line: m.Line}
	place := slices.IndexFunc(i.Components, func(c Component) bool { return c.Name == name.Component })
	if place < 0 {
		place = len(i.Components)
		i.Components = append(i.Components, Component{Name: name.Component, Levels: []string{}})
	}
	component := &i.Components[place]
	if isNewFile {
		component.Files++
	}
	if name.Level != "" {
		component.Levels = sortedOnce(append(component.Levels, name.Level))
	}
	switch {
	case m.IsTombstone():
		component.Tombstones++
		i.Tombstones = append(i.Tombstones, object)
		return
	case m.IsTest():
		i.Tests = append(i.Tests, object)
		return
	}
	component.Objects++
	i.Objects++
	hooks, _ := deploymenthook.Parse(m.Object()) // problems were reported when the release was read
	if object.Stages = hooks.Stages(); len(object.Stages) > 0 {
		i.Hooks = append(i.Hooks, object)
	}
}

// addImages adds the images of image-references, with facts that only this file has. Problems in it are known.
func (i *Info) addImages(files fs.FS, read *payload.Payload) {
	references := &payload.References{}
	for _, name := range read.FileNames() {
		if path.Base(name) != payload.ImagesFile {
			continue
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			continue
		}
		if found, err := payload.ParseReferences(text); err == nil {
			references = found
		}
	}
	i.Created = references.Created
	for _, name := range slices.Sorted(maps.Keys(read.Images)) {
		annotations := references.Annotations[name]
		i.Images = append(i.Images, Image{Name: name, Image: read.Images[name], Commit: annotations[commitAnnotation],
			Source: annotations[sourceAnnotation]})
		for part, version := range references.Parts[name] {
			i.Versions = sortedOnce(append(i.Versions, part+" "+version))
		}
	}
}

func sortedOnce(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// An ImageChange is a difference between the images of two releases. An image that only one of them has is nil in the
// other.
type ImageChange struct {
	Name string `json:"name"`
	From *Image `json:"from,omitempty"`
	To   *Image `json:"to,omitempty"`
}

// CompareImages returns the differences between the images of two releases, sorted by their names.
func CompareImages(old, next []Image) []ImageChange {
	changes := map[string]ImageChange{}
	for _, image := range old {
		changes[image.Name] = ImageChange{Name: image.Name, From: &image}
	}
	for _, image := range next {
		change := changes[image.Name]
		if change.Name, change.To = image.Name, &image; change.From != nil && change.From.Image == image.Image {
			delete(changes, image.Name)
			continue
		}
		changes[image.Name] = change
	}
	sorted := []ImageChange{}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		sorted = append(sorted, changes[name])
	}
	return sorted
}
