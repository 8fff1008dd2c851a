package signature

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/openshift/library-go/pkg/verify/util"
)

// Stores returns the URLs of the signature stores that the policy names.
func (p *Policy) Stores() []string {
	var stores []string
	for _, store := range p.stores {
		stores = append(stores, store.String())
	}
	return stores
}

// Collect returns the OpenPGP signatures of an image in a store, a URL or a folder, without verifying them: a copy of
// the store has the same ones.
func Collect(ctx context.Context, store, digest string) ([][]byte, error) {
	var from place = folderStore(store)
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

// A folderStore is a folder with the files of a webStore.
type folderStore string

func (f folderStore) String() string { return string(f) }

func (f folderStore) each(_ context.Context, digest string, try func(string, []byte) bool) error {
	folder, err := util.DigestToKeyPrefix(digest, "=")
	if err != nil {
		return err
	}
	for i := range maxSignatures {
		name := fmt.Sprintf("signature-%d", i+1)
		signature, err := os.ReadFile(filepath.Join(string(f), folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !try(name, signature) {
			return nil
		}
	}
	return nil
}
