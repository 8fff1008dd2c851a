package payload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	metadataFile    = "release-metadata"
	imagesFile      = "image-references"
	metadataKind    = "cincinnati-metadata-v0"
	imageStreamKind = "ImageStream"
	imageStreamAPI  = "image.openshift.io/v1"
)

// Metadata is what a release says about itself.
type Metadata struct {
	Kind     string         `json:"kind"`
	Version  string         `json:"version"`
	Previous []string       `json:"previous,omitempty"` // versions it may follow
	Next     []string       `json:"next,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"` // anything else, such as "url"
}

// An imageStream is what image-references holds, as far as it is needed.
type imageStream struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Tags []struct {
			Name string `json:"name"`
			From *struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"from"`
		} `json:"tags"`
	} `json:"spec"`
}

// readMetadata reads release-metadata and image-references of a folder. They may
// be missing where they are optional.
func (r *reader) readMetadata(folder string, optional bool) {
	metadataPath, imagesPath := path.Join(folder, metadataFile), path.Join(folder, imagesFile)
	r.imagesPath = imagesPath
	if text, ok := r.readFile(metadataPath, optional); ok {
		r.payload.Metadata = r.parseMetadata(metadataPath, text)
		r.payload.Version = r.payload.Metadata.Version
		r.payload.Name = cmp.Or(r.payload.Name, DefaultName)
		if asked := r.options.Version; asked != "" && asked != r.payload.Version {
			r.report(Problem{File: metadataPath, Cause: Mislabelled, Message: fmt.Sprintf("the release is version %q, and %q was asked for", r.payload.Version, asked)})
		}
	}
	r.payload.Images = r.options.Images
	text, ok := r.readFile(imagesPath, optional)
	if !ok && optional && r.options.Images != nil {
		r.report(Problem{File: imagesPath, Cause: Suspicious, Message: "it is missing, so nothing stands for the images of the release"})
	}
	if !ok {
		return
	}
	version, images, err := ParseImageReferences(text)
	if err != nil {
		problem := Problem{File: imagesPath, Cause: Mislabelled, Message: err.Error()}
		var syntax *errSyntax
		if errors.As(err, &syntax) {
			problem.Line = syntax.line
		}
		r.report(problem)
		return
	}
	if r.options.Images != nil {
		r.placeholders = images // a component's: its name is no version
		return
	}
	r.payload.Images = images
	switch said := r.payload.Metadata.Version; {
	case said != "" && version != said:
		r.report(Problem{File: imagesPath, Cause: Mislabelled, Message: fmt.Sprintf(
			"this is for version %q, but %s says %q: both must come from the same release", version, metadataFile, said)})
	case said == "" && r.options.Version != "" && version != r.options.Version:
		r.report(Problem{File: imagesPath, Cause: Mislabelled, Message: fmt.Sprintf("this is for version %q, and %q was asked for", version, r.options.Version)})
	}
}

// readFile reads a file that a release must have, unless it is optional.
func (r *reader) readFile(name string, optional bool) ([]byte, bool) {
	text, err := fs.ReadFile(r.files, name)
	if err == nil {
		return text, true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.report(Problem{File: name, Cause: Unreadable, Message: withoutPath(err)})
	} else if !optional {
		r.report(Problem{File: name, Cause: Mislabelled, Message: "it is missing: a release needs it"})
	}
	return nil, false
}

func (r *reader) parseMetadata(name string, text []byte) Metadata {
	wrong := func(format string, args ...any) {
		r.report(Problem{File: name, Cause: Mislabelled, Message: fmt.Sprintf(format, args...)})
	}
	var metadata Metadata
	text = bytes.TrimPrefix(text, byteOrderMark)
	if err := json.Unmarshal(text, &metadata); err != nil {
		problem := Problem{File: name, Cause: Mislabelled, Message: "this is not the JSON of a release's metadata: " + strings.TrimPrefix(err.Error(), "json: ")}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			problem.Line = lineAt(text, wrongType.Offset-1)
			problem.Message = fmt.Sprintf("%s can't be of type %s", cmp.Or(wrongType.Field, "a release's metadata"), wrongType.Value)
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			problem.Line = lineAt(text, syntax.Offset-1) // which is behind the character
		}
		r.report(problem)
		return metadata
	}
	switch {
	case metadata.Kind != metadataKind:
		wrong("its kind is %q: write %q", metadata.Kind, metadataKind)
	case metadata.Version == "":
		wrong("the version is missing")
	default:
		if !IsVersion(metadata.Version) {
			wrong("the version %q is not a semantic version such as 1.2.3", metadata.Version)
		}
	}
	if field := unknownField(text); field != "" {
		r.report(Problem{File: name, Cause: Suspicious, Message: fmt.Sprintf("unknown field %q: is it misspelt?", field)})
	}
	return metadata
}

// IsVersion says whether a text is a semantic version, which has no "v" in front.
func IsVersion(text string) bool {
	_, err := version.ParseSemantic(text)
	return err == nil && !strings.HasPrefix(text, "v")
}

// unknownField is the first one that release metadata does not have.
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

// pullSpec is what an image may look like.
var pullSpec = regexp.MustCompile(`^\w[\w.:/@+-]*$`)

// ParseImageReferences reads an image-references file: the version it is for, and
// the pull specs of its images by name. It is an ImageStream, in JSON or YAML.
func ParseImageReferences(text []byte) (version string, images map[string]string, err error) {
	stream, err := parseImageStream(text)
	if err != nil {
		return "", nil, fmt.Errorf("this is no ImageStream: %w", err)
	}
	if stream.Kind != imageStreamKind || stream.APIVersion != imageStreamAPI {
		return "", nil, fmt.Errorf("this is %q of %q: it must be %s of %s", stream.Kind, stream.APIVersion, imageStreamKind, imageStreamAPI)
	}
	images = make(map[string]string, len(stream.Spec.Tags))
	for i, tag := range stream.Spec.Tags {
		switch {
		case tag.Name == "":
			return "", nil, fmt.Errorf("spec.tags[%d] has no name", i)
		case tag.From == nil || tag.From.Kind != "DockerImage":
			continue // it refers to something else than an image
		case tag.From.Name == "":
			return "", nil, fmt.Errorf("the tag %q has no from.name, which is where its image is", tag.Name)
		case !pullSpec.MatchString(tag.From.Name):
			return "", nil, fmt.Errorf("the tag %q has from.name %q, which is no image", tag.Name, tag.From.Name)
		case images[tag.Name] != "":
			return "", nil, fmt.Errorf("the tag %q stands twice", tag.Name)
		}
		images[tag.Name] = tag.From.Name
	}
	return stream.Metadata.Name, images, nil
}

// parseImageStream reads the one document that there must be.
func parseImageStream(text []byte) (imageStream, error) {
	var stream imageStream
	chunks, wrong := split(text)
	switch {
	case wrong != nil:
		return stream, wrong
	case len(chunks) != 1:
		return stream, fmt.Errorf("it has %d documents, and must have one", len(chunks))
	}
	read, err := decode(chunks[0].text)
	if err != nil {
		return stream, err
	}
	plain, err := json.Marshal(read.value)
	if err != nil {
		return stream, err
	}
	err = json.Unmarshal(plain, &stream)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return stream, fmt.Errorf("%s can't be of type %s", wrongType.Field, wrongType.Value)
	}
	return stream, err
}

// withoutPath is the message of a file error without the name of the file, which
// a problem has already.
func withoutPath(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}
