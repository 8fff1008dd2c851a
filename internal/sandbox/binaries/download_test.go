package binaries

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newArchive returns the archive of a program that prints "downloaded" and its name.
func newArchive(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho downloaded $(basename $0)\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	archive, err := pack(file, Names())
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// newDownload returns the download of an archive from a server.
func newDownload(t *testing.T, archive []byte, serve http.HandlerFunc) *download {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return &download{server.URL + "/a.tar.gz", sum(archive), time.Minute}
}

// sendHalf sends the first half of an archive, and says that there is more.
func sendHalf(w http.ResponseWriter, archive []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(archive)))
	_, _ = w.Write(archive[:len(archive)/2])
	_ = http.NewResponseController(w).Flush()
}

func assertPrints(t *testing.T, dir, want string) {
	t.Helper()
	output, err := exec.Command(filepath.Join(dir, "etcd")).Output()
	if err != nil || strings.TrimSpace(string(output)) != want {
		t.Errorf("etcd prints %q, %v; want %q", output, err, want)
	}
}

func TestProgramsAreDownloaded(t *testing.T) {
	fakeGo(t, "exit 1") // nothing is compiled
	archive := newArchive(t)
	s, progress := newStore(t, tiny), &bytes.Buffer{}
	s.download = newDownload(t, archive, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	dir, err := s.ensure(t.Context(), progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}
	assertPrints(t, dir, "downloaded etcd")
	for _, want := range []string{
		"downloading the control plane (Kubernetes v1.36.3) from " + s.download.address,
		"downloaded in",
	} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("the progress lacks %q:\n%s", want, progress)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.tar.gz")); err != nil || len(left) > 0 {
		t.Errorf("the archive remains: %v, %v", left, err)
	}
	progress.Reset()
	if _, err := s.ensure(t.Context(), progress); err != nil || progress.Len() > 0 {
		t.Errorf("the second call does something: %v\n%s", err, progress)
	}
}

// TestFailedDownloadIsCompiled checks that each failure of a download has a line with its reason, and that the programs
// are those that were compiled.
func TestFailedDownloadIsCompiled(t *testing.T) {
	archive := newArchive(t)
	tests := map[string]struct {
		serve  func(w http.ResponseWriter, r *http.Request)
		change func(d *download)
		want   string
	}{
		"not found": {
			serve: http.NotFound,
			want:  "404 Not Found",
		},
		"another content": {
			serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(archive, 0)) },
			want:  "its digest is",
		},
		"truncated": {
			serve: func(w http.ResponseWriter, _ *http.Request) { sendHalf(w, archive) },
			want:  "unexpected EOF",
		},
		"no answer": {
			serve:  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			change: func(d *download) { d.maxSilence = 50 * time.Millisecond },
			want:   "sent nothing for 50ms",
		},
		"hangs in the middle": {
			serve: func(w http.ResponseWriter, r *http.Request) {
				sendHalf(w, archive)
				<-r.Context().Done()
			},
			change: func(d *download) { d.maxSilence = 200 * time.Millisecond },
			want:   "sent nothing for 200ms",
		},
		"no server": {
			change: func(d *download) { d.address = "http://127.0.0.1:1/a.tar.gz" },
			want:   "connection refused",
		},
		"no host": {
			change: func(d *download) { d.address = "http://host.invalid/a.tar.gz" },
			want:   "host.invalid",
		},
		"not an archive": {
			serve:  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("text")) },
			change: func(d *download) { d.digest = sum([]byte("text")) },
			want:   "not an archive",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, progress := newStore(t, tiny), &bytes.Buffer{}
			s.download = newDownload(t, archive, test.serve)
			if test.change != nil {
				test.change(s.download)
			}
			dir, err := s.ensure(t.Context(), progress)
			if err != nil {
				t.Fatal(err)
			}
			assertPrints(t, dir, "I am etcd")
			var reason string
			for line := range strings.Lines(progress.String()) {
				if strings.HasPrefix(line, "cannot download the programs, compiling them instead: ") {
					reason = line
				}
			}
			if !strings.Contains(reason, test.want) {
				t.Errorf("no line says %q:\n%s", test.want, progress)
			}
		})
	}
}

