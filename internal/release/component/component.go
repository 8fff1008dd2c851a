// Package component replaces the manifests of one component in an existing release, as
// a build of the release would: files get numbers, and placeholders of images and
// versions are replaced by those of the release. So a component's pull request can be
// reviewed as part of a whole release before it is built.
//
// The files of a component are recognized by their names. The package reads no
// manifests, and writes nothing: the result is a read-only file system.
//
// Start with Into.
package component

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/source/overlay"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options are the names of the component, and the version of the build.
type Options struct {
	// Names are the component's names in file names. Files without a number get the
	// first name.
	Names []string
	// Version is the version of the built release. If it is empty, the release keeps its own.
	Version string
}

// A Build is a release with the manifests of a component in it.
type Build struct {
	FS       fs.FS
	Before   fs.FS             // the release without the component's manifests, with the version of the build
	Problems []payload.Problem // problems of the component's image-references, and of the images they refer to

	names        []string
	ownFiles     map[string]string // files of the component, by their names in the build; see reserve, too
	fileNames    map[string]bool   // the names of its files, now and before
	replaced     []string          // files of the release that were the component's
	foreignFiles []string          // replaced files with the name of another component
	sharedNames  []string          // other files with a component name that some of the component's files have, too
}

// Into puts a component's files into a release.
func Into(release, component fs.FS, options Options) (*Build, error) {
	if err := CheckNames(options.Names); err != nil {
		return nil, err
	}
	files, err := ReadFiles(component)
	if err != nil {
		return nil, err
	}
	b := &Build{names: options.Names, ownFiles: map[string]string{}, fileNames: map[string]bool{}}
	home := "." // where the release has its manifests
	if _, err := fs.Stat(release, payload.ReleaseFolder); err == nil {
		home = payload.ReleaseFolder
	}
	b.Before = release
	if options.Version != "" {
		b.Before = withVersion(release, home, options.Version)
	}
	layer := overlay.On(b.Before)
	b.FS = layer
	if err := b.replaceFiles(release, files, home, layer); err != nil {
		return nil, err
	}
	names := sortedKeys(b.ownFiles)
	rewriting := b.imageReplacements(release, home, options.Version, files)
	for _, name := range names {
		layer.Put(name, b.rewrite(rewriting, name, files[b.ownFiles[name]]))
	}
	return b, nil
}

