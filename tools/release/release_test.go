package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdx "github.com/spdx/tools-golang/json"
	"github.com/xeipuuv/gojsonschema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

const version = "v0.1.0-rc.1"

// A builtRelease is a release of the worktree, in a folder.
type builtRelease struct {
	folder, key string
	platforms   []string
}

// TestRelease builds a release for one platform, or for those of RUNLEVEL_TEST_RELEASE_PLATFORMS, such as
// linux/amd64,linux/arm64,windows/amd64.
func TestRelease(t *testing.T) {
	sandboxtest.SkipInShort(t, "links the programs")
	r := builtRelease{
		folder: filepath.Join(t.TempDir(), "release"), key: newKey(t), platforms: []string{"linux/" + runtime.GOARCH},
	}
	if named := os.Getenv("RUNLEVEL_TEST_RELEASE_PLATFORMS"); named != "" {
		r.platforms = strings.Split(named, ",")
	}
	r.build(t, "../..", r.folder)
	t.Run("archives", r.testArchives)
	t.Run("signatures", r.testSignatures)
	t.Run("images", r.testImages)
	t.Run("documents", r.testDocuments)
	t.Run("schemas", r.testSchemas)
	t.Run("manifests", r.testManifests)
	t.Run("payload", r.testPayload)
	t.Run("the same bytes elsewhere", r.testSameBytes)
}

func (r builtRelease) build(t *testing.T, source, folder string) {
	t.Helper()
	if err := write(t.Context(), options{
		version: version, source: source, output: folder, image: "registry.example/runlevel", key: r.key,
		platforms: r.platforms, isSnapshot: true,
	}); err != nil {
		t.Fatal(err)
	}
}

// newKey writes a private key, and returns its path.
func newKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "release.key")
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r builtRelease) path(name string) string { return filepath.Join(r.folder, name) }

func (r builtRelease) read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(r.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unpack returns the files of an archive.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	if strings.HasSuffix(path, ".zip") {
		archive, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		for _, entry := range archive.File {
			content, err := archive.Open(entry.Name)
			if err != nil {
				t.Fatal(err)
			}
			if files[entry.Name], err = io.ReadAll(content); err != nil {
				t.Fatal(err)
			}
		}
		return files
	}
	packed, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpackTar(t, packed, files)
	return files
}

func unpackTar(t *testing.T, packed io.Reader, files map[string][]byte) {
	t.Helper()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// output runs a program of a release. One for another processor is run by qemu.
func output(t *testing.T, content []byte, processor string, arguments ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, arguments...)
	if processor != runtime.GOARCH {
		emulator := map[string]string{"arm64": "qemu-aarch64-static", "amd64": "qemu-x86_64-static"}[processor]
		if _, err := exec.LookPath(emulator); err != nil {
			t.Skipf("%v: apt-get install qemu-user-static", err)
		}
		command = exec.Command(emulator, append([]string{program}, arguments...)...)
	}
	printed, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", arguments, err, printed)
	}
	return string(printed)
}

func (r builtRelease) testArchives(t *testing.T) {
	for _, platform := range r.platforms {
		system, processor, _ := strings.Cut(platform, "/")
		program, suffix := "runlevel", ".tar.gz"
		if system == "windows" {
			program, suffix = "runlevel.exe", ".zip"
		}
		files := unpack(t, r.path("runlevel_"+version+"_"+system+"_"+processor+suffix))
		for _, name := range []string{
			program, "LICENSE", "README.md", "completions/runlevel.bash", "completions/_runlevel",
			"completions/runlevel.fish", "completions/runlevel.ps1", "man/man1/runlevel.1",
			"man/man1/runlevel-release-build.1",
		} {
			if len(files[name]) == 0 {
				t.Errorf("the archive for %s has no %s", platform, name)
			}
		}
		if platform == runtime.GOOS+"/"+runtime.GOARCH {
			if printed := output(t, files[program], processor, "version"); !strings.HasPrefix(printed,
				"runlevel "+version+"\n  commit  ") {
				t.Errorf("runlevel version prints %s", printed)
			}
		}
	}
}

