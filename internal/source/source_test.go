package source_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/runlevel/runlevel/internal/source"
)

func TestSourcesThatDoNotExist(t *testing.T) {
	t.Chdir(write(t, map[string]string{"paylods/a.yaml": "a"}))
	for name, test := range map[string]struct{ ref, want string }{
		"a mistyped folder is not an image of some default registry": {
			ref:  "paylod",
			want: `"REF" is neither a file or folder here nor an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag; a release on the cluster is written NAME@ (see "runlevel list")`,
		},
		"nor is one with a tag": {
			ref:  "paylod:1.0",
			want: `"REF" is neither a file or folder here nor an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag`,
		},
		"an image needs a tag or digest": {
			ref:  "registry.example/payload",
			want: `"REF" is neither a file or folder here nor an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag`,
		},
		"a folder doesn't have a tag": {
			ref:  "paylods:1.0",
			want: `"REF" is neither a file or folder here nor an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag`,
		},
		"what begins with a dot is a path":   {ref: "./registry.example/repo:tag", want: "REF: no such file or folder"},
		"what begins with a slash is a path": {ref: "/no-such-folder/repo:tag", want: "REF: no such file or folder"},
		"what begins with a tilde is a path": {ref: "~/release", want: "REF: no such file or folder"},
	} {
		t.Run(name, func(t *testing.T) {
			checkFailure(t, test.ref, source.Options{}, test.want)
		})
	}
}

func TestARefOfOddCharactersStaysOnItsLine(t *testing.T) {
	for ref, want := range map[string]string{
		"":     `"" is neither a file or folder here nor an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag`,
		"a\nb": `"a\nb" is neither a file or folder here nor an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag`,
		"./\n": `"./\n": no such file or folder`,
	} {
		if _, err := source.Open(t.Context(), ref, source.Options{}); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

func TestAPlatformIsLookedAtFirst(t *testing.T) {
	dir := write(t, small)
	for _, platform := range []string{"arm64", "linux/", "/arm64", "a/b/c/d"} {
		checkFailure(t, dir, source.Options{Platform: platform},
			`REF: "`+platform+`" is not a platform: write one such as linux/arm64`)
	}
}

func TestAnInterruptEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := write(t, small)
	checkFailureIn(t, ctx, dir, source.Options{}, "REF: context canceled")
	if _, err := source.Open(ctx, dir, source.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestAFolderOfTheSameNameWinsOverAnImage(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("no folder can have that name here")
	}
	t.Chdir(t.TempDir())
	writeFile(t, filepath.Join("registry.example", "repo:tag", "a.yaml"), []byte("a"))
	release := open(t, "registry.example/repo:tag", source.Options{})
	if release.Kind != source.Directory {
		t.Errorf("got kind %q", release.Kind)
	}
	if release.Image != "" || release.Digest != "" {
		t.Errorf("got release %+v", release)
	}
}
