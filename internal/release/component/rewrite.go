package component

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/runlevel/runlevel/pkg/payload"
)

// rewriting returns the replacements of a build in the component's manifests; nil if the
// component or the release has no image-references.
func (b *Build) rewriting(release fs.FS, home, version string, files map[string][]byte) *payload.Rewriting {
	file := slices.IndexFunc(sortedKeys(files), func(file string) bool { return path.Base(file) == payload.ImagesFile })
	if file < 0 {
		return nil
	}
	name := sortedKeys(files)[file]
	text, err := fs.ReadFile(release, path.Join(home, payload.ImagesFile))
	if err != nil {
		return nil
	}
	whole, err := payload.ParseReferences(text)
	if err != nil {
		return nil // the error is reported when the release is loaded
	}
	whole.Name = cmp.Or(version, whole.Name)
	wrong := func(cause payload.Cause, format string, args ...any) {
		b.Problems = append(b.Problems,
			payload.Problem{File: b.reserve(home, name), Cause: cause, Message: fmt.Sprintf(format, args...)})
	}
	own, err := payload.ParseReferences(files[name])
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
	b.own[name] = file
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
