package mirror_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/release/mirror"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestAReleaseIsCopiedToARegistry with all platforms, signatures and referrers, whatever the registries are like. A
// second copy writes nothing.
func TestAReleaseIsCopiedToARegistry(t *testing.T) {
	for name, test := range map[string]struct {
		hasReferrers, targetHas bool
		targetsOwn              func(http.Handler) http.Handler
		listen                  func(net.Listener) net.Listener
		path                    string
	}{
		"with referrers":          {hasReferrers: true, targetHas: true, path: "mirror/a/"},
		"without referrers":       {},
		"only at the source":      {hasReferrers: true, path: "x/"},
		"only at the destination": {targetHas: true},
		"dropped connections":     {listen: drop, targetHas: true},
		"credentials":             {targetsOwn: withPassword, targetHas: true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.listen == nil {
				test.listen = func(l net.Listener) net.Listener { return l }
			}
			from := newShop(t, serveAt(t, test.hasReferrers, nil, test.listen), "")
			target := serveAt(t, test.targetHas, test.targetsOwn, test.listen)
			folder := t.TempDir()
			config := `{"auths": {"` + target.host + `": {"username": "shop", "password": "secret"}}}`
			if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("DOCKER_CONFIG", folder)
			m := mirrored(t, from.release, strings.TrimSuffix(target.host+"/"+test.path, "/"), insecure)
			from.expectAt(t, target, test.path)
			if m.Missing != m.Bytes || m.Bytes < from.bytes {
				t.Errorf("%d of %d bytes were missing, and the layers have %d", m.Missing, m.Bytes, from.bytes)
			}
			target.delete(t, test.path+"shop/web:digest-"+from.web.Hex[:12])
			mirrored(t, from.release, strings.TrimSuffix(target.host+"/"+test.path, "/"), insecure)
			from.expectAt(t, target, test.path)
			written := target.written.Load()
			again := mirrored(t, from.release, strings.TrimSuffix(target.host+"/"+test.path, "/"), insecure)
			if again.Missing != 0 || target.written.Load() != written {
				t.Errorf("a second copy has written: %d requests, %d bytes", target.written.Load()-written,
					again.Missing)
			}
		})
	}
}

// policy is the ConfigMap of a release with a store of signatures.
const policy = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "verification", "namespace": "shop",
"annotations": {"release.openshift.io/verification-config-map": ""}},
"data": {"verifier-public-key-shop": %q, "store-web": %q}}`

// TestAReleaseIsCarriedInAFolder to a registry without access to the first one, with the OpenPGP signatures of the
// store that it names and of another one. The settings of the registry have them, too.
func TestAReleaseIsCarriedInAFolder(t *testing.T) {
	key, sign := newKey(t)
	signatures := t.TempDir()
	store := httptest.NewServer(http.FileServer(http.Dir(signatures)))
	defer store.Close()
	from := newShop(t, serve(t, true, nil), fmt.Sprintf(policy, key, store.URL))
	other := t.TempDir()
	sign(signatures, from.digest.String())
	sign(other, from.digest.String())
	folder := filepath.Join(t.TempDir(), "carry")
	options := insecure
	options.SignatureStores = []string{other}
	mirrored(t, from.release, folder, options)
	if again := mirrored(t, from.release, folder, options); again.Missing != 0 {
		t.Errorf("a second copy would write %d bytes", again.Missing)
	}
	from.http.Close()
	store.Close()

	damaged := filepath.Join(folder, "blobs/sha256", from.child.Hex)
	text := must[[]byte](t)(os.ReadFile(damaged))
	target := serve(t, false, nil)
	if err := os.WriteFile(damaged, text[1:], 0o644); err != nil {
		t.Fatal(err)
	}
	expectErrors(t, folder, target.host+"/x", map[string]string{"shop/web@": "content", "shop/release@": "not copied"})
	if err := os.WriteFile(damaged, text, 0o644); err != nil {
		t.Fatal(err)
	}
	m := mirrored(t, folder, target.host+"/x", insecure)
	from.expectAt(t, target, "x/")
	got := settings(t, m, from.host, target.host)
	found := 0
	for i := range 2 {
		text, exists := got[fmt.Sprintf("signatures/sha256=%s/signature-%d", from.digest.Hex, i+1)]
		if exists && strings.Contains(got["signatures.yaml"], base64.StdEncoding.EncodeToString([]byte(text))) {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 signatures are among the settings:\n%s", found, got["signatures.yaml"])
	}
}

// TestAReleaseIsBuiltAgain with the same tag: a folder has both, and the tag names the newer one in the registry.
func TestAReleaseIsBuiltAgain(t *testing.T) {
	first := newShop(t, serve(t, true, nil), "")
	folder, target := filepath.Join(t.TempDir(), "carry"), serve(t, true, nil)
	mirrored(t, first.release, folder, insecure)
	second := newShop(t, first.server, "")
	mirrored(t, second.release, folder, insecure)
	mirrored(t, folder, target.host, insecure)
	second.expectAt(t, target, "")
	if digest := first.digest.String(); target.digest(t, "shop/release@"+digest) != digest {
		t.Error("the first release is lost")
	}
}

// settings returns the settings of a mirror by their names, with SOURCE and TO for the registries.
func settings(t *testing.T, m *mirror.Mirror, from, target string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, file := range must[[]mirror.File](t)(m.Settings(t.Context())) {
		replace := strings.NewReplacer(from, "SOURCE", strings.Replace(from, ":", "-", 1), "SOURCE", target, "TO")
		got[replace.Replace(file.Name)] = replace.Replace(string(file.Text))
	}
	return got
}

func TestSettingsForClusters(t *testing.T) {
	from, target := newShop(t, serve(t, true, nil), ""), serve(t, true, nil)
	m := mirrored(t, from.release, target.host+"/copies", insecure)
	want := map[string]string{
		"operator.yaml": "image-mirror: SOURCE=TO/copies\n",
		"certs.d/SOURCE/hosts.toml": `server = "https://SOURCE"

