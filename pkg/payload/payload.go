// Package payload reads the files of a release into an immutable value: its
// metadata, its images, and its manifests in the order of their file names, with
// templates rendered, images substituted and filters applied. OpenShift's own
// library decides which manifests are included.
//
// It does not order them beyond their names (package graph does), does not compare
// releases, and does not connect to a cluster.
//
// Load is the call to start from: it returns a payload that can be applied, or
// an error with all problems. Parse returns what could be read with the
// problems, for callers that inspect a broken payload, too.
package payload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// DefaultName is the name of a release with release-metadata, unless it is named.
const DefaultName = "default"

// A Payload is a release's files, loaded. It must not be changed.
type Payload struct {
	Name     string            // "default", unless it was named; "" for a plain folder that was not named
	Version  string            // "" if neither the release nor the options have it
	Metadata Metadata          // empty for a plain folder of manifests
	Images   map[string]string // pull specs by name, of image-references
	Filter   Filter            // which selected the manifests

	Manifests []*Manifest // in the order of their files
	Excluded  []Exclusion // by the filter, in the same order
	Files     []File      // that were read, in order
	Ignored   []string    // files beside them that were not read
	Hash      string      // of the included manifests: the same files give the same hash
	Content   string      // the hash of the files and images themselves, before filtering and rendering
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
	Documents   int    // that are not empty
	Empty       []int  // the lines where empty documents begin
	Comments    []byte // comments before the first "---", if texts are kept
	UnendedLine int    // the last line, if it does not end with a line break and there are manifests; 0 if it does
}

// Options are the options of Load and Parse.
type Options struct {
	Filter Filter
	// Name distinguishes several releases of one cluster.
	Name string
	// Version is the version of a release that has no release-metadata.
	Version string
	// ReleaseImage is the image of the release, for the templates of manifests/.
	ReleaseImage string
	// Release has the references of a release. With it the files are read as a
	// component's, before it is released: its own image-references has the placeholders
	// in its manifests for images of the release.
	Release *References
	// Injection has the settings of the cluster that manifests may request.
	Injection Injection
	// KeepText keeps the text of manifests, which Manifest.Places needs.
	KeepText bool
}

// Load reads a release that can be applied. If it has problems other than warnings, the
// error has a line for each, and there is no payload.
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
		whole.Write([]byte(m.File()))
		whole.Write(m.sum[:])
	}
	return "sha256:" + hex.EncodeToString(whole.Sum(nil))
}