// CheckNames returns an error for a component's name that can't be part of a file name,
// with the valid characters.
func CheckNames(names []string) error {
	for _, name := range names {
		switch {
		case name == "":
			return fmt.Errorf("one of its names is empty: write a name, or several with one comma between two, as in " +
				"web,web-server")
		case graph.ParseName("0000_50_"+name+"_x").Component != name:
			return fmt.Errorf("%q can't be the name of a component: write letters and digits, with single dashes "+
				"between them, as in web-server", name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("a component needs a name")
	}
	return nil
}

// ReadFiles reads the files of a component, by their paths: those of the folder itself, or of manifests/ in
// it, as in the images of operators. Files that are neither manifests nor image-references have no content.
func ReadFiles(component fs.FS) (map[string][]byte, error) {
	if _, err := fs.Stat(component, payload.ReleaseFolder); err == nil {
		return nil, fmt.Errorf("it has %s/, so it is a whole release: name the folder of one component's manifests",
			payload.ReleaseFolder)
	}
	for _, folder := range []string{".", payload.TemplatesFolder} {
		entries, err := fs.ReadDir(component, folder)
		if err != nil && folder == "." {
			return nil, err
		}
		files := map[string][]byte{}
		for _, entry := range entries {
			name := path.Join(folder, entry.Name())
			if entry.IsDir() {
				continue
			}
			files[name] = nil
			if !payload.IsManifest(name) && entry.Name() != payload.ImagesFile {
				continue // its content is not read: only its existence may be reported
			}
			if files[name], err = fs.ReadFile(component, name); err != nil {
				return nil, err
			}
		}
		if slices.ContainsFunc(sortedKeys(files), payload.IsManifest) {
			return files, nil
		}
	}
	return nil, fmt.Errorf("it has no manifest: a manifest is a .yaml, .yml or .json file")
}

// ReadReferences returns the component's own image-references: the placeholders in its manifests. Without the file,
// they are empty.
func ReadReferences(files map[string][]byte) (file string, found *payload.References, err error) {
	for _, name := range sortedKeys(files) {
		if path.Base(name) == payload.ImagesFile {
			found, err = payload.ParseReferences(files[name])
			return name, found, err
		}
	}
	return "", &payload.References{}, nil
}

// replaceFiles removes the component's old files from the release, and finds paths for the new.
func (b *Build) replaceFiles(release fs.FS, files map[string][]byte, home string, layer *overlay.FS) error {
	inBuild := map[string]string{} // files of the component, by their names in the build
	others := map[string]bool{}    // other components in the names of its files
	for _, file := range sortedKeys(files) {
		if name := path.Base(file); name == payload.ImagesFile || name == payload.MetadataFile ||
			name == payload.SettingsFile {
			continue // the metadata files of the release are used
		}
		name := path.Base(file)
		if _, err := fs.Stat(release, name); err != nil || home != "." { // files of a plain folder keep their names
			name = uniqueName(name, b.names[0], inBuild)
		}
		inBuild[name] = file
		if named := graph.ParseName(name).Component; !slices.Contains(b.names, named) {
			others[named] = true
		}
	}
	folders := map[string]string{} // folders of files that the release already has
	for _, folder := range []string{home, payload.TemplatesFolder} {
		entries, err := fs.ReadDir(release, folder)
		if folder == home && err != nil {
			return err
		}
		if folder == payload.TemplatesFolder && home == "." {
			break // the folder is not read in a plain release
		}
		for _, entry := range entries {
			name, full := entry.Name(), path.Join(folder, entry.Name())
			_, isSame := inBuild[name]
			component := graph.ParseName(name).Component
			switch {
			case entry.IsDir() || !payload.IsManifest(name):
			case isSame || slices.Contains(b.names, component):
				folders[name] = folder
				layer.Remove(full)
				b.fileNames[name] = true
				b.replaced = append(b.replaced, full)
				if component != "" && !slices.Contains(b.names, component) {
					b.foreignFiles = append(b.foreignFiles, full)
				}
			case component != "" && others[component]:
				b.sharedNames = append(b.sharedNames, full)
			}
		}
	}
	for name, file := range inBuild {
		b.fileNames[name] = true
		b.ownFiles[path.Join(cmp.Or(folders[name], home), name)] = file
	}
	return nil
}

// NumberedName returns the name of a component's manifest in a build of a release. Other files keep their names, and
// are not read.
func NumberedName(file, component string) string {
	if !payload.IsManifest(file) || strings.HasPrefix(file, "0000_") {
		return file
	}
	return "0000_50_" + component + "_" + file
}

// uniqueName returns the numbered name of a manifest which no other file of the component has.
func uniqueName(file, component string, taken map[string]string) string {
	name := NumberedName(file, component)
	ending := path.Ext(name)
	first := strings.TrimSuffix(name, ending)
	for count := 2; taken[name] != ""; count++ {
		name = fmt.Sprintf("%s_%d%s", first, count, ending)
	}
	return name
}

// withVersion returns a release with another version in its metadata files. Files that
// can't be read are left alone: their errors are reported when the release is loaded.
func withVersion(release fs.FS, home, version string) fs.FS {
	layer := overlay.On(release)
	set := func(name string, change func(fields map[string]any)) {
		text, err := fs.ReadFile(release, path.Join(home, name))
		if err != nil {
			return
		}
		var fields map[string]any
		if err := yaml.Unmarshal(text, &fields); err != nil || fields == nil {
			return
		}
		change(fields)
		if changed, err := json.Marshal(fields); err == nil {
			layer.Put(path.Join(home, name), changed)
		}
	}
	set(payload.MetadataFile, func(fields map[string]any) { fields["version"] = version })
	set(payload.ImagesFile, func(fields map[string]any) {
		if metadata, isMapping := fields["metadata"].(map[string]any); isMapping {
			metadata["name"] = version
		}
	})
	return layer
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }

// imageReplacements returns the replacements of a build in the component's manifests; nil if the
// release has no image-references.
func (b *Build) imageReplacements(release fs.FS, home, version string, files map[string][]byte) *payload.Rewriting {
	text, err := fs.ReadFile(release, path.Join(home, payload.ImagesFile))
	if err != nil {
		return nil
	}
	whole, err := payload.ParseReferences(text)
	if err != nil {
		return nil // the error is reported when the release is loaded
	}
	whole.Name = cmp.Or(version, whole.Name)
	file, own, err := ReadReferences(files)
	wrong := func(cause payload.Cause, format string, args ...any) {
		b.Problems = append(b.Problems,
			payload.Problem{File: b.reserve(home, file), Cause: cause, Message: fmt.Sprintf(format, args...)})
	}
	if err != nil {
		wrong(payload.Mislabelled, "%s", err)
		return nil
	}
	rewriting, err := payload.NewRewriting(whole, own)
	if err != nil {
		wrong(payload.Mislabelled, "%s", err)
		return nil
	}
	for _, name := range rewriting.Missing {
		wrong(payload.Suspicious,
			"the release has no image %q yet, which %s stands for: correct the name, unless the image is new", name,
			own.Images[name])
	}
	return rewriting
}

// reserve returns a name in the build for the component's image-references, for use in
// problems. The build does not contain the file: the release has its own.
func (b *Build) reserve(home, file string) string {
	name := path.Join(home, "0000_50_"+b.names[0]+"_"+path.Base(file))
	b.ownFiles[name] = file
	return name
}

// rewrite returns the text of a manifest in the build.
func (b *Build) rewrite(rewriting *payload.Rewriting, file string, text []byte) []byte {
	if rewriting == nil || !payload.IsManifest(file) {
		return text
	}
	text, unknown, err := rewriting.Apply(text)
	if err != nil {
		b.Problems = append(b.Problems, payload.Problem{File: file, Cause: payload.Unreadable, Message: err.Error()})
	}
	for _, part := range unknown {
		b.Problems = append(b.Problems,
			payload.Problem{File: file, Cause: payload.Mislabelled, Message: payload.UnknownPart(part)})
	}
	return text
}
