package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	imageStreamKind = "ImageStream"
	imageStreamAPI  = "image.openshift.io/v1"
	partsAnnotation = "io.openshift.build.versions"
)

// References are the content of an image-references file.
type References struct {
	Name   string            `json:"name,omitempty"` // the version, of a release
	Images map[string]string `json:"images"`         // pull specs by name
	// Parts are versions of parts, such as kubernetes, by the image that declares
	// them, and "" for the release.
	Parts map[string]map[string]string `json:"parts,omitempty"`

	// Created is the creation time of the file, and Annotations are those of each image. They only describe a release,
	// so they are not stored with the options.
	Created     string                       `json:"-"`
	Annotations map[string]map[string]string `json:"-"`
}

// An imageStream contains the fields of an image-references file that are needed.
type imageStream struct {
	Kind       string         `json:"kind"`
	APIVersion string         `json:"apiVersion"`
	Metadata   streamMetadata `json:"metadata"`
	Spec       struct {
		Tags []struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
			From        *struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"from"`
		} `json:"tags"`
	} `json:"spec"`
}

type streamMetadata struct {
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
	Created     any               `json:"creationTimestamp"` // invalid values are ignored
}

// pullSpec matches an image.
var pullSpec = regexp.MustCompile(`^\w[\w.:/@+-]*$`)

// maxPullSpec is the maximum length of an image in bytes: registries allow 255 for a name and 128 for a
// tag. It replaces each image in manifests and fields in templates, so it bounds how
// much these can grow.
const maxPullSpec = 1 << 10

// IsPullSpec reports whether a text can be an image.
func IsPullSpec(text string) bool { return len(text) <= maxPullSpec && pullSpec.MatchString(text) }

// ParseReferences reads an image-references file: an ImageStream, in JSON or YAML.
func ParseReferences(text []byte) (*References, error) {
	stream, err := parseImageStream(text)
	if err != nil {
		return nil, fmt.Errorf("this is not an ImageStream: %w", err)
	}
	if stream.Kind != imageStreamKind || stream.APIVersion != imageStreamAPI {
		return nil, fmt.Errorf("this is %q of %q: it must be %s of %s", stream.Kind, stream.APIVersion, imageStreamKind,
			imageStreamAPI)
	}
	found := &References{
		Name:        stream.Metadata.Name,
		Images:      make(map[string]string, len(stream.Spec.Tags)),
		Parts:       map[string]map[string]string{},
		Annotations: map[string]map[string]string{},
	}
	found.Created, _ = stream.Metadata.Created.(string)
	found.Parts[""] = parseParts(stream.Metadata.Annotations[partsAnnotation])
	for i, tag := range stream.Spec.Tags {
		switch {
		case tag.Name == "":
			return nil, fmt.Errorf("spec.tags[%d] has no name", i)
		case tag.From == nil || tag.From.Kind != "DockerImage":
			continue // it refers to something else than an image
		case tag.From.Name == "":
			return nil, fmt.Errorf("the tag %q has no from.name, which is where its image is", tag.Name)
		case len(tag.From.Name) > maxPullSpec:
			return nil, fmt.Errorf("the tag %q has a from.name of %d bytes, and an image has no more than %d", tag.Name,
				len(tag.From.Name), maxPullSpec)
		case !IsPullSpec(tag.From.Name):
			return nil, fmt.Errorf("the tag %q has from.name %q, which is not an image", tag.Name, tag.From.Name)
		case found.Images[tag.Name] != "":
			return nil, fmt.Errorf("the tag %q occurs twice", tag.Name)
		}
		found.Images[tag.Name] = tag.From.Name
		found.Parts[tag.Name] = parseParts(tag.Annotations[partsAnnotation])
		found.Annotations[tag.Name] = tag.Annotations
	}
	return found, nil
}

// parseParts parses versions of parts, as in kubernetes=1.34.1,kernel=6.12.0.
func parseParts(text string) map[string]string {
	parts := map[string]string{}
	for entry := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(entry), "=")
		if found && name != "" && IsVersion(value) {
			parts[name] = value
		}
	}
	return parts
}

// parseImageStream parses the only document of the file.
func parseImageStream(text []byte) (imageStream, error) {
	var stream imageStream
	chunks, wrong := split(text)
	switch {
	case wrong != nil:
		return stream, wrong
	case len(chunks) != 1:
		return stream, fmt.Errorf("it has %d documents, and must have one", len(chunks))
	}
	read, err := chunks[0].decodeYAML()
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

// A Rewriting changes the text of a component's manifests as the build of a release
// does: it replaces placeholders by images and versions.
type Rewriting struct {
	Missing []string // images with a placeholder that the release does not have
	// ReportsAllParts is set to report parts without a version even if no image declares versions of parts.
	ReportsAllParts bool

	images  *substitution
	version string            // version of the release; "" if it is not a version, and is not substituted
	parts   map[string]string // versions; "" for an ambiguous one
}

// NewRewriting compares a component's references with those of the release that it is
// for.
func NewRewriting(release, component *References) (*Rewriting, error) {
	images, missing, err := substitutionOf(release.Images, component.Images)
	if err != nil {
		return nil, err
	}
	r := &Rewriting{Missing: missing, images: images, parts: map[string]string{}}
	if IsVersion(release.Name) {
		r.version = version.MustParseSemantic(release.Name).WithBuildMetadata("").String()
	}
	for name := range component.Images {
		for part, value := range release.Parts[name] {
			if other, isRepeated := r.parts[part]; isRepeated && other != value {
				value = "" // it is ambiguous
			}
			r.parts[part] = value
		}
	}
	for part, value := range release.Parts[""] {
		if _, known := r.parts[part]; !known {
			r.parts[part] = value
		}
	}
	return r, nil
}

// Replace also replaces an image with its tag, unless it is a placeholder.
func (r *Rewriting) Replace(image, replacement string) {
	targets := map[string]string{image: replacement}
	maps.Copy(targets, r.images.targets)
	r.images = newSubstitution(targets)
}

// versionPlaceholder matches the placeholder for the version of the release, or with a suffix that
// of a part.
var versionPlaceholder = regexp.MustCompile(`(\W|^)0\.0\.1-snapshot(?:-([a-z0-9-]+)|(\W)|$)`)

// UnknownPart returns the message about a part whose version is unknown.
func UnknownPart(part string) string {
	return fmt.Sprintf("0.0.1-snapshot-%s stands for the version of %q, which the release does not declare, or "+
		"declares twice", part, part)
}

// MayChange returns false for most texts that have neither images nor versions, escaped or not. It is quick.
func (r *Rewriting) MayChange(text []byte) bool {
	return r.images.mayChange(text) || bytes.Contains(text, []byte("0.0.1-snapshot"))
}

// Apply rewrites a text. Unknown are the parts in it whose versions are unknown. It fails
// if the text becomes longer than a file may be.
func (r *Rewriting) Apply(text []byte) (rewritten []byte, unknown []string, err error) {
	if text, err = r.images.apply(text); err != nil {
		return nil, nil, err
	}
	var out []byte
	isReported := map[string]bool{}
	rest := text
	for {
		if len(out)+len(rest) > maxFile {
			return nil, nil, errImages
		}
		match := versionPlaceholder.FindSubmatchIndex(rest)
		if match == nil {
			return append(out, rest...), unknown, nil
		}
		start, end, value := match[3], match[1], r.version
		if match[6] >= 0 { // the character behind it may precede the next one
			end = match[6]
		}
		if match[4] >= 0 {
			part := string(rest[match[4]:match[5]])
			if value = r.parts[part]; value == "" && (len(r.parts) > 0 || r.ReportsAllParts) &&
				!isReported[part] && len(unknown) < maxProblems {
				isReported[part] = true
				unknown = append(unknown, part)
			}
		}
		if value == "" {
			value = string(rest[start:end])
		}
		out = append(append(out, rest[:start]...), value...)
		rest = rest[end:]
	}
}