[host."http://TO/v2/copies"]
  capabilities = ["pull", "resolve"]
  override_path = true
`,
		"mirror-sets.yaml": `apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata:
  name: mirror-SOURCE
spec:
  imageDigestMirrors:
  - mirrors:
    - TO/copies
    source: SOURCE
---
apiVersion: config.openshift.io/v1
kind: ImageTagMirrorSet
metadata:
  name: mirror-SOURCE
spec:
  imageTagMirrors:
  - mirrors:
    - TO/copies
    source: SOURCE
`,
	}
	if diff := cmp.Diff(want, settings(t, m, from.host, target.host)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListsForOtherTools(t *testing.T) {
	from := newShop(t, serve(t, true, nil), "")
	releases := must[[]*mirror.Release](t)(mirror.Read(t.Context(), from.release, insecure.Source))
	images := []string{"HOST/shop/tools/migrate:1.0", "HOST/shop/web@" + from.web.String(),
		"HOST/shop/release@" + from.digest.String()}
	for format, want := range map[mirror.ListFormat]string{
		mirror.Txt: strings.Join(images, "\n") + "\n",
		mirror.Hauler: "apiVersion: content.hauler.cattle.io/v1\nkind: Images\nmetadata:\n  name: release\nspec:\n" +
			"  images:\n  - name: " + strings.Join(images, "\n  - name: ") + "\n",
		mirror.ImageSet: "apiVersion: mirror.openshift.io/v2alpha1\nkind: ImageSetConfiguration\nmirror:\n" +
			"  additionalImages:\n  - name: " + strings.Join(images, "\n  - name: ") + "\n",
	} {
		got := strings.ReplaceAll(string(must[[]byte](t)(mirror.List(releases, format))), from.host, "HOST")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}

// expectErrors mirrors a release, and compares the errors of its images: by a part of their names, with words of the
// errors.
func expectErrors(t *testing.T, from, target string, want map[string]string) *mirror.Mirror {
	t.Helper()
	m, err := run(t.Context(), t, from, target, insecure)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range m.Items {
		wanted := ""
		for part, words := range want {
			if strings.Contains(item.Image, part) {
				wanted = words
			}
		}
		if (item.Error != "") != (wanted != "") || !strings.Contains(item.Error, wanted) {
			t.Errorf("%s has the error %q, want %q", item.Image, item.Error, wanted)
		}
	}
	if m.Failed() != len(want) {
		t.Errorf("%d images failed, want %d", m.Failed(), len(want))
	}
	return m
}

// TestOneFailureHidesNoOther: other images are copied, and the release is not.
func TestOneFailureHidesNoOther(t *testing.T) {
	isMissing := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/shop/tools/migrate/") }
	from := newShop(t, serve(t, true, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isMissing(r) {
				http.NotFound(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}), "")
	target := serve(t, true, nil)
	expectErrors(t, from.release, target.host, map[string]string{
		"shop/tools/migrate": "the registry has no such image",
		"shop/release":       "not copied, since its images are not complete",
	})
	if target.digest(t, "shop/web@"+from.web.String()) == "" || target.digest(t, "shop/release:1.0.0") != "" {
		t.Error("the other image was not copied, or the release was")
	}
}

// TestTheDestinationIsAskedAgain after the copy: a registry may lose what it has accepted.
func TestTheDestinationIsAskedAgain(t *testing.T) {
	from := newShop(t, serve(t, true, nil), "")
	target := serve(t, true, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/shop/tools/migrate/manifests/") {
				w.WriteHeader(http.StatusCreated)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	expectErrors(t, from.release, target.host, map[string]string{
		"shop/tools/migrate": "after the copy, the destination lacks " + from.tool.String(),
		"shop/release":       "not copied, since its images are not complete",
	})
}

// TestCredentialsExpireDuringACopy of the source: the error says what to do, and the next copy continues.
func TestCredentialsExpireDuringACopy(t *testing.T) {
	var left atomic.Int64
	left.Store(25)
	from := newShop(t, serve(t, true, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if left.Add(-1) < 0 {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}), "")
	folder := filepath.Join(t.TempDir(), "carry")
	m, err := run(t.Context(), t, from.release, folder, insecure)
	if err != nil || m.Failed() == 0 {
		t.Fatalf("%v, %d images failed", err, m.Failed())
	}
	for _, item := range m.Items {
		if item.Error != "" && !strings.Contains(item.Error, "log in to") &&
			!strings.Contains(item.Error, "not copied") {
			t.Errorf("the error is %q", item.Error)
		}
	}
	expectIncomplete(t, folder)
	left.Store(1 << 40)
	mirrored(t, from.release, folder, insecure)
}

// expectIncomplete fails the test if a folder can be a source.
func expectIncomplete(t *testing.T, folder string) {
	t.Helper()
	_, err := mirror.Read(t.Context(), folder, insecure.Source)
	if err == nil || !strings.Contains(err.Error(), "not complete: mirror to it again") {
		t.Errorf("the error of an incomplete folder is %v", err)
	}
}

// TestAKilledCopyContinues counts the bytes that the source sends: a killed process leaves what it has copied.
func TestAKilledCopyContinues(t *testing.T) {
	if destination := os.Getenv("TEST_MIRROR_TO"); destination != "" { // the process to kill
		mirrored(t, os.Getenv("TEST_MIRROR_FROM"), destination, insecure)
		return
	}
	for _, kind := range []string{"folder", "registry"} {
		t.Run(kind, func(t *testing.T) {
			var isSlow atomic.Bool
			isSlow.Store(true)
			var s *server
			s = serve(t, true, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if isSlow.Load() && s.sent.Load() > 2*layerSize {
						<-r.Context().Done()
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			from, target := newShop(t, s, ""), serve(t, true, nil)
			destination := target.host
			if kind == "folder" {
				destination = filepath.Join(t.TempDir(), "carry")
			}
			child := exec.Command(os.Args[0], "-test.run=^TestAKilledCopyContinues$")
			child.Env = append(os.Environ(), "TEST_MIRROR_FROM="+from.release, "TEST_MIRROR_TO="+destination)
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Eventually(t, "two layers have arrived", func(context.Context) bool {
				blobs, _ := filepath.Glob(filepath.Join(destination, "blobs/sha256/*"))
				return len(slices.DeleteFunc(blobs, isSmall)) >= 2 || target.stored.Load() >= 2
			})
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait()
			isSlow.Store(false)
			before := s.sent.Load()
			mirrored(t, from.release, destination, insecure)
			if after := s.sent.Load() - before; after > from.bytes-layerSize {
				t.Errorf("the source has sent %d bytes after the kill, of %d", after, from.bytes)
			}
		})
	}
}

// isSmall reports whether a file is not a whole layer.
func isSmall(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Size() < layerSize || strings.HasSuffix(path, ".partial")
}

func TestAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a small file system")
	}
	small := t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", small).Run(); err != nil {
		t.Skip("can't mount a small file system:", err)
	}
	defer func() { _ = exec.Command("umount", small).Run() }()
	from := newShop(t, serve(t, true, nil), "")
	m, err := run(t.Context(), t, from.release, filepath.Join(small, "carry"), insecure)
	if err == nil && m.Failed() > 0 {
		err = errors.New(m.Items[0].Error + m.Items[1].Error)
	}
	if err == nil || !strings.Contains(err.Error(), "is full: free some space") {
		t.Errorf("the error is %v", err)
	}
	expectIncomplete(t, filepath.Join(small, "carry"))
}

// localRelease returns the folder of a release with an image of registry.example.
func localRelease(t *testing.T) string {
	t.Helper()
	local := t.TempDir()
	for name, text := range map[string]string{
		"release-metadata": `{"kind": "cincinnati-metadata-v0", "version": "1.0.0"}`,
		"image-references": `{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1",
			"metadata": {"name": "1.0.0"}, "spec": {"tags": [{"name": "web", "from": {"kind": "DockerImage",
			"name": "registry.example/web@sha256:` + strings.Repeat("0", 64) + `"}}]}}`,
		"0000_10_shop.yaml": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}`,
	} {
		if err := os.WriteFile(filepath.Join(local, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return local
}

func TestDestinationsThatAreRefused(t *testing.T) {
	from := newShop(t, serve(t, true, nil), "")
	folder, full := filepath.Join(t.TempDir(), "carry"), t.TempDir()
	mirrored(t, from.release, folder, insecure)
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	local := localRelease(t)
	for name, test := range map[string]struct{ from, to, want string }{
		"the source":                  {from.release, from.host, "is where the release comes from"},
		"above the source":            {from.release, from.host + "/shop", "is where the release comes from"},
		"a folder of a folder":        {folder, folder + "-2", `copy it with "cp -r"`},
		"another folder":              {from.release, full, "neither an OCI image layout nor empty"},
		"a folder of a local release": {local, folder + "-2", "push the release first"},
		"a tag":                       {from.release, "127.0.0.1:6203/t2:1.0.0", "write a registry without scheme"},
		"a digest":                    {from.release, "a/b@sha256:0", "write a registry without scheme"},
		"nothing":                     {from.release, "", "write a registry without scheme"},
		"a scheme":                    {from.release, "docker://registry.example/x", "write a registry without scheme"},
		"capital letters":             {from.release, "registry.example/Shop", "and capital letters"},
		"an archive":                  {from.release, folder + ".tar", "it is a file"},
		"a file":                      {from.release, filepath.Join(full, "file"), "it is a file"},
	} {
		m, err := run(t.Context(), t, test.from, test.to, insecure)
		if m != nil || !errors.Is(err, mirror.ErrDestination) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestSignatureStores that do not answer fail the copy of the release, unless another one has a signature. One that
// answers with a page is not a store.
func TestSignatureStores(t *testing.T) {
	key, sign := newKey(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "<html>welcome")
	}))
	defer page.Close()
	for name, test := range map[string]struct{ store, want string }{
		"away": {"http://127.0.0.1:1", "connection refused"},
		"page": {page.URL, "it is not a signed OpenPGP message"},
	} {
		t.Run(name, func(t *testing.T) {
			from, target := newShop(t, serve(t, true, nil), fmt.Sprintf(policy, key, test.store)), serve(t, true, nil)
			expectErrors(t, from.release, target.host, map[string]string{"shop/release": test.want})
			options, signatures := insecure, t.TempDir()
			sign(signatures, from.digest.String())
			options.SignatureStores = []string{signatures}
			m := mirrored(t, from.release, target.host, options)
			options.SignatureStores = append(options.SignatureStores, signatures+"/nothere")
			if _, err := run(t.Context(), t, from.release, target.host, options); err == nil {
				t.Error("a store of --signature-store that is not there is accepted")
			}
			if len(m.Notes) != 1 || !strings.Contains(m.Notes[0], test.want) {
				t.Errorf("the notes are %q", m.Notes)
			}
		})
	}
}
