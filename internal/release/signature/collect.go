package signature

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Stores returns the URLs of the signature stores that the policy names.
func (p *Policy) Stores() []string {
	var stores []string
	for _, store := range p.stores {
		stores = append(stores, store.String())
	}
	return stores
}

// Collect returns the OpenPGP signatures of an image in a store, a URL, folder or FILE.yaml, without verifying them: a
// copy of the store has the same ones.
func Collect(ctx context.Context, store, digest string) ([][]byte, error) {
	var from place = fileStore(store)
	if strings.HasPrefix(store, "http://") || strings.HasPrefix(store, "https://") {
		address, err := url.Parse(store)
		if err != nil {
			return nil, fmt.Errorf("%s is not a URL", store)
		}
		from = webStore{&http.Client{Timeout: maxAnswerTime}, address}
	}
	var found [][]byte
	var failed error
	err := from.each(ctx, digest, func(name string, signature []byte) bool {
		if _, err := unpack(signature); err != nil {
			failed = fmt.Errorf("%s %s: %w", from, name, err)
			return false
		}
		found = append(found, signature)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return found, failed
}