func TestInterruptedDownloadLeavesNothing(t *testing.T) {
	fakeGo(t, "exit 1") // an interrupt does not compile
	archive := newArchive(t)
	s := newStore(t, tiny)
	ctx, cancel := context.WithCancel(t.Context())
	s.download = newDownload(t, archive, func(w http.ResponseWriter, r *http.Request) {
		sendHalf(w, archive)
		cancel()
		<-r.Context().Done()
	})
	if _, err := s.ensure(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) ||
		!strings.HasPrefix(err.Error(), "download interrupted") {
		t.Errorf("the interrupted download returned %v, want context.Canceled", err)
	}
	assertEmpty(t, s)
}

// TestKilledDownloadIsNotUsed kills a process in the middle of a download. The next one downloads from the beginning.
func TestKilledDownloadIsNotUsed(t *testing.T) {
	const folder, address, digest = "TEST_STORE", "TEST_ADDRESS", "TEST_DIGEST"
	s := newStore(t, tiny)
	if os.Getenv(folder) != "" { // the process to kill
		s.dir, s.download = os.Getenv(folder), &download{os.Getenv(address), os.Getenv(digest), time.Minute}
		_, err := s.ensure(t.Context(), os.Stderr)
		t.Fatal("the download ended:", err)
	}
	fakeGo(t, "exit 1")
	archive, half := newArchive(t), make(chan struct{})
	s.download = newDownload(t, archive, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			t.Error("the download resumes")
		}
		select {
		case <-half:
			_, _ = w.Write(archive)
		default:
			sendHalf(w, archive)
			close(half)
			<-r.Context().Done()
		}
	})
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), folder+"="+s.dir, address+"="+s.download.address, digest+"="+s.download.digest)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	<-half
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if _, err := os.Stat(filepath.Join(s.dir, s.module.key())); !errors.Is(err, os.ErrNotExist) {
		t.Error("half a download is in place:", err)
	}
	dir, err := s.ensure(t.Context(), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	assertPrints(t, dir, "downloaded etcd")
	if left, err := filepath.Glob(filepath.Join(s.dir, drafts+"*")); err != nil || len(left) > 0 {
		t.Errorf("drafts remain: %v, %v", left, err)
	}
}

// TestArchivesAreReproducible builds a program twice, in different folders.
func TestArchivesAreReproducible(t *testing.T) {
	var digests []string
	for range 2 {
		s := newStore(t, tiny)
		s.module.toolchain = runtime.Version()
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		digest, err := s.writeArchive(t.Context(), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
		s.download = newDownload(t, nil, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, filepath.Join(s.dir, s.module.archiveName()))
		})
		s.download.digest = digest
		dir, err := s.ensure(t.Context(), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		assertPrints(t, dir, "I am etcd")
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds have the digests %v", digests)
	}
}

func TestAddressOfDownloads(t *testing.T) {
	m := newStore(t, tiny).module
	m.os, m.arch = "linux", "amd64"
	const name = "runlevel-sandbox-v1.36.3-linux-amd64-0123456789ab.tar.gz"
	replaceArchives(t, "release v0.1.0\n"+name+" abc\n")
	for setting, want := range map[string]string{
		"":                           "https://github.com/runlevel/runlevel/releases/download/v0.1.0/" + name,
		"https://mirror.example/all": "https://mirror.example/all/" + name,
		"none":                       "",
		"mirror.example":             "write the http or https address",
		"file:///srv":                "write the http or https address",
	} {
		t.Setenv(DownloadsVariable, setting)
		download, err := m.findDownload()
		switch {
		case err != nil:
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", setting, err, want)
			}
		case download == nil && want != "", download != nil && download.address != want:
			t.Errorf("%q: %v, want %q", setting, download, want)
		}
	}
	t.Setenv(DownloadsVariable, "")
	m.hash = "anothermodule"
	if download, err := m.findDownload(); download != nil || err != nil {
		t.Errorf("a changed module is downloaded: %v, %v", download, err)
	}
}

// replaceArchives replaces archives.txt.
func replaceArchives(t *testing.T, text string) {
	before := archives
	archives = text
	t.Cleanup(func() { archives = before })
}
