// Package packages writes the files by which users install the command: an installation script, deb and rpm packages,
// and the manifests of Homebrew, krew, winget and scoop. Each names archives of the release, and their digests.
//
// It neither builds nor publishes: the archives exist, and maintainers copy the manifests to the indexes of these
// package managers.
//
// Start with Write.
package packages

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// A Release has the facts that the files state.
type Release struct {
	Version   string    // with the v of its tag
	Time      time.Time // of the commit: files of packages have it, too
	Downloads string    // URL of the folder of the release's files; its last element is the version
	Key       []byte    // PEM of the public key that verifies checksums.txt.sig
	Source    string    // folder of the repository, which has the module of the packagers
	Archives  []Archive
}

// An Archive is the archive of the command for a platform.
type Archive struct {
	OS, Arch string // as Go names them
	File     string // name in the folder of the release
	SHA256   string // hexadecimal
	Contents string // folder of the files that are in the archive
}

// manifests are the files that come from templates of the same names, with the systems whose archives they name.
var manifests = map[string][]string{
	"install.sh":                          {"darwin", "linux"},
	"runlevel.rb":                         {"darwin", "linux"},
	"runlevel-krew.yaml":                  {"darwin", "linux", "windows"},
	"runlevel.json":                       {"windows"},
	"Runlevel.Runlevel.yaml":              {"windows"},
	"Runlevel.Runlevel.installer.yaml":    {"windows"},
	"Runlevel.Runlevel.locale.en-US.yaml": {"windows"},
}

//go:embed templates
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"text":  func(text []byte) string { return strings.TrimSpace(string(text)) },
	"upper": strings.ToUpper,
}).ParseFS(files, "templates/*"))

// Write writes the files into the folder of a release. It leaves out the manifests of systems without an archive, so
// that a trial needs no more than one platform. The same release gives the same bytes.
func Write(ctx context.Context, folder string, r Release) error {
	if err := r.writeManifests(folder); err != nil {
		return err
	}
	for _, archive := range r.On("linux") {
		for _, format := range []string{"deb", "rpm"} {
			file := filepath.Join(folder, strings.TrimSuffix(archive.File, "tar.gz")+format)
			if err := r.pack(ctx, archive, format, file); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(file), err)
			}
		}
	}
	return nil
}

func (r Release) writeManifests(folder string) error {
	for name, systems := range manifests {
		if len(r.On(systems...)) == 0 {
			continue
		}
		if err := render(name, filepath.Join(folder, name), r); err != nil {
			return err
		}
	}
	return nil
}

// On returns the archives for the systems.
func (r Release) On(systems ...string) []Archive {
	return slices.DeleteFunc(slices.Clone(r.Archives), func(a Archive) bool { return !slices.Contains(systems, a.OS) })
}

// Number returns the version without its v, as package managers want it.
func (r Release) Number() string { return strings.TrimPrefix(r.Version, "v") }

// Base returns the URL with a folder for each version.
func (r Release) Base() string { return strings.TrimSuffix(r.Downloads, "/"+path.Base(r.Downloads)) }

func render(name, file string, data any) error {
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, name, data); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// pack runs nfpm, which writes a package in a format of Linux distributions.
func (r Release) pack(ctx context.Context, archive Archive, format, file string) error {
	scratch, err := os.MkdirTemp("", "runlevel-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	config := filepath.Join(scratch, "nfpm.yaml")
	if err := render("nfpm.yaml", config, struct {
		Release
		Archive
		Format string
	}{r, archive, format}); err != nil {
		return err
	}
	nfpm := exec.CommandContext(ctx, "go", "tool", "nfpm", "package", "--config", config, "--packager", format,
		"--target", file)
	nfpm.Dir = filepath.Join(r.Source, "tools", "packaging")
	if output, err := nfpm.CombinedOutput(); err != nil {
		return fmt.Errorf("nfpm: %w\n%s", err, output)
	}
	return nil
}
