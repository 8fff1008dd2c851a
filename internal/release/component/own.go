package component

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Own returns the path in the component's folder of a file of the build, if it is one
// of the component's.
func (b *Build) Own(file string) (own string, isOwn bool) {
	own, isOwn = b.ownFiles[file]
	return own, isOwn
}

// Had reports whether a file of any release was one of the component's.
func (b *Build) Had(file string) bool {
	name := path.Base(file)
	return slices.Contains(b.names, graph.ParseName(name).Component) || b.fileNames[name]
}

// Home returns the path that a file of a release would have in the component's folder:
// without a number, if the component's files have none.
func (b *Build) Home(file string) string {
	name := path.Base(file)
	folder := "."
	for _, own := range sortedKeys(b.ownFiles) {
		if path.Base(own) == name {
			return b.ownFiles[own]
		}
	}
	for _, own := range sortedKeys(b.ownFiles) {
		folder = path.Dir(b.ownFiles[own])
		if !payload.IsManifest(own) || strings.HasPrefix(path.Base(b.ownFiles[own]), "0000_") {
			continue
		}
		if rest, isNumbered := strings.CutPrefix(name, "0000_50_"+b.names[0]+"_"); isNumbered && rest != "" {
			name = rest
		}
		break
	}
	return path.Join(folder, name)
}

// Notes returns notes about likely mistakes in how the component fits into the release.
// Before is the release without the component, and built the result.
func (b *Build) Notes(before, built *payload.Payload) []string {
	var notes []string
	name := strings.Join(b.names, ",")
	if len(b.replaced) == 0 {
		notes = append(notes, fmt.Sprintf("the release has no files of %s yet: all its files are new", name))
	}
	if len(b.sharedNames) > 0 {
		named := graph.ParseName(path.Base(b.sharedNames[0])).Component
		notes = append(notes, fmt.Sprintf("some files are called like those of %s, of which the release keeps %s "+
			"more, such as %s: if all these files are the component's, write --component %s,%s",
			named, printable.Count(len(b.sharedNames), "file"), path.Base(b.sharedNames[0]), name, named))
	} else if len(b.foreignFiles) > 0 {
		file := path.Base(b.foreignFiles[0])
		notes = append(notes, fmt.Sprintf("%s of the release gives way to the component's file of that name: if it "+
			"is another component's, rename yours, and else write --component %s,%s",
			file, name, graph.ParseName(file).Component))
	}
	if twice := b.duplicates(before, built); len(twice) > 0 {
		instead := "take them out of one of the two"
		if named := graph.ParseName(twice[0].File()).Component; named != "" {
			instead = fmt.Sprintf("if those files are the component's under another name, write --component %s,%s",
				name, named)
		}
		notes = append(notes,
			fmt.Sprintf("other files of the release have %s of the component too, such as %s in %s: %s",
				printable.Count(len(twice), "object"), twice[0].ID(), path.Base(twice[0].Path), instead))
	}
	return notes
}

// duplicates returns other manifests of the release with objects that the component has,
// too.
func (b *Build) duplicates(before, built *payload.Payload) []*payload.Manifest {
	own := map[kinds.ID]bool{}
	for _, m := range built.Manifests {
		if _, isOwn := b.ownFiles[m.Path]; isOwn && !m.IsTombstone() {
			own[m.ID()] = true
		}
	}
	for _, m := range before.Manifests {
		if slices.Contains(b.replaced, m.Path) { // not new, or a variant for other clusters
			delete(own, m.ID())
		}
	}
	return slices.DeleteFunc(slices.Clone(built.Manifests), func(m *payload.Manifest) bool {
		_, isOwn := b.ownFiles[m.Path]
		return isOwn || m.IsTombstone() || !own[m.ID()]
	})
}
