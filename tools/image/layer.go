package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// A file is a file of a layer. A path that ends in a slash is a folder.
type file struct {
	path    string
	mode    int64
	content []byte
}

// build returns the programs of a module for a platform. It builds them unless they were built already.
func (b *builder) build(platform *v1.Platform) ([]file, error) {
	name := platform.OS + "-" + platform.Architecture
	folder := filepath.Join(b.programs, name)
	if b.programs == "" {
		output := filepath.Join("bin", name)
		folder = filepath.Join(b.source, output)
		command := exec.Command("go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w",
			"-o", output+string(filepath.Separator), "./cmd/...")
		command.Dir, command.Stdout, command.Stderr = b.source, os.Stdout, os.Stderr
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
		if err := command.Run(); err != nil {
			return nil, fmt.Errorf("go build: %w", err)
		}
	}
	mains, err := filepath.Glob(filepath.Join(b.source, "cmd", "*"))
	if err != nil {
		return nil, err
	}
	var programs []file
	for _, main := range mains {
		name := filepath.Base(main)
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		programs = append(programs, file{path: name, mode: 0o755, content: content})
	}
	return programs, nil
}

// system returns the system files that the programs need: user and group, certificate authorities, time zones, and
// a folder for temporary files.
func system() ([]file, error) {
	zones, err := timeZones()
	return append([]file{
		{path: "etc/", mode: 0o755},
		{path: "etc/group", mode: 0o644, content: []byte("runlevel:x:65532:\n")},
		{path: "etc/passwd", mode: 0o644, content: []byte("runlevel:x:65532:65532::/:/sbin/nologin\n")},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
		{path: "tmp/", mode: 0o1777},
	}, zones...), err
}

// timeZones returns the rules of time zones that come with Go.
func timeZones() ([]file, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, fmt.Errorf("the time zones of Go: %w", err)
	}
	defer archive.Close()
	const home = "usr/share/zoneinfo/"
	zones := []file{{path: "usr/", mode: 0o755}, {path: "usr/share/", mode: 0o755}, {path: home, mode: 0o755}}
	err = fs.WalkDir(archive, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case entry.IsDir():
			zones = append(zones, file{path: home + name + "/", mode: 0o755})
			return nil
		}
		content, err := fs.ReadFile(archive, name)
		zones = append(zones, file{path: home + name, mode: 0o644, content: content})
		return err
	})
	return zones, err
}

// authorities returns the certificates of Mozilla's public authorities. Those that are trusted for a limited time
// are left out: the file format has no field for that.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}

// newLayer packs files, without times.
func newLayer(files []file) (v1.Layer, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, entry := range files {
		header := &tar.Header{
			Name:     entry.path,
			Mode:     entry.mode,
			Size:     int64(len(entry.content)),
			Typeflag: tar.TypeReg,
		}
		if entry.path != path.Clean(entry.path) {
			header.Typeflag = tar.TypeDir
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(entry.content); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}
