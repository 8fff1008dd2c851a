// Package component puts the manifests of one component into a release that is there
// already, in the place of those that it had, as a build of the release would: files
// get numbers, and what stands for images and versions is replaced by those of the
// release. So a component's pull request can be looked at as part of a whole release
// before there is one.
//
// Which files of a release are a component's, only their names say. It reads no
// manifests, and writes nothing: what comes out is a file system to read.
//
// Into is the call to start from.
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

// Options say which component it is, and what is built.
type Options struct {
	// Names are those that the component has in the names of files. Files without a
	// number get the first of them.
	Names []string
	// Version is that of the release that is built. Without it the release keeps its own.
	Version string
}

// A Build is a release with the manifests of a component in it.
type Build struct {
	FS       fs.FS
	Before   fs.FS             // the release without them, of the version that is built
	Problems []payload.Problem // of the component's image-references, and of what they stand for

	names    []string
	own      map[string]string // files of the component, by what they are called in the build; see reserve, too
	called   map[string]bool   // the names of its files, now and before
	replaced []string          // files of the release that were the component's
	taken    []string          // of these, files that are called for another component
	kept     []string          // files that were not, and are called like some of the component's
}

// Into puts a component's files into a release.
func Into(release, component fs.FS, options Options) (*Build, error) {
	if err := CheckNames(options.Names); err != nil {
		return nil, err
	}
	files, err := read(component)
	if err != nil {
		return nil, err
	}
	b := &Build{names: options.Names, own: map[string]string{}, called: map[string]bool{}}
	home := "." // where the release has its manifests
	if _, err := fs.Stat(release, payload.ReleaseFolder); err == nil {
		home = payload.ReleaseFolder
	}
	b.Before = release
	if options.Version != "" {
		b.Before = relabelled(release, home, options.Version)
	}
	layer := overlay.On(b.Before)
	b.FS = layer
	if err := b.take(release, files, home, layer); err != nil {
		return nil, err
	}
	names := sortedKeys(b.own)
	rewriting := b.rewriting(release, home, options.Version, files)
	for _, name := range names {
		layer.Put(name, b.rewrite(rewriting, name, files[b.own[name]]))
	}
	return b, nil
}

// CheckNames says which of a component's names can't be in the names of files, and what
// can be.
func CheckNames(names []string) error {
	for _, name := range names {
		switch {
		case name == "":
			return fmt.Errorf("one of its names is empty: write a name, or several with one comma between two, as in web,web-server")
		case graph.ParseName("0000_50_"+name+"_x").Component != name:
			return fmt.Errorf("%q can't be the name of a component: write letters and digits, with single dashes between them, as in web-server", name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("a component needs a name")
	}
	return nil
}

// read reads the files of a component: those of the folder itself, or of manifests/ in
// it, where the images of operators have them.
func read(component fs.FS) (map[string][]byte, error) {
	if _, err := fs.Stat(component, payload.ReleaseFolder); err == nil {
		return nil, fmt.Errorf("it has %s/, so it is a whole release: name the folder of one component's manifests", payload.ReleaseFolder)
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
				continue // whatever it holds: only that it is there may be told
			}
			if files[name], err = fs.ReadFile(component, name); err != nil {
				return nil, err
			}
		}
		if slices.ContainsFunc(sortedKeys(files), payload.IsManifest) {
			return files, nil
		}
	}
	return nil, fmt.Errorf("there is no manifest in it: a manifest is a .yaml, .yml or .json file")
}

// take takes the component's old files out of the release, and finds places for the new.
func (b *Build) take(release fs.FS, files map[string][]byte, home string, layer *overlay.FS) error {
	inBuild := map[string]string{} // files of the component, by their names in the build
	others := map[string]bool{}    // components that some of them are named for, beside its own names
	for _, file := range sortedKeys(files) {
		if name := path.Base(file); name == payload.ImagesFile || name == payload.MetadataFile {
			continue
		}
		name := path.Base(file)
		if _, err := fs.Stat(release, name); err != nil || home != "." { // in a plain folder it has its place already
			name = numbered(name, b.names[0], inBuild)
		}
		inBuild[name] = file
		if named := graph.ParseName(name).Component; !slices.Contains(b.names, named) {
			others[named] = true
		}
	}
	folders := map[string]string{} // of those that the release has already
	for _, folder := range []string{home, payload.TemplatesFolder} {
		entries, err := fs.ReadDir(release, folder)
		if folder == home && err != nil {
			return err
		}
		if folder == payload.TemplatesFolder && home == "." {
			break // it is nothing but a folder that is not read
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
				b.called[name] = true
				b.replaced = append(b.replaced, full)
				if component != "" && !slices.Contains(b.names, component) {
					b.taken = append(b.taken, full)
				}
			case component != "" && others[component]:
				b.kept = append(b.kept, full)
			}
		}
	}
	for name, file := range inBuild {
		b.called[name] = true
		b.own[path.Join(cmp.Or(folders[name], home), name)] = file
	}
	return nil
}

// numbered is what a build of a release calls a manifest of a component. What is no
// manifest keeps its name, and is not read.
func numbered(file, component string, taken map[string]string) string {
	if !payload.IsManifest(file) {
		return file
	}
	if !strings.HasPrefix(file, "0000_") {
		file = "0000_50_" + component + "_" + file
	}
	name := file
	for count := 2; taken[name] != ""; count++ {
		ending := path.Ext(file)
		name = fmt.Sprintf("%s_%d%s", strings.TrimSuffix(file, ending), count, ending)
	}
	return name
}

// relabelled is a release whose own files say that it is another version. What can't be
// read there is told when they are read.
func relabelled(release fs.FS, home, version string) fs.FS {
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

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
