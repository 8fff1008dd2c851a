// Package payload reads the files of a release into an immutable value: its
// metadata, its images, and its manifests in the order of their file names, with
// templates rendered, images substituted and filters applied. Which manifests
// take part is decided by OpenShift's own library.
//
// It does not order them beyond their names (that is the graph's work), compares
// no two releases, and talks to no cluster.
//
// Load is the call to start from: it gives a payload that can be applied, or
// refuses with every problem there is. Parse gives what could be read and the
// problems beside it, for those who want to look at a broken payload too.
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

// DefaultName is that of a release that says its version itself, unless it is named.
const DefaultName = "default"

// A Payload is a release's files, loaded. It must not be changed.
type Payload struct {
	Name     string            // "default", unless it was named; "" for a plain folder that was not named
	Version  string            // "" when neither the release nor the options say it
	Metadata Metadata          // empty for a plain folder of manifests
	Images   map[string]string // pull specs by name, of image-references
	Filter   Filter            // what chose the manifests

	Manifests []*Manifest // in the order of their files
	Excluded  []Exclusion // what the filter left out, in the same order
	Files     []File      // that were read, in order
	Ignored   []string    // files beside them that were not
	Hash      string      // of all that takes part: the same files give the same hash
	Content   string      // the hash of the files and images themselves, whatever is filtered out or rendered
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

// A File is one with manifests, or one that ought to have some.
type File struct {
	Path        string
	Documents   int    // that hold something
	Empty       []int  // the lines where documents begin that hold nothing
	Comments    []byte // comments before the first "---", if texts are kept
	UnendedLine int    // the last line, if it does not end with a line break and there are manifests; 0 if it does
}

// Options say how to read a release.
type Options struct {
	Filter Filter
	// Name tells several releases of one cluster apart.
	Name string
	// Version is the release's when it does not say itself.
	Version string
	// ReleaseImage is where the release came from, for the templates of manifests/.
	ReleaseImage string
	// Release is what a release refers to. With it the files are taken for a
	// component's, before it is released: its own image-references says which images
	// stand in its manifests for which of the release.
	Release *References
	// Injection has the settings of the cluster that manifests may ask for.
	Injection Injection
	// KeepText keeps the text of manifests, which gives fields their lines.
	KeepText bool
}

// Load reads a release that can be applied. If anything is wrong with it, the
// error has a line for each problem, and there is no payload.
func Load(ctx context.Context, files fs.FS, options Options) (*Payload, []Problem, error) {
	payload, problems, err := Parse(ctx, files, options)
	if err != nil {
		return nil, nil, err
	}
	if err := Refuse(problems); err != nil {
		return nil, nil, err
	}
	return payload, problems, nil // what is left are warnings
}

// Parse reads what can be read of a release, and returns all problems beside it.
// The error is for a context that ended, never for what the files hold.
func Parse(ctx context.Context, files fs.FS, options Options) (*Payload, []Problem, error) {
	r := &reader{files: files, options: options, budget: newBudget(), payload: &Payload{Name: options.Name, Version: options.Version}}
	if err := r.read(ctx); err != nil {
		return nil, nil, err
	}
	return r.payload, r.problems, nil
}

// hash is one of all manifests that take part.
func hash(manifests []*Manifest) string {
	whole := sha256.New()
	for _, m := range manifests {
		whole.Write([]byte(m.File()))
		whole.Write(m.sum[:])
	}
	return "sha256:" + hex.EncodeToString(whole.Sum(nil))
}
