package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

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
	for _, read := range b.components {
		rewriting, err := b.rewritingFor(read, whole)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		folder := read.folderInRelease()
		for _, name := range sortedKeys(read.files) {
			if path.Base(name) == payload.ImagesFile {
				continue
			}
			source, numbered := read.pathOf(name), component.NumberedName(path.Base(name), read.Name)
			inRelease := folder + "/" + numbered
			if strings.Contains(numbered, `\`) {
				problems = append(problems, problemAt(source, 0, 0,
					"its name has a backslash, and readers refuse a release with one: rename it"))
			} else if other := b.sources[inRelease]; other != "" {
				problems = append(problems,
					problemAt(source, 0, 0, "in the release it is %s, as is %s: rename one", numbered, other))
			}
			b.sources[inRelease] = source
			text, unfit := rewrite(rewriting, source, read.files[name])
			problems = append(problems, unfit...)
			b.files = append(b.files, txtar.File{Name: inRelease, Data: text})
		}
	}
	return problems
}

// rewritingFor returns the replacements in the manifests of a component: its placeholders, and the images of
// release.yaml.
func (b *builder) rewritingFor(read *componentFiles, whole *payload.References) (*payload.Rewriting, error) {
	file, own, err := component.ReadReferences(read.files)
	if err != nil {
		return nil, problemAt(read.pathOf(file), 0, 0, "%w", err)
	}
	for _, name := range sortedKeys(own.Images) {
		if placeholder := own.Images[name]; !strings.Contains(placeholder, "/") {
			return nil, problemAt(read.pathOf(file), 0, 0, "%s stands for the image %q, and may also be "+
				"another word of a manifest: write a placeholder such as placeholder.example/%[1]s", placeholder, name)
		}
	}
	rewriting, err := payload.NewRewriting(whole, own)
	if err != nil {
		return nil, problemAt(read.pathOf(file), 0, 0, "%w", err)
	}
	if missing := rewriting.Missing; len(missing) > 0 {
		return nil, problemAt(read.pathOf(file), 0, 0,
			"the release has no image %q, which %s stands for: "+
				"add it under images of %s", missing[0], own.Images[missing[0]], b.config.path)
	}
	rewriting.ReportsAllParts = true
	for _, image := range b.images {
		rewriting.Replace(image.From, image.Image)
	}
	return rewriting, nil
}

// rewrite replaces images and versions in the values of a manifest. Its comments and keys stay as they are.
func rewrite(rewriting *payload.Rewriting, file string, text []byte) ([]byte, []error) {
	if !rewriting.MayChange(text) {
		return text, nil
	}
	values, err := yamltext.Values(text)
	var syntax *yamltext.TextError
	if errors.As(err, &syntax) {
		return nil, []error{problemAt(file, syntax.Line, syntax.Column, "%s", syntax.Message)}
	}
	var out []byte
	var problems []error
	copied := 0
	for _, value := range values {
		old := text[value.Start:value.End]
		if value.Unescaped != "" {
			old = []byte(value.Unescaped)
		}
		changed, unknown, err := rewriting.Apply(old)
		line := 1 + bytes.Count(text[:value.Start], []byte("\n"))
		if err != nil {
			return nil, []error{problemAt(file, line, 0, "%w", err)}
		}
		for _, part := range unknown {
			problems = append(problems, problemAt(file, line, 0, "%s", payload.UnknownPart(part)))
		}
		if bytes.Equal(changed, old) {
			continue
		}
		if value.Unescaped != "" {
			changed = quote(changed)
		}
		out = append(append(out, text[copied:value.Start]...), changed...)
		copied = value.End
	}
	return append(out, text[copied:]...), problems
}

// quote returns a value for between double quotes, for JSON and YAML.
func quote(value []byte) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(string(value)) // a text can always be encoded
	text := bytes.TrimSpace(out.Bytes())
	return text[1 : len(text)-1]
}