// testSignatures verifies the release by its own command, by cosign and by openssl.
func (r builtRelease) testSignatures(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(string(r.read(t, checksums))), "\n") {
		sum, name, _ := strings.Cut(line, "  ")
		if got, err := sumFile(r.path(name)); err != nil || got != sum {
			t.Errorf("%s has the checksum %s, %v; want %s", name, got, err, sum)
		}
	}
	for _, image := range []string{"image", "release"} {
		if _, err := runlevel(t.Context(), "release", "verify", r.path("runlevel-"+image+"_"+version+".tar"),
			"--key", r.path(publicKey), "--consumer", "operator,cri-o,cosign-2,cosign-3"); err != nil {
			t.Error(err)
		}
	}
	run := func(program string, arguments ...string) {
		t.Helper()
		command := exec.Command(program, arguments...)
		command.Dir = r.folder
		if printed, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arguments, err, printed)
		}
	}
	if _, err := exec.LookPath("openssl"); err == nil {
		signature := filepath.Join(t.TempDir(), "signature")
		run("openssl", "base64", "-d", "-A", "-in", checksums+".sig", "-out", signature)
		run("openssl", "dgst", "-sha256", "-verify", publicKey, "-signature", signature, checksums)
	}
	cosign := os.Getenv("RUNLEVEL_TEST_COSIGN")
	if cosign == "" {
		t.Skip("RUNLEVEL_TEST_COSIGN does not name cosign: .ci/run builds it")
	}
	run(cosign, "verify-blob", "--key", publicKey, "--signature", checksums+".sig", "--insecure-ignore-tlog", checksums)
	archive := "runlevel_" + version + "_linux_" + runtime.GOARCH + ".tar.gz"
	run(cosign, "verify-blob-attestation", "--key", publicKey, "--bundle", archive+".intoto.sigstore.json", "--type",
		"slsaprovenance1", "--insecure-ignore-tlog", archive)
}

// testImages starts the programs of the image, for each of its platforms.
func (r builtRelease) testImages(t *testing.T) {
	layout, index := r.openImage(t, "image")
	for _, described := range index.Manifests {
		t.Run(described.Platform.Architecture, func(t *testing.T) {
			manifest, err := oci.FindImage(t.Context(), layout, described, v1.Platform{})
			if err != nil {
				t.Fatal(err)
			}
			if manifest.Annotations["org.opencontainers.image.version"] != version {
				t.Errorf("the image has the annotations %v", manifest.Annotations)
			}
			t.Logf("the layer has %d MB", manifest.Layers[0].Size/1_000_000)
			files := filesOf(t, layout, described)
			for program, argument := range map[string]string{"runlevel": "version", "runlevel-cluster": "--version"} {
				printed := output(t, files[program], described.Platform.Architecture, argument)
				if !strings.Contains(printed, version) {
					t.Errorf("%s %s prints %s", program, argument, printed)
				}
			}
		})
	}
}

