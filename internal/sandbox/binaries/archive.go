package binaries

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed" // embeds archives.txt
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A release has an archive of the control plane's programs for each platform. archives.txt lists the release, the
// version of Go that built the archives, and their digests by name. The name of an archive has the hash of its module,
// so a changed module has no archive until "make programs" writes new digests.
//
//go:embed archives.txt
var archives string

// Archives returns the content of archives.txt, and the value of each line by its name.
func Archives() (text string, values map[string]string) {
	values = map[string]string{}
	for line := range strings.Lines(archives) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[name] = value
	}
	return archives, values
}

func (m *module) archiveName() string { return "runlevel-sandbox-" + m.key() + ".tar.gz" }

// WriteArchives builds the programs of the control plane for all platforms, writes their archives into a folder, and
// returns the content of archives.txt for them. Their bytes depend on the module and on the version of Go only.
func WriteArchives(ctx context.Context, release, folder string, progress io.Writer) (string, error) {
	text := "release " + release + "\ngo " + runtime.Version() + "\n"
	for _, platform := range []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"} {
		all, err := modules()
		if err != nil {
			return "", err
		}
		m := all[0]
		m.os, m.arch, _ = strings.Cut(platform, "/")
		m.toolchain = runtime.Version()
		fmt.Fprintln(progress, m.archiveName())
		digest, err := (&store{dir: folder, module: m}).writeArchive(ctx, progress)
		if err != nil {
			return "", fmt.Errorf("build the programs for %s: %w", platform, err)
		}
		text += m.archiveName() + " " + digest + "\n"
	}
	return text, nil
}

// writeArchive compiles the program, and writes its archive into the folder of the store, unless it is there.
func (s *store) writeArchive(ctx context.Context, progress io.Writer) (digest string, err error) {
	file := filepath.Join(s.dir, s.module.archiveName())
	_, values := Archives()
	if existing, err := os.ReadFile(file); err == nil && values["go"] == s.module.toolchain {
		if digest := sum(existing); digest == values[s.module.archiveName()] {
			return digest, nil
		}
	}
	draft, err := os.MkdirTemp(s.dir, drafts)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft)
	if err := s.fill(ctx, draft, progress); err != nil {
		return "", err
	}
	archive, err := pack(filepath.Join(draft, program), s.module.names)
	if err != nil {
		return "", err
	}
	return sum(archive), os.WriteFile(file, archive, 0o644)
}

func sum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// pack returns the archive of a program and of links to it, which has the same bytes for the same program.
func pack(file string, names []string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	headers := []tar.Header{{Name: program, Mode: 0o755, Size: int64(len(content))}}
	for _, name := range names {
		headers = append(headers, tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: program, Mode: 0o777})
	}
	for i, header := range headers {
		header.Format, header.ModTime = tar.FormatUSTAR, time.Unix(0, 0)
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if i > 0 {
			continue
		}
		if _, err := archive.Write(content); err != nil {
			return nil, err
		}
	}
	err = errors.Join(archive.Close(), zipped.Close())
	return packed.Bytes(), err
}

// unpack writes the program of an archive to a file.
func unpack(packed io.Reader, file string) error {
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return fmt.Errorf("it is not an archive: %w", err)
	}
	archive := tar.NewReader(unzipped)
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		if header.Name != program {
			continue
		}
		content, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(content, archive)
		return errors.Join(err, content.Close())
	}
	return fmt.Errorf("it has no %s", program)
}
