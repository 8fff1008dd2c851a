package oci

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A drip is a registry that answers everything with some bytes at a time, and a pause after them.
type drip struct {
	bytes int
	pause time.Duration
}

func (d drip) RoundTrip(request *http.Request) (*http.Response, error) {
	response := ReaderFunc(func(p []byte) (int, error) {
		select {
		case <-time.After(d.pause):
			return min(d.bytes, len(p)), nil
		case <-request.Context().Done():
			return 0, request.Context().Err()
		}
	})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(response), Request: request}, nil
}

// get returns a blob that comes out of a drip.
func (d drip) get(ctx context.Context) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry.example/v2/repo/blobs/x", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", acceptBlob)
	response, err := (&http.Client{Transport: limitedTransport{next: d}}).Do(request)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func TestALayerThatComesTooSlowly(t *testing.T) {
	for name, test := range map[string]struct {
		drip drip
		want string
	}{
		"a byte a second": {drip{1, time.Second},
			"registry.example sends less than 64 KiB in 30s: check your network, or try again later"},
		"nothing for a year": {drip{1 << 20, 365 * 24 * time.Hour},
			"registry.example sends less than 64 KiB in 30s: check your network, or try again later"},
		"slowly, without an end": {drip{8 << 10, 3 * time.Second},
			"content has more than the 1048576 bytes that it should"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content, err := test.drip.get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer content.Close()
				digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
				checked, err := NewDigestReader(content, v1.Descriptor{Digest: digest, Size: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				err = checked.Verify()
				if err == nil || !strings.HasPrefix(err.Error(), test.want) {
					t.Errorf("error is %v", err)
				}
			})
		})
	}
}
