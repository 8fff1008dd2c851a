// Package payload reads the files of a release into an immutable value: its
// metadata, its images, and its manifests in the order of their file names, with
// templates rendered, images substituted and filters applied. OpenShift's own
// library decides which manifests are included.
//
// It does not order them beyond their names (package graph does), does not compare
// releases, and does not connect to a cluster.
//
// Load returns a payload that can be applied, or an error with all problems. Parse also returns the problems of a
// broken payload, with everything that could be read. Start with Load.
package payload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// DefaultName is the name of a release with release-metadata, unless it is named.
const DefaultName = "default"

// A Payload contains the loaded files of a release. Callers must not change it.
type Payload struct {
	Name     string            // "default", unless it was named; "" for a plain folder that was not named
	Version  string            // "" if neither the release nor the options have it
	Metadata Metadata          // empty for a plain folder of manifests
	Images   map[string]string // pull specs by name, of image-references
	Filter   Filter            // filter that selected the manifests

	Manifests  []*Manifest // manifests to apply, in the order of their files
	Tests      []*Manifest // tests of the release, in the order in which they run: they are not applied
	Excluded   []Exclusion // manifests excluded by the filter, in the same order
	Files      []File      // files that were read, in order
	Ignored    []string    // files beside them that were not read
	IsNumbered bool        // the names of files decide the order, not the kinds of objects
	Placed     []*Manifest // manifests without a namespace of their own: they get that of the options
	Hash       string      // hash of the included manifests: the same files have the same hash
	Content    string      // the hash of the files and images themselves, before filtering and rendering

	options Options  // options of Load
	beside  []string // the files with its metadata and images, if it has them
}

// Options returns the options with which the same files give the same payload, wherever they are read again: with the
// defaults that followed from the release.
func (p *Payload) Options() Options {
	options := p.options
	options.Name, options.Filter = p.Name, p.Filter
	return options
}

// FileNames returns the files that were read, sorted.
func (p *Payload) FileNames() []string {
	names := slices.Clone(p.beside)
	for _, file := range p.Files {
		names = append(names, file.Path)
	}
	slices.Sort(names)
	return names
}

// hashContent returns the hash of the files of a release as they are, and of its images.
func hashContent(files []*manifestFile, images map[string]string) string {
	whole := sha256.New()
	for _, file := range files {
		fmt.Fprintf(whole, "%q %x\n", file.Path, file.sum)
	}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		fmt.Fprintf(whole, "%q %q\n", name, images[name])
	}
	return "sha256:" + hex.EncodeToString(whole.Sum(nil))
}

// A File is a file with manifests.
type File struct {
	Path        string
	Documents   int    // number of non-empty documents
	Empty       []int  // the lines where empty documents begin
	Comments    []byte // comments before the first "---", if texts are kept
	IsRendered  bool   // Helm has written it, and the templates of some documents have no manifest
	UnendedLine int    // the last line, if it does not end with a line break and there are manifests; 0 if it does
}

// Options are the options of Load and Parse. Runlevel stores their JSON beside the files of a release for later
// versions.
type Options struct {
	Filter Filter `json:"filter"`
	// Name distinguishes several releases of one cluster.
	Name string `json:"name,omitempty"`
	// Version is the version of a release that has no release-metadata.
	Version string `json:"version,omitempty"`
	// ReleaseImage is the image of the release, for the templates of manifests/.
	ReleaseImage string `json:"releaseImage,omitempty"`
	// Release are the references of a release. With Release, the files are those of a component before its release:
	// its own image-references has the placeholders in its manifests for images of the release.
	Release *References `json:"release,omitempty"`
	// Injection contains the settings of the cluster that manifests may request.
	Injection Injection `json:"injection,omitzero"`
	// Namespace is the namespace of objects whose manifests name none.
	Namespace string `json:"namespace,omitempty"`
	// LeaveOutNewer leaves out the manifests with problems that are marked as IsNewer. A file whose template can't be
	// rendered is left out with or without it.
	LeaveOutNewer bool `json:"-"`
	// KeepText keeps the text of manifests, which Manifest.Places needs.
	KeepText bool `json:"-"`
}

// Load reads a release that can be applied. If the release has problems other than warnings, Load returns no payload,
// and an error with a line for each problem.
func Load(ctx context.Context, files fs.FS, options Options) (*Payload, []Problem, error) {
	payload, problems, err := Parse(ctx, files, options)
	if err != nil {
		return nil, nil, err
	}
	if err := Refuse(problems); err != nil {
		return nil, nil, err
	}
	return payload, problems, nil // only warnings are left
}

// hash returns the hash of the included manifests.
func hash(manifests []*Manifest) string {
	whole := sha256.New()
	for _, m := range manifests {
		whole.Write([]byte(path.Base(m.Path)))
		whole.Write(m.sum[:])
	}
	return "sha256:" + hex.EncodeToString(whole.Sum(nil))
}
