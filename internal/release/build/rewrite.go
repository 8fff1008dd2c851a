package build

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/release/component"
	"github.com/runlevel/runlevel/internal/text/yamltext"
	"github.com/runlevel/runlevel/pkg/payload"
)

// rewriteAll numbers the manifests of all components, and puts images and versions into them.
func (b *builder) rewriteAll() []error {
	references, err := b.imageReferences()
	if err != nil {
		return []error{err}
	}
	whole, err := payload.ParseReferences(references)
	if err != nil {
		return []error{err}
	}
	slices.SortFunc(b.components, func(x, y *componentFiles) int { return strings.Compare(x.Name, y.Name) })
	var problems []error
	taken := map[string]string{} // sources by names in the release
	for _, read := range b.components {
		rewriting, needles, err := b.rewritingFor(read, whole)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, name := range sortedKeys(read.files) {
			if path.Base(name) == payload.ImagesFile {
				continue
			}
			file := builtFile{
				name: component.NumberedName(path.Base(name), read.Name), source: read.pathOf(b.config, name),
			}
			if other := taken[file.name]; other != "" {
				problems = append(problems,
					problemAt(file.source, 0, 0, "in the release it is %s, as is %s: rename one",
						file.name, other))
			}
			taken[file.name] = file.source
			var unfit []error
			file.text, unfit = rewrite(rewriting, needles, file.source, read.files[name])
			problems = append(problems, unfit...)
			b.files = append(b.files, file)
		}
	}
	return problems
}

// rewritingFor returns the replacements in the manifests of a component, and the texts without which a manifest has
// nothing to replace. The images of release.yaml replace themselves, unless the component has placeholders for them.
func (b *builder) rewritingFor(read *componentFiles, whole *payload.References) (*payload.Rewriting, [][]byte, error) {
	file, own, err := read.references()
	if err != nil {
		return nil, nil, problemAt(read.pathOf(b.config, file), 0, 0, "%w", err)
	}
	if own == nil {
		own = &payload.References{Images: map[string]string{}}
		for _, name := range sortedKeys(b.images) {
			if from := b.images[name].From; !slices.Contains(slices.Collect(maps.Values(own.Images)), from) {
				own.Images[name] = from
			}
		}
	}
	needles := [][]byte{[]byte("0.0.1-snapshot")}
	for _, placeholder := range own.Images {
		needles = append(needles, []byte(payload.RepositoryOf(placeholder)))
	}
	for _, image := range b.images {
		needles = append(needles, []byte(payload.RepositoryOf(image.From)))
	}
	rewriting, err := payload.NewRewriting(whole, own)
	if err != nil {
		return nil, nil, problemAt(read.pathOf(b.config, file), 0, 0, "%w", err)
	}
	if missing := rewriting.Missing; len(missing) > 0 {
		return nil, nil, problemAt(read.pathOf(b.config, file), 0, 0,
			"the release has no image %q, which %s stands for: "+
				"add it under images of %s", missing[0], own.Images[missing[0]], b.config.path)
	}
	return rewriting, needles, nil
}

// rewrite replaces images and versions in the values of a manifest. Its comments and keys stay as they are.
func rewrite(rewriting *payload.Rewriting, needles [][]byte, file string, text []byte) ([]byte, []error) {
	if !slices.ContainsFunc(needles, func(needle []byte) bool { return bytes.Contains(text, needle) }) {
		return text, nil
	}
	values, err := yamltext.Values(text)
	if err != nil && utilyaml.IsJSONBuffer(text) { // some JSON is not YAML
		values, err = []yamltext.Span{{End: len(text)}}, nil
	}
	var syntax *yamltext.TextError
	if errors.As(err, &syntax) {
		return nil, []error{problemAt(file, syntax.Line, syntax.Column, "%s", syntax.Message)}
	}
	var out []byte
	var problems []error
	copied := 0
	for _, value := range values {
		changed, unknown, err := rewriting.Apply(text[value.Start:value.End])
		line := 1 + bytes.Count(text[:value.Start], []byte("\n"))
		if err != nil {
			return nil, []error{problemAt(file, line, 0, "%w", err)}
		}
		for _, part := range unknown {
			problems = append(problems, problemAt(file, line, 0, "%s", payload.UnknownPart(part)))
		}
		out = append(append(out, text[copied:value.Start]...), changed...)
		copied = value.End
	}
	return append(out, text[copied:]...), problems
}
