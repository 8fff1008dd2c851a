package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// writeArchive writes the files of a folder into an archive, a zip or a compressed tar by its name. Owners are left out
// and all files have one time, so that the same files give the same bytes.
func writeArchive(path, folder string, changed time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if strings.HasSuffix(path, ".zip") {
		archive := zip.NewWriter(out)
		defer func() { err = errors.Join(err, archive.Close()) }()
		return walkFiles(folder, func(name string, mode fs.FileMode, content []byte) error {
			header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: changed}
			header.SetMode(mode)
			entry, err := archive.CreateHeader(header)
			if err == nil {
				_, err = entry.Write(content)
			}
			return err
		})
	}
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	defer func() { err = errors.Join(err, archive.Close(), compressed.Close()) }()
	return walkFiles(folder, func(name string, mode fs.FileMode, content []byte) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)),
			ModTime: changed}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	})
}

// walkFiles calls a function for each file below a folder, sorted by name. Modes don't depend on the umask.
func walkFiles(folder string, add func(name string, mode fs.FileMode, content []byte) error) error {
	files := os.DirFS(folder)
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return add(name, mode, content)
	})
}

// sumFile returns the SHA-256 of a file.
func sumFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
