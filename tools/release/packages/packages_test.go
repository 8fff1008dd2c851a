package packages

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const version = "v0.1.0"

// A published release is a folder of files that a local server has as a release of version.
type published struct {
	Release
	folder string
	key    *ecdsa.PrivateKey
}

// publish writes the archives of a release whose command is a shell script, and the files that come from templates.
func publish(t *testing.T) *published {
	t.Helper()
	root := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(root)))
	t.Cleanup(server.Close)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	check(t, err)
	p := &published{folder: filepath.Join(root, version), key: key, Release: Release{
		Version:   version,
		Time:      time.Date(2026, 1, 29, 12, 0, 0, 0, time.UTC),
		Downloads: server.URL + "/" + version,
		Key:       pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		Source:    "../../..",
	}}
	check(t, os.Mkdir(p.folder, 0o755))
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, processor := range []string{"amd64", "arm64"} {
			p.addArchive(t, system, processor)
		}
	}
	check(t, p.writeManifests(p.folder))
	p.sign(t)
	return p
}

// packages writes the packages of a format, and returns their files by processor.
func (p *published) packages(t *testing.T, format string) map[string]string {
	t.Helper()
	packed := map[string]string{}
	for _, archive := range p.On("linux") {
		packed[archive.Arch] = filepath.Join(p.folder, archive.Arch+"."+format)
		check(t, p.pack(t.Context(), archive, format, packed[archive.Arch]))
	}
	return packed
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *published) addArchive(t *testing.T, system, processor string) {
	t.Helper()
	archive := Archive{OS: system, Arch: processor, Contents: t.TempDir()}
	program, extension := "runlevel", ".tar.gz"
	if system == "windows" {
		program, extension = "runlevel.exe", ".zip"
	}
	archive.File = fmt.Sprintf("runlevel_%s_%s_%s%s", version, system, processor, extension)
	for name, text := range map[string]string{
		program: "#!/bin/sh\n# of " + system + "/" + processor + "\n" +
			"[ \"${1-}\" != render ] || exec cat \"$2\"/*\necho runlevel " + version + "\n",
		"LICENSE":                   "Apache License\n",
		"completions/runlevel.bash": "# bash\n",
		"completions/_runlevel":     "#compdef runlevel\n",
		"completions/runlevel.fish": "# fish\n",
		"man/man1/runlevel.1":       ".TH runlevel 1\n",
		"man/man1/runlevel-apply.1": ".TH runlevel-apply 1\n",
	} {
		mode := fs.FileMode(0o644)
		if name == program {
			mode = 0o755
		}
		file := filepath.Join(archive.Contents, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(text), mode))
	}
	// tar warns of files that are newer than the clock of the kernel, which ticks slowly.
	check(t, filepath.WalkDir(archive.Contents, func(file string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(file, time.Time{}, p.Time))
	}))
	var packed bytes.Buffer
	if system == "windows" {
		writer := zip.NewWriter(&packed)
		check(t, writer.AddFS(os.DirFS(archive.Contents)))
		check(t, writer.Close())
	} else {
		compressor := gzip.NewWriter(&packed)
		writer := tar.NewWriter(compressor)
		check(t, writer.AddFS(os.DirFS(archive.Contents)))
		check(t, writer.Close())
		check(t, compressor.Close())
	}
	check(t, os.WriteFile(filepath.Join(p.folder, archive.File), packed.Bytes(), 0o644))
	archive.SHA256 = digest(packed.Bytes())
	p.Archives = append(p.Archives, archive)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// sign writes the checksums of the files, and their signature.
func (p *published) sign(t *testing.T) {
	t.Helper()
	text := p.writeChecksums(t)
	sum := sha256.Sum256(text)
	signature, err := ecdsa.SignASN1(rand.Reader, p.key, sum[:])
	check(t, err)
	encoded := base64.StdEncoding.EncodeToString(signature)
	check(t, os.WriteFile(filepath.Join(p.folder, "checksums.txt.sig"), []byte(encoded), 0o644))
}

func (p *published) writeChecksums(t *testing.T) []byte {
	t.Helper()
	var text bytes.Buffer
	for name, content := range read(t, p.folder) {
		if !strings.HasPrefix(name, "checksums") {
			fmt.Fprintf(&text, "%s  %s\n", digest([]byte(content)), name)
		}
	}
	check(t, os.WriteFile(filepath.Join(p.folder, "checksums.txt"), text.Bytes(), 0o644))
	return text.Bytes()
}

// read returns the texts of the files of a folder by their names.
func read(t *testing.T, folder string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	check(t, filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		name, _ = filepath.Rel(folder, name)
		texts[name] = string(text)
		return err
	}))
	return texts
}

// program skips a test without a program.
func program(t *testing.T, name string) string {
	t.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is needed: apt-get install %s", name, name)
	}
	return file
}

// run runs a command, which must succeed, and returns its output.
func run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

