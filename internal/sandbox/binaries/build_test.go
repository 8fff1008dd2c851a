package binaries

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/util/wait"
)

// A minimal module: a build of the real one takes minutes.
const tiny = `
-- go.mod --
module example.test/tiny

go 1.26.0
-- main.go --
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() { fmt.Println("I am", filepath.Base(os.Args[0])) }
`

// A module that requires a module that does not exist.
var needy = strings.NewReplacer(
	"go 1.26.0\n", "go 1.26.0\nrequire example.test/other v1.0.0\n",
	"import (\n", "import (\n\t_ \"example.test/other\"\n",
).Replace(tiny) + `-- go.sum --
example.test/other v1.0.0 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
example.test/other v1.0.0/go.mod h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
`

func newStore(t *testing.T, archive string) *store {
	t.Helper()
	return &store{
		dir: filepath.Join(t.TempDir(), "cache"),
		module: &module{
			names: Names(), cache: "control-plane", contents: "the control plane (Kubernetes %s)",
			duration: "about 5 minutes",
			files:    txtar.Parse([]byte(archive)), version: "v1.36.3", hash: "0123456789abcdef",
			os: runtime.GOOS, arch: runtime.GOARCH,
		},
	}
}

func TestBuiltProgramActsByItsName(t *testing.T) {
	s, progress := newStore(t, tiny), &bytes.Buffer{}
	dir, err := s.ensure(t.Context(), progress)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kwok"} {
		output, err := exec.Command(filepath.Join(dir, name)).Output()
		if err != nil || string(output) != "I am "+name+"\n" {
			t.Errorf("%s prints %q, %v; want its name", name, output, err)
		}
	}
	for _, want := range []string{"building the control plane", "v1.36.3", "about 5 minutes", "built in"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("the progress lacks %q:\n%s", want, progress)
		}
	}
	progress.Reset()
	if _, err := s.ensure(t.Context(), progress); err != nil || progress.Len() > 0 {
		t.Errorf("the second call builds again: %v\n%s", err, progress)
	}
}

func TestBuildWaitsForTheBuildOfAnotherProcess(t *testing.T) {
	s := newStore(t, tiny)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	another := flock.New(filepath.Join(s.dir, ".lock"))
	if err := another.Lock(); err != nil {
		t.Fatal(err)
	}
	output, progress := io.Pipe()
	var build errgroup.Group
	build.Go(func() error {
		defer progress.Close()
		_, err := s.ensure(t.Context(), progress)
		return err
	})
	lines := bufio.NewScanner(output)
	if !lines.Scan() || !strings.Contains(lines.Text(), "waiting for it") {
		t.Errorf("the progress is %q, want a message that the build waits", lines.Text())
	}
	if err := another.Unlock(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // read until the build ends
	}
	if err := build.Wait(); err != nil {
		t.Error(err)
	}
}

func TestDamagedProgramIsBuiltAgain(t *testing.T) {
	s, progress := newStore(t, tiny), &bytes.Buffer{}
	dir, err := s.ensure(t.Context(), progress)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, program), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ensure(t.Context(), progress); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "are damaged: building them again") {
		t.Errorf("the progress does not mention the damage:\n%s", progress)
	}
	if output, err := exec.Command(filepath.Join(dir, "etcd")).Output(); err != nil {
		t.Errorf("the program is still damaged: %q, %v", output, err)
	}
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	s := newStore(t, tiny)
	ctx, cancel := context.WithCancel(t.Context())
	// A go command that takes as long as the real one, and creates a file when it is called.
	called := filepath.Join(t.TempDir(), "called")
	fakeGo(t, "touch "+called+"\nexec cat /dev/zero > /dev/null")
	go func() {
		defer cancel()
		_ = wait.PollUntilContextTimeout(ctx, time.Millisecond, 5*time.Minute, true,
			func(context.Context) (bool, error) {
				_, err := os.Stat(called)
				return err == nil, nil
			})
	}()
	_, err := s.ensure(ctx, &bytes.Buffer{})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the next build continues") {
		t.Errorf("the interrupted build returned %v, want context.Canceled and advice", err)
	}
	assertEmpty(t, s)
}

func TestErrorOfAFailedBuildHasAdvice(t *testing.T) {
	tests := map[string]struct {
		archive string
		prepare func(t *testing.T)
		want    []string
	}{
		"compile error": {
			archive: strings.ReplaceAll(tiny, "fmt.Println", "fmt.Printn"),
			want:    []string{"go build", "main.go:9", "Printn"},
		},
		"GOPROXY is off": {
			archive: needy,
			prepare: func(t *testing.T) { t.Setenv("GOPROXY", "off") },
			want:    []string{"go list", "GOPROXY is off", AssetsVariable},
		},
		"no network": {
			archive: needy,
			prepare: func(t *testing.T) {
				t.Setenv("GOPROXY", "http://127.0.0.1:1")
				t.Setenv("GONOSUMDB", "*")
			},
			want: []string{"go list", "connect to the network", "GOPROXY", AssetsVariable},
		},
		"full disk": {
			archive: tiny,
			prepare: func(t *testing.T) {
				fakeGo(t, "echo 'open x: no space left on device' >&2; exit 1")
			},
			want: []string{"no space left on the disk", "GOCACHE"},
		},
		"go command not found": {
			archive: tiny,
			prepare: func(t *testing.T) { t.Setenv("PATH", t.TempDir()) },
			want:    []string{"install Go", AssetsVariable},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.prepare != nil {
				test.prepare(t)
			}
			s := newStore(t, test.archive)
			_, err := s.ensure(t.Context(), &bytes.Buffer{})
			if err == nil {
				t.Fatal("the build succeeded")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			assertEmpty(t, s)
		})
	}
}

func TestDraftOfAKilledBuildIsRemoved(t *testing.T) {
	s := newStore(t, tiny)
	abandoned := filepath.Join(s.dir, drafts+"123")
	if err := os.MkdirAll(abandoned, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ensure(t.Context(), &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, os.ErrNotExist) {
		t.Error("the draft still exists:", err)
	}
}

func TestLocatePrefersAssetsAndChecksThem(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kwok"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found, missing, err := findAssets(dir, []string{"etcd", "kube-apiserver"})
	if err != nil || found["etcd"] != filepath.Join(dir, "etcd") || len(missing) != 1 ||
		missing[0] != "kube-apiserver" {
		t.Errorf("found %v, missing %v, %v", found, missing, err)
	}
	for want, call := range map[string]func() error{
		"make it executable":    func() error { _, _, err := findAssets(dir, []string{"kwok"}); return err },
		"which is not a folder": func() error { _, _, err := findAssets(filepath.Join(dir, "none"), nil); return err },
		"set HOME or XDG_CACHE_HOME": func() error {
			t.Setenv("HOME", "")
			t.Setenv("XDG_CACHE_HOME", "")
			_, err := CacheDir("x")
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// assertEmpty fails the test if a failed build has left files.
func assertEmpty(t *testing.T, s *store) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != ".lock" {
			t.Errorf("file %s remains after the failure", entry.Name())
		}
	}
}

// fakeGo replaces the go command by a script, for behaviour that a test can't provoke in the real one.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
