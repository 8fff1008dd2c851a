package oci_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// parts has one blob, under any digest.
type parts struct {
	oci.Reader
	content string
}

func (p parts) Blob(context.Context, v1.Descriptor, int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(p.content)), nil
}

func TestReadBlobComparesContentWithItsDescriptor(t *testing.T) {
	digest, size, err := v1.SHA256(strings.NewReader("signature"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content string
		size    int64
		wrong   string
	}{
		"the blob":   {"signature", size, ""},
		"other":      {"signaturE", size, "content has digest sha256:"},
		"longer":     {"signature of a whole gigabyte", size, "content has more than the 9 bytes"},
		"shorter":    {"signa", size, "content ends after 5 of 9 bytes"},
		"wrong size": {"signature", 8, "content has more than the 8 bytes"},
		"negative":   {"signature", -1, "content has more than the -1 bytes"},
		"huge":       {"signature", 5 << 30, "it has more than 8 MiB, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := oci.ReadBlob(t.Context(), parts{content: test.content},
				v1.Descriptor{Digest: digest, Size: test.size})
			switch {
			case test.wrong == "" && (err != nil || !bytes.Equal(got, []byte("signature"))):
				t.Errorf("got %q, %v", got, err)
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("got error %v, want %q", err, test.wrong)
			}
		})
	}
}
