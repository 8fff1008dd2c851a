package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/release/component"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A componentFiles is a component that has been read.
type componentFiles struct {
	Component
	folder  string            // folder or archive on disk; "" for an image
	image   *ResolvedImage    // nil for a component on disk
	files   map[string][]byte // manifests and image-references, by their paths in the source
	ignored []string          // other files
	changed time.Time         // of the newest file; zero if not known
}

// pathOnDisk returns the path of a component on this machine; "" for an image in a registry.
func (c *Config) pathOnDisk(entry Component) string {
	if filepath.IsAbs(entry.Source) {
		return entry.Source
	}
	joined := filepath.Join(filepath.Dir(c.path), entry.Source)
	if _, err := os.Stat(joined); err != nil && !strings.HasPrefix(entry.Source, ".") {
		return ""
	}
	return joined
}

// readComponent reads the files of a component.
func (b *builder) readComponent(ctx context.Context, entry Component) (*componentFiles, error) {
	if ref := b.config.pathOnDisk(entry); ref != "" {
		if !filepath.IsAbs(ref) {
			ref = "." + string(filepath.Separator) + ref // otherwise it could be the name of an image
		}
		read, err := b.readSource(ctx, entry, ref, defaultPlatform)
		if err == nil {
			read.folder = filepath.Clean(ref)
		}
		return read, err
	}
	if b.options.Lock != nil {
		locked := b.options.Lock.Components[entry.Name]
		if _, err := locked.locked(entry.Source); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Source, err)
		}
		read := &componentFiles{Component: entry, image: &locked.ResolvedImage, files: map[string][]byte{}}
		for name, text := range locked.Files {
			read.files[name] = []byte(text)
		}
		return read, nil
	}
	if err := checkImage(entry.Source); err != nil {
		return nil, fmt.Errorf("%s: %w; and there is no such file or folder", entry.Source, err)
	}
	image, config, err := b.resolve(ctx, entry.Source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", entry.Source, err)
	}
	if config.Config.Labels[operatorLabel] == "" {
		return nil, fmt.Errorf("%s: the image has no label %s, so it is not the image of a component: build it "+
			"with LABEL %[2]s=true, or list it under images", entry.Source, operatorLabel)
	}
	read, err := b.readSource(ctx, entry, image.Image, platformOf(config))
	if err == nil {
		read.image = &image
	}
	return read, err
}

// readSource reads the files of a folder, an archive or an image.
func (b *builder) readSource(ctx context.Context, entry Component, ref string, platform v1.Platform) (
	_ *componentFiles, err error) {
	options := source.Options{Insecure: b.options.Insecure, Platform: platform.String()}
	opened, err := source.Open(ctx, ref, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	files, err := component.ReadFiles(opened.FS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	read := &componentFiles{Component: entry, files: files}
	if archive, err := os.Stat(ref); err == nil && !archive.IsDir() {
		read.changed = archive.ModTime()
	}
	for _, name := range sortedKeys(files) {
		switch {
		case filepath.Join(ref, name) == filepath.Clean(b.config.path): // beside the manifests of the only component
			delete(files, name)
			continue
		case !payload.IsManifest(name) && path.Base(name) != payload.ImagesFile:
			read.ignored = append(read.ignored, name)
			delete(files, name)
			continue
		}
		info, err := fs.Stat(opened.FS, name)
		if err != nil {
			return nil, err
		}
		if info.ModTime().After(read.changed) {
			read.changed = info.ModTime()
		}
	}
	return read, nil
}

// folderInRelease returns the folder of a component's manifests in the release. If one of them names the release
// itself, as the Deployment of the operator does, all are templates: the digest of the release is not known yet, and
// templates are applied before other manifests of their component.
func (c *componentFiles) folderInRelease() string {
	for _, text := range c.files {
		if bytes.Contains(text, []byte("{{.ReleaseImage}}")) {
			return payload.TemplatesFolder
		}
	}
	return payload.ReleaseFolder
}

// pathOf returns the path of a component's file for users.
func (c *componentFiles) pathOf(name string) string {
	if c.folder != "" {
		return filepath.Join(c.folder, name)
	}
	return c.Source + "/" + name
}

// digest returns a digest of the files of a component, as they are in its source.
func (c *componentFiles) digest() string {
	whole := sha256.New()
	for _, name := range sortedKeys(c.files) {
		fmt.Fprintf(whole, "%q %x\n", name, sha256.Sum256(c.files[name]))
	}
	return hex.EncodeToString(whole.Sum(nil))
}
