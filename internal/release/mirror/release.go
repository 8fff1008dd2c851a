package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Release is a release to mirror.
type Release struct {
	image      reference // by digest; zero for a release outside of registries
	tag        string
	images     []reference // the images that it names, sorted
	stores     []string    // signature stores that it names
	signatures [][]byte    // OpenPGP signatures
}

// Read reads a release and the names of its images, or those of all releases in a folder that was mirrored to.
func Read(ctx context.Context, ref string, options source.Options) ([]*Release, error) {
	if isMirror(ref) {
		return readFolder(ctx, ref, options)
	}
	release, err := readAs(ctx, ref, "", options)
	return []*Release{release}, err
}

// isMirror reports whether a source is a folder that was mirrored to.
func isMirror(ref string) bool {
	_, err := os.Stat(filepath.Join(ref, contentsFile))
	return err == nil
}

// readAs reads a release. If it is on disk, image is its name in the registry from which it was copied, or "".
func readAs(ctx context.Context, ref, image string, options source.Options) (_ *Release, err error) {
	opened, err := source.Open(ctx, ref, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if image != "" {
		opened.Image = image
	}
	read, problems, err := loader.ParseOpened(ctx, opened, loader.Options{Source: options})
	if err == nil {
		err = payload.Refuse(problems)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	policy, err := signature.PolicyOf(read)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	r := &Release{tag: tagOf(ref, read.Version)}
	if policy != nil {
		r.stores = policy.Stores()
	}
	if opened.Image != "" {
		if r.image, err = parseReference(opened.Image); err != nil {
			return nil, err
		}
	}
	return r, r.addImages(namesOf(read))
}

// addImages adds images by their names, and fails for names that no container runtime would accept.
func (r *Release) addImages(names map[string]string) error {
	var invalid []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		image, err := parseReference(name)
		switch {
		case err != nil:
			invalid = append(invalid, fmt.Sprintf("%s: %v", names[name], err))
		case image != r.image && !slices.Contains(r.images, image):
			r.images = append(r.images, image)
		}
	}
	if len(invalid) > 0 {
		return fmt.Errorf("images that can't be mirrored: %s", printable.Few(invalid, maxNamed))
	}
	return nil
}

// maxNamed limits the invalid images in a message.
const maxNamed = 10

// tagPattern matches a tag of a registry.
var tagPattern = regexp.MustCompile(`^\w[\w.-]{0,127}$`)

// tagOf returns the tag for a release at the destination: that of its name, or its version; "" for neither.
func tagOf(ref, version string) string {
	if named, err := parseReference(ref); err == nil && named.isTag() && strings.HasSuffix(ref, ":"+named.identifier) {
		return named.identifier
	}
	if tag := strings.ReplaceAll(version, "+", "_"); tagPattern.MatchString(tag) {
		return tag
	}
	return ""
}

// collectSignatures reads the OpenPGP signatures of the release from stores.
func (r *Release) collectSignatures(ctx context.Context, stores []string) error {
	var failed error
	for _, store := range stores {
		found, err := signature.Collect(ctx, store, r.image.identifier)
		failed = errors.Join(failed, err)
		for _, text := range found {
			if !slices.ContainsFunc(r.signatures, func(known []byte) bool { return string(known) == string(text) }) {
				r.signatures = append(r.signatures, text)
			}
		}
	}
	return failed
}

// The names in a folder of mirrored releases, beside those of an image layout.
const (
	contentsFile     = "runlevel-mirror.json" // a release is added when it is complete
	SignaturesFolder = "signatures"           // a signature store
)

// A folderEntry is a release in a folder.
type folderEntry struct {
	Image string `json:"image"`
	Tag   string `json:"tag,omitempty"`
}

// readContents returns the releases of a folder.
func readContents(folder string) (entries []folderEntry, err error) {
	text, err := os.ReadFile(filepath.Join(folder, contentsFile))
	if err != nil {
		return nil, err
	}
	var contents struct {
		Releases []folderEntry `json:"releases"`
	}
	if err := json.Unmarshal(text, &contents); err != nil {
		return nil, fmt.Errorf("%s: %w", contentsFile, err)
	}
	return contents.Releases, nil
}

func writeEntries(folder string, entries []folderEntry) error {
	text, err := json.MarshalIndent(map[string]any{"releases": entries}, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(folder, contentsFile), append(text, '\n'))
}

// writeContents adds a release as the last one to those of a folder, with its signatures.
func writeContents(folder string, release *Release) error {
	if err := WriteFiles(folder, signatureFiles(release)); err != nil {
		return err
	}
	entries, err := readContents(folder)
	if err != nil {
		return err
	}
	entry := folderEntry{release.image.String(), release.tag}
	entries = slices.DeleteFunc(entries, func(other folderEntry) bool { return other == entry })
	for i, other := range entries {
		name, _, _ := strings.Cut(other.Image, "@")
		if other.Tag == entry.Tag && name == release.image.repository { // the tag names another release now
			entries[i].Tag = ""
		}
	}
	return writeEntries(folder, append(entries, entry))
}

// WriteFiles writes files below a folder.
func WriteFiles(folder string, files []File) error {
	for _, file := range files {
		if err := writeFile(filepath.Join(folder, filepath.FromSlash(file.Name)), file.Text); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a whole file, or none.
func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished := path + ".new"
	if err := os.WriteFile(unfinished, text, 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// readFolder reads the releases of a folder.
func readFolder(ctx context.Context, folder string, options source.Options) (releases []*Release, err error) {
	entries, err := readContents(folder)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("the copy to this folder is not complete: mirror to it again")
	}
	for _, entry := range entries {
		image, err := parseReference(entry.Image)
		if err != nil || image.isTag() || entry.Tag != "" && !tagPattern.MatchString(entry.Tag) {
			return nil, fmt.Errorf("%s: %q with tag %q is not an image by digest", contentsFile, entry.Image, entry.Tag)
		}
		release, err := readAs(ctx, folder+"@"+image.identifier, entry.Image, options)
		if err != nil {
			return nil, err
		}
		release.tag, release.stores = entry.Tag, []string{filepath.Join(folder, SignaturesFolder)}
		releases = append(releases, release)
	}
	return releases, nil
}
