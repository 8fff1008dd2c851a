package sandboxtest

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/pkg/payload"
)

// ReadRelease reads a release from a txtar archive of files, in which it replaces NS by a namespace.
func ReadRelease(ctx context.Context, namespace, files string, o payload.Options) (*payload.Payload, error) {
	folder, err := txtar.FS(txtar.Parse([]byte(strings.ReplaceAll(files, "NS", namespace))))
	if err != nil {
		return nil, err
	}
	release, _, err := payload.Load(ctx, folder, o)
	return release, err
}

// LoadRelease reads a release like ReadRelease. The test fails if the release has problems.
func LoadRelease(t testing.TB, namespace, files string, o payload.Options) *payload.Payload {
	t.Helper()
	release, err := ReadRelease(t.Context(), namespace, files, o)
	if err != nil {
		t.Fatal(err)
	}
	return release
}
