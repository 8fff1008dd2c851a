package source_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/source"
)

// TestARegistryWithEndlessResponses redirects each kind of request to itself, or answers it
// without an end.
func TestARegistryWithEndlessResponses(t *testing.T) {
	toItself := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	}
	toLonger := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.String()+"?x", http.StatusFound)
	}
	withoutEnd := func(w http.ResponseWriter, r *http.Request) {
		for block := make([]byte, 1<<20); r.Context().Err() == nil; {
			_, _ = w.Write(block)
		}
	}
	for name, test := range map[string]struct {
		where  string
		answer http.HandlerFunc
		want   string
	}{
		"the first question, to itself":    {"/v2/", toItself, "REF: HOST redirects more than 5 times"},
		"a manifest, to itself":            {"/v2/repo/manifests/", toItself, "REF: HOST redirects more than 5 times"},
		"a manifest, to ever longer names": {"/v2/repo/manifests/", toLonger, "REF: HOST redirects more than 5 times"},
		"a manifest without an end": {"/v2/repo/manifests/", withoutEnd,
			"REF: HOST answers with more than 8 MiB, which is the limit"},
		"a layer, to itself": {"/v2/repo/blobs/", toItself, "REF: layer DIGEST: HOST redirects more than 5 times"},
		"a layer, to ever longer names": {"/v2/repo/blobs/", toLonger,
			"REF: layer DIGEST: HOST redirects more than 5 times"},
		"a layer without an end": {"/v2/repo/blobs/", withoutEnd,
			"REF: layer DIGEST: content has more than the SIZE bytes that it should"},
		"a token, to itself": {"/token", toItself, "REF: HOST redirects more than 5 times"},
	} {
		t.Run(name, func(t *testing.T) {
			registry := newRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case strings.HasPrefix(r.URL.Path, test.where) && (test.where != "/v2/" || r.URL.Path == "/v2/"):
						test.answer(w, r)
					case test.where == "/token":
						w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+r.Host+`/token",service="it"`)
						w.WriteHeader(http.StatusUnauthorized)
					default:
						next.ServeHTTP(w, r)
					}
				})
			})
			image := smallImage(t)
			layers, err := image.Layers()
			if err != nil {
				t.Fatal(err)
			}
			size, err := layers[0].Size()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // otherwise a failure would take forever
			defer cancel()
			want := strings.NewReplacer("HOST", registry.host, "DIGEST", digestOf(t, layers[0]), "SIZE",
				fmt.Sprint(size)).Replace(test.want)
			checkFailureIn(t, ctx, registry.has(t, "repo:1.0", image), source.Options{}, want)
		})
	}
}