// filesOf returns the files of an image's first layer.
func filesOf(t *testing.T, layout *oci.Layout, described v1.Descriptor) map[string][]byte {
	t.Helper()
	manifest, err := oci.FindImage(t.Context(), layout, described,
		v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layout.Blob(t.Context(), manifest.Layers[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	files := map[string][]byte{}
	unpackTar(t, layer, files)
	return files
}

// openImage opens the layout of an image, and returns its index.
func (r builtRelease) openImage(t *testing.T, name string) (*oci.Layout, v1.IndexManifest) {
	t.Helper()
	layout, err := oci.OpenLayout(r.path("runlevel-" + name + "_" + version + ".tar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { layout.Close() })
	described, err := layout.Resolve(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := layout.Manifest(t.Context(), described)
	if err != nil {
		t.Fatal(err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	return layout, index
}

// testDocuments reads the SBOMs by the library of SPDX.
func (r builtRelease) testDocuments(t *testing.T) {
	names, err := filepath.Glob(r.path("*.spdx.json"))
	if err != nil || len(names) != len(r.platforms)+2 {
		t.Errorf("the SBOMs are %s, %v", names, err)
	}
	for _, name := range names {
		text := r.read(t, filepath.Base(name))
		document, err := spdx.Read(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		isPayload := strings.Contains(name, "runlevel-release_")
		if hasModule := strings.Contains(string(text), "pkg:golang/k8s.io/client-go@v0."); hasModule == isPayload {
			t.Errorf("%s lists client-go: %t", name, hasModule)
		}
		if document.SPDXVersion != "SPDX-2.3" || len(document.Relationships) != len(document.Packages) {
			t.Errorf("%s has version %s, %d packages and %d relationships", name, document.SPDXVersion,
				len(document.Packages), len(document.Relationships))
		}
		supplier := document.Packages[0].PackageSupplier
		if strings.Contains(document.DocumentNamespace, "#") || supplier == nil && !isPayload {
			t.Errorf("%s has the namespace %s, and the supplier %v", name, document.DocumentNamespace, supplier)
		}
		for _, part := range document.Packages {
			for _, reference := range part.PackageExternalReferences {
				if strings.Contains(reference.Locator, "+") {
					t.Errorf("%s has the package URL %s", name, reference.Locator)
				}
			}
		}
		if _, err := os.Stat(strings.TrimSuffix(name, ".spdx.json") + ".intoto.json"); err != nil {
			t.Error(err)
		}
	}
}

// testSchemas validates an object by the schema of its kind, and by the name that kubeconform looks for.
func (r builtRelease) testSchemas(t *testing.T) {
	files := unpack(t, r.path("schemas.tar.gz"))
	if len(files["schemas/plan.json"]) == 0 {
		t.Error("the schemas of JSON output are missing")
	}
	schema := gojsonschema.NewBytesLoader(files["crds/clusterversion-config-v1.json"])
	for object, isValid := range map[string]bool{
		`{"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
			"spec": {"clusterID": "", "channel": "stable"}}`: true,
		`{"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
			"spec": {"clusterID": "", "chanel": "stable"}}`: false,
	} {
		result, err := gojsonschema.Validate(schema, gojsonschema.NewStringLoader(object))
		if err != nil || result.Valid() != isValid {
			t.Errorf("%s is valid: %t, %v: %v", object, !isValid, err, result)
		}
	}
}

// kubectl runs kubectl, with the sandbox if there is one.
func kubectl(t *testing.T, s *sandbox.Sandbox, arguments ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skipf("%v: install kubectl", err)
	}
	if s != nil {
		arguments = append(arguments, "--kubeconfig", s.Kubeconfig)
	}
	var failed bytes.Buffer
	command := exec.Command("kubectl", arguments...)
	command.Stderr = &failed
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s%s", arguments, err, printed, &failed)
	}
	return printed
}

// objectsOf returns the objects of a text, by kind and name.
func objectsOf(t *testing.T, text []byte) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object unstructured.Unstructured
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if object.Object != nil {
			objects[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.Object
		}
	}
}

// testManifests compares the files with the sources, and applies them.
func (r builtRelease) testManifests(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{})
	install := string(r.read(t, "install.yaml"))
	layout, _ := r.openImage(t, "image")
	described, err := layout.Resolve(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	byTag := strings.ReplaceAll(install, "@"+described.Digest.String(), ":v0.1.0")
	if byTag == install {
		t.Errorf("install.yaml does not have the image %s", described.Digest)
	}
	byTag = strings.ReplaceAll(byTag, noRelease, "--payload-dir=/")
	kustomized := objectsOf(t, kubectl(t, nil, "kustomize", "../../install"))
	sameWords := cmp.Comparer(func(x, y string) bool { // kustomize adds line breaks to folded texts
		return slices.Equal(strings.Fields(x), strings.Fields(y))
	})
	if diff := cmp.Diff(kustomized, objectsOf(t, []byte(byTag)), sameWords); diff != "" {
		t.Errorf("install.yaml differs from install/ (-kustomize +release):\n%s", diff)
	}
	machines := objectsOf(t, r.read(t, "machines.yaml"))
	for _, object := range manifests.Objects() {
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if _, isApplied := machines[key]; !isApplied && object.GetKind() != "ClusterOperator" {
			t.Errorf("machines.yaml lacks %s", key)
		}
	}
	kubectl(t, s, "apply", "--server-side", "-f", r.path("machines.yaml"))
	kubectl(t, s, "-n", "runlevel-machines", "rollout", "status", "deployment/machine-controller", "--timeout=2m")
	r.testInstall(t, s)
	want := strings.TrimPrefix(version, "v") + " registry.example/runlevel@" + described.Digest.String()
	if applied := string(kubectl(t, s, "-n", "runlevel-machines", "get", "deployment", "machine-controller", "-o",
		"jsonpath={..env[0].value} {..image}")); applied != want {
		t.Errorf("the machine controller has version and image %s", applied)
	}
}

// testPayload pushes the release of operator and machine controller to a registry, and applies it from there.
func (r builtRelease) testPayload(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{})
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true),
		registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image := strings.TrimPrefix(server.URL, "http://") + "/runlevel-release:" + strings.TrimPrefix(version, "v")
	for _, arguments := range [][]string{
		{"release", "push", r.path("runlevel-release_" + version + ".tar"), image, "--insecure"},
		{
			"apply", image, "--insecure", "--kubeconfig", s.Kubeconfig,
			"--unmanaged", "ClusterOperator/machine-controller",
		},
	} {
		if _, err := runlevel(t.Context(), arguments...); err != nil {
			t.Fatal(err)
		}
	}
	repository, _, _ := strings.Cut(image, ":"+strings.TrimPrefix(version, "v"))
	if applied := string(kubectl(t, s, "-n", "runlevel-system", "get", "deployment", "runlevel-operator", "-o",
		"jsonpath={..args[0]}")); !strings.HasPrefix(applied, "--release-image="+repository+"@sha256:") {
		t.Errorf("the operator has the argument %s", applied)
	}
}

// testSameBytes builds the release in another folder, by a user with another home and umask. Only signatures differ:
// they are random.
func (r builtRelease) testSameBytes(t *testing.T) {
	source, folder := copySource(t), filepath.Join(t.TempDir(), "again")
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, strings.TrimSpace(string(value)))
	}
	t.Setenv("HOME", t.TempDir())
	useOtherSettings(t)
	defer syscall.Umask(syscall.Umask(0o077))
	r.build(t, source, folder)
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		t.Fatal(err)
	}
	again := builtRelease{folder: folder}
	for _, entry := range entries {
		name := entry.Name()
		isSigned := strings.HasPrefix(name, checksums) || strings.HasSuffix(name, ".tar") ||
			strings.HasSuffix(name, ".sigstore.json")
		if !isSigned && !bytes.Equal(r.read(t, name), again.read(t, name)) {
			t.Errorf("%s differs in another build", name)
		}
	}
	for _, image := range []string{"image", "release"} {
		first, _ := r.openImage(t, image)
		second, _ := again.openImage(t, image)
		want, err := first.Resolve(t.Context(), "")
		got, failed := second.Resolve(t.Context(), "")
		if err != nil || failed != nil || got.Digest != want.Digest {
			t.Errorf("the %s has digest %s in another build, want %s: %v, %v", image, got.Digest, want.Digest, err,
				failed)
		}
	}
}

// copySource copies the files of the worktree to another folder, with its commit.
func copySource(t *testing.T) string {
	t.Helper()
	git := func(arguments ...string) string {
		printed, err := exec.Command("git", append([]string{"-C", "../.."}, arguments...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(printed))
	}
	folder := t.TempDir()
	for _, name := range strings.Split(git("ls-files", "--cached", "--others", "--exclude-standard"), "\n") {
		target := filepath.Join(folder, name)
		content, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o755)
		}
		if err == nil {
			err = os.WriteFile(target, content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	link := "gitdir: " + git("rev-parse", "--absolute-git-dir") + "\n"
	if err := os.WriteFile(filepath.Join(folder, ".git"), []byte(link), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestRefused starts nothing if a release can't be built.
func TestRefused(t *testing.T) {
	folder := t.TempDir()
	git := func(arguments ...string) {
		t.Helper()
		arguments = append([]string{"-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.example"}, arguments...)
		if printed, err := exec.Command("git", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", arguments, err, printed)
		}
	}
	file := func(name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file("cmd/runlevel/main.go", "package main\n")
	file("CHANGELOG.md", "# Changelog\n\n## v0.2.0\n\n"+
		"New: [a](docs/a.md#b), [c](https://d.example).\n\n## v0.3.0-rc.1\n\nLater.\n\n## v0.1.0\n\nFirst.\n")
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "--message", "a")
	git("tag", "v0.1.0")
	git("commit", "--quiet", "--allow-empty", "--message", "b")
	output := filepath.Join(t.TempDir(), "release")
	refuses := func(o options, want string) {
		t.Helper()
		if o.output == "" {
			o.source, o.output = folder, output
		}
		if o.image == "" {
			o.image, o.platforms = "registry.example/runlevel", []string{"linux/amd64"}
		}
		err := write(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
		if _, err := os.Stat(output); err == nil {
			t.Error("a folder was written")
		}
	}
	refuses(options{version: "0.1.0"}, `-version "0.1.0" is not a semantic version: use one such as v0.1.0`)
	refuses(options{version: "v0.1"}, "is not a semantic version")
	refuses(options{version: "v0.1.0+build"}, "is not a semantic version")
	refuses(options{version: "v0.1.0", image: "registry.example/runlevel", platforms: []string{"darwin/arm64"}},
		"-platforms has none with linux")
	for _, platforms := range []string{
		"linux/amd64, linux/arm64", "linux/amd64,", "linux/foo", "linux/amd64,linux/amd64",
	} {
		refuses(options{
			version: "v0.1.0", image: "registry.example/runlevel", platforms: strings.Split(platforms, ","),
		}, "is unknown or a duplicate")
	}
	refuses(options{version: "v0.1.0", image: "registry.example/runlevel:v1", platforms: []string{"linux/arm64"}},
		"-image: name a repository without a tag")
	refuses(options{version: "v0.1.0"}, "the tag v0.1.0 is at commit ")
	refuses(options{version: "v0.3.0"}, `CHANGELOG.md has no section "## v0.3.0": rename "Unreleased" to it`)
	refuses(options{version: "v0.2.0"}, `"cosign generate-key-pair" creates one`)
	refuses(options{version: "v0.2.0", key: "/missing"}, "-key: open /missing")
	refuses(options{version: "v0.2.0", source: folder, output: folder}, "has files, but no release")
	file("downloads/checksums.txt", "abc  a.tar.gz\n")
	file("downloads/thesis.pdf", "")
	refuses(options{version: "v0.2.0", source: folder, output: filepath.Join(folder, "downloads")},
		"has thesis.pdf, which is not part of a release")
	refuses(options{version: "v0.2.0", source: folder, output: filepath.Join(folder, "CHANGELOG.md")},
		"-o: name a folder: ")
	if err := os.RemoveAll(filepath.Join(folder, "downloads")); err != nil {
		t.Fatal(err)
	}
	refuses(options{version: "v0.2.0", source: t.TempDir(), output: output},
		"-source is not the folder of the repository")
	file("copy/cmd/runlevel/main.go", "package main\n")
	refuses(options{version: "v0.2.0", source: filepath.Join(folder, "copy"), output: output},
		"is not a clone of the repository, whose commit is needed: use git clone (it is the folder copy/ of")
	if err := os.RemoveAll(filepath.Join(folder, "copy")); err != nil {
		t.Fatal(err)
	}
	file("new.txt", "")
	refuses(options{version: "v0.2.0"},
		"the worktree has changes: commit them, or pass -snapshot for a trial\n?? new.txt")

	d := &draft{options: options{version: "v0.2.0", source: folder}}
	if notes, err := d.notes(); err != nil || string(notes) != "New: [a]("+home+
		"/blob/v0.2.0/docs/a.md#b), [c](https://d.example).\n" {
		t.Errorf("the notes are %q, %v", notes, err)
	}
}
