// Package simplesigning reads and writes the text about an image that is signed in two formats: the OpenPGP messages of
// the cluster-version operator and podman, and the attachments of cosign.
//
// It creates and verifies no signatures: packages signature and sigstore do.
//
// Start with Parse.
package simplesigning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"
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
	Creator   string  `json:"creator,omitempty"`
	Timestamp float64 `json:"timestamp,omitempty"`
}

// Parse returns the claim of a text of a type.
func Parse(content []byte, kind Type) (Claim, error) {
	var parsed text
	var more optional
	err := decode(content, &parsed, true)
	if err == nil && parsed.Optional != nil {
		err = decode(parsed.Optional, &more, kind == OpenPGP)
	}
	if err != nil || parsed.Critical.Type != kind || parsed.Critical.Identity.Reference == "" {
		return Claim{}, fmt.Errorf("its content is not an %q with an image and an identity", kind)
	}
	return Claim{
		Digest:    parsed.Critical.Image.Digest,
		Reference: parsed.Critical.Identity.Reference,
		Time:      TimeOf(more.Timestamp),
	}, nil
}

func decode(content []byte, value any, isStrict bool) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	if isStrict {
		decoder.DisallowUnknownFields()
	}
	return decoder.Decode(value)
}

// TimeOf returns the time of a timestamp, which is in seconds since 1970; zero for 0, and for other numbers without a
// time.
func TimeOf(timestamp float64) time.Time {
	if timestamp <= 0 || timestamp > math.MaxUint32 {
		return time.Time{}
	}
	return time.Unix(int64(timestamp), 0).UTC()
}

// Timestamp returns the timestamp of the claim; 0 if it has no time.
func (c Claim) Timestamp() float64 {
	if c.Time.IsZero() {
		return 0
	}
	return float64(c.Time.Unix())
}

// Text returns the text of a type that claims c.
func (c Claim) Text(kind Type) []byte {
	more, _ := json.Marshal(optional{Creator: "runlevel", Timestamp: c.Timestamp()})
	content, _ := json.Marshal(text{
		Critical: critical{Identity: identity{c.Reference}, Image: image{c.Digest}, Type: kind},
		Optional: more,
	})
	return content
}