func TestSameReleaseHasTheSameBytes(t *testing.T) {
	p := publish(t)
	check(t, Write(t.Context(), p.folder, p.Release))
	first := read(t, p.folder)
	for _, archive := range p.Archives {
		for name := range read(t, archive.Contents) {
			file := filepath.Join(archive.Contents, name)
			check(t, os.Chtimes(file, time.Now(), time.Now().Add(time.Hour)))
			check(t, os.Chmod(file, 0o700))
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	check(t, Write(t.Context(), p.folder, p.Release))
	for name, text := range read(t, p.folder) {
		if first[name] != text {
			t.Errorf("%s differs in the second run", name)
		}
	}
	for _, want := range []string{"runlevel_v0.1.0_linux_arm64.deb", "runlevel_v0.1.0_linux_amd64.rpm"} {
		if first[want] == "" {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestTrialOfOnePlatform(t *testing.T) {
	p := publish(t)
	p.Archives = p.On("linux")[:1]
	folder := t.TempDir()
	check(t, Write(t.Context(), folder, p.Release))
	written := read(t, folder)
	if written["runlevel.json"] != "" || strings.Contains(written["runlevel.rb"], "on_macos") ||
		written["install.sh"] == "" {
		t.Errorf("got %d files, with those of other systems or without those of Linux:\n%s", len(written),
			written["runlevel.rb"])
	}
}

// installed are the files that a package or the script installs below a prefix.
var installed = []string{
	"bin/runlevel",
	"share/bash-completion/completions/runlevel",
	"share/fish/vendor_completions.d/runlevel.fish",
	"share/man/man1/runlevel-apply.1",
	"share/man/man1/runlevel.1",
}

func TestDebianPackage(t *testing.T) {
	program(t, "dpkg")
	packages := publish(t).packages(t, "deb")
	for processor, file := range packages {
		if got := run(t, "dpkg-deb", "--field", file, "Architecture"); got != processor+"\n" {
			t.Errorf("the package for %s is for %s", processor, got)
		}
		if got := run(t, "dpkg-deb", "--fsys-tarfile", file); !strings.Contains(got, "# of linux/"+processor+"\n") {
			t.Errorf("the package for %s has another program", processor)
		}
	}
	root := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755))
	check(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755))
	check(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	dpkg := []string{"--force-not-root", "--force-architecture", "--force-script-chrootless", "--log=" + os.DevNull,
		"--root=" + root}
	run(t, "dpkg", append(dpkg, "--install", packages["amd64"])...)
	expectPackage(t, root, "usr/share/zsh/vendor-completions/_runlevel", "usr/share/doc/runlevel/copyright")
	status := run(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"),
		"--showformat=${Version} ${Status}",
		"--show", "runlevel")
	if status != "0.1.0 install ok installed" {
		t.Errorf("got status %q", status)
	}
	run(t, "dpkg", append(dpkg, "--purge", "runlevel")...)
	if left := read(t, root); left["usr/bin/runlevel"] != "" {
		t.Error("the command was not removed")
	}
}

func TestRPMPackage(t *testing.T) {
	program(t, "rpm")
	if os.Getuid() != 0 {
		t.Skip("rpm --root needs root")
	}
	packages := publish(t).packages(t, "rpm")
	query := run(t, "rpm", "--query", "--queryformat", "%{NVRA}: %{SUMMARY}: %{DESCRIPTION}", "--package",
		packages["arm64"])
	if !strings.HasPrefix(query, "runlevel-0.1.0-1.aarch64: Install and update Kubernetes components as one "+
		"versioned release: Runlevel applies a release") {
		t.Errorf("got package %q", query)
	}
	root := t.TempDir()
	rpm := []string{"--root", root, "--ignorearch", "--nodeps"}
	run(t, "rpm", append(rpm, "--install", packages["amd64"])...)
	expectPackage(t, root, "usr/share/zsh/site-functions/_runlevel", "usr/share/licenses/runlevel/LICENSE")
	name := run(t, "rpm", "--root", root, "--query", "--queryformat", "%{NVRA} built on %{BUILDHOST}", "runlevel")
	if name != "runlevel-0.1.0-1.x86_64 built on localhost" {
		t.Errorf("got package %q", name)
	}
	run(t, "rpm", "--root", root, "--erase", "runlevel")
	if left := read(t, root); left["usr/bin/runlevel"] != "" {
		t.Error("the command was not removed")
	}
}

func expectPackage(t *testing.T, root string, more ...string) {
	t.Helper()
	texts := read(t, root)
	for _, name := range installed {
		more = append(more, "usr/"+name)
	}
	for _, name := range more {
		if texts[name] == "" {
			t.Errorf("%s is not installed", name)
		}
	}
	for _, command := range []string{"runlevel", "kubectl-runlevel"} {
		if output := run(t, filepath.Join(root, "usr/bin", command)); output != "runlevel v0.1.0\n" {
			t.Errorf("%s prints %q", command, output)
		}
	}
	info, err := os.Stat(filepath.Join(root, "usr/bin/runlevel"))
	check(t, err)
	if info.Mode().Perm() != 0o755 || !info.ModTime().Equal(time.Date(2026, 1, 29, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("got mode %v and time %v of the command", info.Mode(), info.ModTime().UTC())
	}
}
