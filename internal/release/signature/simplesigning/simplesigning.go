// Package simplesigning reads and writes the text about an image that is signed in two formats: the OpenPGP messages of
// the cluster-version operator and podman, and the attachments of cosign.
//
// It creates and verifies no signatures: packages signature and sigstore do.
//
// Start with Parse.
package simplesigning

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	kjson "sigs.k8s.io/json"
)

// A Type is the type of a text. Consumers of one type refuse the other.
type Type string

// The types of texts.
const (
	OpenPGP Type = "atomic container signature"
	Cosign  Type = "cosign container image signature"
)

// A Claim is the statement of a signer about an image.
type Claim struct {
	Digest    string    // digest of the image
	Reference string    // the image's name, with a tag or digest; empty in bundles that name none
	Time      time.Time // when the image was signed; zero if the claim has no time

	LacksOptional bool // the text lacks the optional part, which podman and CRI-O need
}

// A text is the signed JSON.
type text struct {
	Critical critical        `json:"critical"`
	Optional json.RawMessage `json:"optional"`
}

type critical struct {
	Identity identity `json:"identity"`
	Image    image    `json:"image"`
	Type     Type     `json:"type"`
}

type identity struct {
	Reference string `json:"docker-reference"`
}

type image struct {
	Digest string `json:"docker-manifest-digest"`
}

// The optional part has further fields in texts of cosign, whose users add annotations.
type optional struct {
	Creator   string `json:"creator,omitempty"`
	Timestamp int64  `json:"timestamp,omitempty"`
}

// Parse returns the claim of a text of a type. It is as strict as podman and CRI-O: other consumers might read another
// claim from a text whose keys are there twice, or differ in their case.
func Parse(content []byte, kind Type) (Claim, error) {
	var parsed text
	var more optional
	isStrict := decode(content, &parsed, true) &&
		(parsed.Optional == nil || decode(parsed.Optional, &more, kind == OpenPGP))
	if !isStrict || parsed.Critical.Type != kind || parsed.Critical.Identity.Reference == "" {
		return Claim{}, fmt.Errorf("its content is not an %q with an image and an identity", kind)
	}
	return Claim{
		Digest:        parsed.Critical.Image.Digest,
		Reference:     parsed.Critical.Identity.Reference,
		Time:          TimeOf(more.Timestamp),
		LacksOptional: parsed.Optional == nil || kind == OpenPGP && string(parsed.Optional) == "null",
	}, nil
}

// decode reads one JSON object, and reports whether each of its keys is there once, and if it is closed, known.
func decode(content []byte, value any, isClosed bool) bool {
	options := []kjson.StrictOption{kjson.DisallowDuplicateFields}
	if isClosed {
		options = append(options, kjson.DisallowUnknownFields)
	}
	problems, err := kjson.UnmarshalStrict(content, value, options...)
	return err == nil && len(problems) == 0
}

// TimeOf returns the time of a timestamp, which is in seconds since 1970; zero for 0, and for other numbers without a
// time.
func TimeOf(timestamp int64) time.Time {
	if timestamp <= 0 || timestamp > math.MaxUint32 {
		return time.Time{}
	}
	return time.Unix(timestamp, 0).UTC()
}

// Timestamp returns the timestamp of the claim; 0 if it has no time.
func (c Claim) Timestamp() int64 { return max(0, c.Time.Unix()) }

// Text returns the text of a type that claims c.
func (c Claim) Text(kind Type) []byte {
	more, _ := json.Marshal(optional{Creator: "runlevel", Timestamp: c.Timestamp()})
	content, _ := json.Marshal(text{
		Critical: critical{Identity: identity{c.Reference}, Image: image{c.Digest}, Type: kind},
		Optional: more,
	})
	return content
}
