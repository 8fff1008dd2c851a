package payload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// The files of a release beside its manifests.
const (
	MetadataFile = "release-metadata"
	ImagesFile   = "image-references"
	SettingsFile = "runlevel.yaml" // package settings reads this file
)

const metadataKind = "cincinnati-metadata-v0"

// Metadata is the content of release-metadata.
type Metadata struct {
	Kind     string         `json:"kind"`
	Version  string         `json:"version"`
	Previous []string       `json:"previous,omitempty"` // versions it may follow
	Next     []string       `json:"next,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"` // anything else, such as "url"
}

// readMetadata reads release-metadata and image-references of a folder. They may
// be missing where they are optional.
func (r *reader) readMetadata(folder string, optional bool) {
	metadataPath, imagesPath := path.Join(folder, MetadataFile), path.Join(folder, ImagesFile)
	r.imagesPath = imagesPath
	if text, ok := r.readFile(metadataPath, optional); ok {
		r.payload.Metadata = r.parseMetadata(metadataPath, text)
		r.payload.Version = r.payload.Metadata.Version
		r.payload.Name = cmp.Or(r.payload.Name, DefaultName)
		if requested := r.options.Version; requested != "" && requested != r.payload.Version {
			r.reportMislabelled(metadataPath, "the release is version %q, and %q was asked for", r.payload.Version,
				requested)
		}
	}
	release := r.options.Release
	if release != nil {
		r.payload.Images = release.Images
	}
	text, ok := r.readFile(imagesPath, optional)
	if !ok && optional && release != nil {
		r.report(Problem{
			File:    imagesPath,
			Cause:   Suspicious,
			Message: "it is missing, so nothing stands for the images of the release",
		})
	}
	if !ok {
		return
	}
	found, err := ParseReferences(text)
	if err != nil {
		problem := Problem{File: imagesPath, Cause: Mislabelled, Message: err.Error()}
		var syntax *yamltext.TextError
		if errors.As(err, &syntax) {
			problem.Line = syntax.Line
		}
		r.report(problem)
		return
	}
	if release != nil {
		r.readPlaceholders(release, found)
		return
	}
	r.payload.Images, r.isBuilt = found.Images, !optional && found.Created != ""
	switch declared := r.payload.Metadata.Version; {
	case declared != "" && found.Name != declared:
		r.reportMislabelled(imagesPath,
			"this is for version %q, but %s has version %q: both must come from the same release",
			found.Name, MetadataFile, declared)
	case declared == "" && r.options.Version != "" && found.Name != r.options.Version:
		r.reportMislabelled(imagesPath, "this is for version %q, and %q was asked for", found.Name, r.options.Version)
	case declared == "" && !IsVersion(found.Name):
		r.placeholders = placeholdersOf(found)
	}
}

// placeholdersOf returns the images of a component's references that a release replaces: all but those with a digest.
func placeholdersOf(component *References) map[string]string {
	placeholders := maps.Clone(component.Images)
	maps.DeleteFunc(placeholders, func(_, spec string) bool { return strings.Contains(spec, "@") })
	return placeholders
}

// readPlaceholders uses a component's references as placeholders for the images of a release.
func (r *reader) readPlaceholders(release, component *References) {
	rewriting, err := NewRewriting(release, component)
	if err != nil {
		r.reportMislabelled(r.imagesPath, "%s", err)
		return
	}
	r.rewriting = rewriting
	for _, name := range rewriting.Missing {
		r.reportMislabelled(r.imagesPath, "no image %q to put in the place of %s", name,
			component.Images[name])
	}
}

// readFile reads a file, and reports a problem if it is missing and not optional.
func (r *reader) readFile(name string, optional bool) ([]byte, bool) {
	text, err := fs.ReadFile(r.files, name)
	if err == nil {
		r.payload.beside = append(r.payload.beside, name)
		return text, true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.report(Problem{File: name, Cause: Unreadable, Message: withoutPath(err)})
	} else if !optional {
		r.reportMislabelled(name, "it is missing: a release needs it")
	}
	return nil, false
}

func (r *reader) parseMetadata(name string, text []byte) Metadata {
	var metadata Metadata
	text = bytes.TrimPrefix(text, byteOrderMark)
	if err := checkText(text, countMarks(text)); err != nil {
		r.reportMislabelled(name, "%s", err)
		return metadata
	}
	if err := json.Unmarshal(text, &metadata); err != nil {
		problem := Problem{
			File:    name,
			Cause:   Mislabelled,
			Message: "this is not the JSON of a release's metadata: " + strings.TrimPrefix(err.Error(), "json: "),
		}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			problem.Line = yamltext.LineAt(text, wrongType.Offset-1)
			problem.Message = fmt.Sprintf("%s can't be of type %s", cmp.Or(wrongType.Field, "a release's metadata"),
				wrongType.Value)
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			problem.Line = yamltext.LineAt(text, syntax.Offset-1) // Offset is behind the character
		}
		r.report(problem)
		return metadata
	}
	switch {
	case metadata.Kind != metadataKind:
		r.reportMislabelled(name, "its kind is %q: write %q", metadata.Kind, metadataKind)
	case metadata.Version == "":
		r.reportMislabelled(name, "the version is missing")
	case !IsVersion(metadata.Version):
		r.reportMislabelled(name, "the version %q is not a semantic version such as 1.2.3", metadata.Version)
	}
	if field := unknownField(text); field != "" {
		r.report(Problem{
			File:    name,
			Cause:   Suspicious,
			Message: fmt.Sprintf("unknown field %q: is it misspelt?", field),
		})
	}
	return metadata
}

// IsVersion reports whether a text is a semantic version, without a leading "v".
func IsVersion(text string) bool {
	_, err := version.ParseSemantic(text)
	return err == nil && !strings.HasPrefix(text, "v")
}

// unknownField returns the first unknown field of release metadata; "" if there is none.
func unknownField(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(new(Metadata))
	if err == nil {
		return ""
	}
	_, field, _ := strings.Cut(err.Error(), "unknown field ")
	return strings.Trim(field, `"`)
}

// withoutPath returns the message of a file error without the name of the file, which
// the problem has already.
func withoutPath(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}

// Misfits returns the fields of a manifest whose values have types that the fields can't have.
func (m *Manifest) Misfits() []fields.Misfit {
	return fields.Misfits(m.object.Object, func(object map[string]any) error {
		return refusal(m.GroupVersionKind(), object)
	})
}

// refusal returns the converter's error for an object of a kind; nil if it can convert it.
func refusal(kind schema.GroupVersionKind, object map[string]any) error {
	typed, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true)
	if _, isUnknown := runtime.AsStrictDecodingError(err); err == nil || isUnknown {
		return nil
	}
	text, marshalErr := json.Marshal(object)
	if marshalErr != nil {
		return err
	}
	if exact := json.Unmarshal(text, typed); exact != nil {
		return exact
	}
	return err
}

func mismatchText(err error) string {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return " can't be of type " + wrongType.Value
	}
	return ": " + err.Error()
}

// nameOf returns a path as text, such as spec.containers[0].
func nameOf(path []string) string {
	var name strings.Builder
	for _, step := range path {
		if _, err := strconv.Atoi(step); err == nil {
			fmt.Fprintf(&name, "[%s]", step)
			continue
		}
		if name.Len() > 0 {
			name.WriteString(".")
		}
		name.WriteString(step)
	}
	return name.String()
}
