package mirror_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/release/mirror"
)

// TestADamagedFolderIsRepaired by a second copy, wherever the damage is.
func TestADamagedFolderIsRepaired(t *testing.T) {
	from := newShop(t, serve(t, true, nil), "")
	folder := filepath.Join(t.TempDir(), "carry")
	mirrored(t, from.release, folder, insecure)
	for name, digest := range map[string]v1.Hash{
		"release": from.digest, "index": from.web, "image": from.child, "SBOM": from.sbom,
	} {
		for _, damage := range []func(path string) error{
			os.Remove, func(path string) error { return os.WriteFile(path, []byte("{}"), 0o644) },
		} {
			path := filepath.Join(folder, "blobs/sha256", digest.Hex)
			text := must[[]byte](t)(os.ReadFile(path))
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			mirrored(t, from.release, folder, insecure)
			if got, err := os.ReadFile(path); string(got) != string(text) {
				t.Errorf("%s: the manifest is %.20q, %v", name, got, err)
			}
		}
	}
}

// TestAFolderKeepsAllTags of a release, and lists last the release that was mirrored last.
func TestAFolderKeepsAllTags(t *testing.T) {
	first := newShop(t, serve(t, true, nil), "")
	image := must[v1.Image](t)(
		remote.Image(must[name.Reference](t)(name.ParseReference(first.inner + "/shop/release:1.0.0"))),
	)
	first.push(t, "shop/release:stable", image)
	folder, target := filepath.Join(t.TempDir(), "carry"), serve(t, true, nil)
	mirrored(t, first.release, folder, insecure)
	second := newShop(t, first.server, "")
	mirrored(t, second.release, folder, insecure)
	mirrored(t, first.host+"/shop/release:stable", folder, insecure)
	releases := must[[]*mirror.Release](t)(mirror.Read(t.Context(), folder, insecure.Source))
	list := string(must[[]byte](t)(mirror.List(releases, mirror.Txt)))
	if want := "/shop/release@" + first.digest.String() + "\n"; !strings.HasSuffix(list, want) {
		t.Errorf("the list does not end with %s:\n%s", want, list)
	}
	first.push(t, "shop/release:newest", image)
	mirrored(t, first.host+"/shop/release:newest", folder, insecure)
	mirrored(t, folder, target.host, insecure)
	second.expectAt(t, target, "")
	for _, tag := range []string{"stable", "newest"} {
		if got := target.digest(t, "shop/release:"+tag); got != first.digest.String() {
			t.Errorf("%s is %q", tag, got)
		}
	}
}

// TestInsecureSettings: --insecure for the source leaves the verification of a destination with a good certificate on.
func TestInsecureSettings(t *testing.T) {
	from := newShop(t, serve(t, true, nil), "")
	for _, isTrusted := range []bool{false, true} { // Go reads the authorities of SSL_CERT_FILE once
		t.Run(fmt.Sprint("trusted ", isTrusted), func(t *testing.T) {
			plain := serve(t, true, nil)
			target := httptest.NewTLSServer(plain.http.Config.Handler)
			defer target.Close()
			if isTrusted {
				file := filepath.Join(t.TempDir(), "ca.crt")
				text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: target.Certificate().Raw})
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("SSL_CERT_FILE", file)
			}
			host := strings.TrimPrefix(target.URL, "https://")
			got := settings(t, mirrored(t, from.release, host, insecure), from.host, host)["certs.d/SOURCE/hosts.toml"]
			if strings.Contains(got, "skip_verify") == isTrusted || !strings.Contains(got, `[host."https://TO/v2"]`) {
				t.Errorf("hosts.toml is\n%s", got)
			}
		})
	}
}

// TestSettingsOfALocalRelease name the registries of its images.
func TestSettingsOfALocalRelease(t *testing.T) {
	target := serve(t, true, nil)
	m, err := run(t.Context(), t, localRelease(t), target.host, insecure)
	if err != nil {
		t.Fatal(err)
	}
	if got := settings(t, m, "registry.example", target.host); got["certs.d/SOURCE/hosts.toml"] == "" {
		t.Errorf("the settings are %q", got)
	}
}

// TestDeletedObjectsNeedNoImages: a tombstone keeps the manifest of an object whose image may be lost.
func TestDeletedObjectsNeedNoImages(t *testing.T) {
	from := newShop(t, serve(t, true, nil), `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "old",
"namespace": "shop", "annotations": {"release.openshift.io/delete": "true"}}, "spec": {"template": {"spec": {
"containers": [{"name": "old", "image": "registry.invalid/old:1"}]}}}}`)
	if m := mirrored(t, from.release, serve(t, true, nil).host, insecure); len(m.Items) != 3 {
		t.Errorf("%d images", len(m.Items))
	}
}

// TestManyRepositories need few connections, since a process may open few files.
func TestManyRepositories(t *testing.T) {
	const count, maxOpen = 60, 40
	var open, most atomic.Int64
	s := serve(t, true, nil)
	var pods []string
	for i := range count {
		repository := fmt.Sprintf("shop/many-%d:1", i)
		s.push(t, repository, must[v1.Image](t)(random.Image(10, 1)))
		pods = append(pods, fmt.Sprintf(`{"name": "a%d", "image": "%s/%s"}`, i, s.host, repository))
	}
	from := newShop(t, s, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "many", "namespace": "shop"},
"spec": {"containers": [`+strings.Join(pods, ",")+`]}}`)
	target := httptest.NewUnstartedServer(serve(t, true, nil).http.Config.Handler)
	target.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	target.TLS = &tls.Config{}
	target.StartTLS()
	defer target.Close()
	mirrored(t, from.release, strings.TrimPrefix(target.URL, "https://"), insecure)
	if most.Load() > maxOpen {
		t.Errorf("%d connections were open", most.Load())
	}
}

// TestSignaturesOfTheDestinationAreKept, and those of each source with the same image are added to them.
func TestSignaturesOfTheDestinationAreKept(t *testing.T) {
	for _, kind := range []string{"registry", "folder"} {
		t.Run(kind, func(t *testing.T) {
			from, target := newShop(t, serve(t, true, nil), ""), serve(t, true, nil)
			tag := fmt.Sprintf("shop/web:sha256-%s.sig", from.web.Hex)
			target.push(t, tag, signed(t, "by the company"))
			destination := target.host
			if kind == "folder" {
				destination = filepath.Join(t.TempDir(), "carry")
			}
			mirrored(t, from.release, destination, insecure)
			from.push(t, tag, signed(t, "by the vendor", "again"))
			mirrored(t, from.release, destination, insecure)
			written := target.written.Load()
			mirrored(t, from.release, destination, insecure)
			if kind == "folder" {
				mirrored(t, destination, target.host, insecure)
			} else if target.written.Load() != written {
				t.Error("another copy has written")
			}
			var got []string
			image := must[v1.Image](t)(
				remote.Image(must[name.Reference](t)(name.ParseReference(target.inner + "/" + tag))),
			)
			for _, layer := range must[[]v1.Layer](t)(image.Layers()) {
				content := must[io.ReadCloser](t)(layer.Compressed())
				got = append(got, string(must[[]byte](t)(io.ReadAll(content))))
			}
			want := []string{"by the vendor", "again", "by the company"}
			if len(got) < 3 || !slices.Equal(slices.DeleteFunc(got, func(text string) bool { return len(text) > 20 }),
				want) {
				t.Errorf("the signatures are %q", got)
			}
			if config := must[*v1.ConfigFile](t)(image.ConfigFile()); len(config.RootFS.DiffIDs) != 4 {
				t.Errorf("the config is %v", config)
			}
		})
	}
}

// signed returns an image with signatures, as cosign writes it.
func signed(t *testing.T, texts ...string) v1.Image {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, text := range texts {
		image = must[v1.Image](t)(mutate.AppendLayers(image,
			static.NewLayer([]byte(text), "application/vnd.dev.cosign.simplesigning.v1+json")))
	}
	return image
}

// TestOddReferrers: an artifact of the draft of OCI 1.1 is copied, and one that is only listed is a note.
func TestOddReferrers(t *testing.T) {
	from, target := newShop(t, serve(t, false, nil), ""), serve(t, true, nil)
	layer := static.NewLayer([]byte("sbom"), "text/spdx")
	repository := must[name.Repository](t)(name.NewRepository(from.inner + "/shop/web"))
	if err := remote.WriteLayer(repository, layer); err != nil {
		t.Fatal(err)
	}
	digest := must[v1.Hash](t)(layer.Digest())
	artifact := rawManifest{fmt.Sprintf(`{"mediaType": "application/vnd.oci.artifact.manifest.v1+json",
		"blobs": [{"mediaType": "text/spdx", "digest": %q, "size": 4}],
		"subject": {"mediaType": %q, "digest": %q, "size": 1}}`, digest, types.OCIImageIndex, from.web),
		"application/vnd.oci.artifact.manifest.v1+json"}
	if err := remote.Put(repository.Tag("artifact"), artifact); err != nil {
		t.Fatal(err)
	}
	artifactDigest, size, err := v1.SHA256(strings.NewReader(artifact.text))
	if err != nil {
		t.Fatal(err)
	}
	lost := from.push(t, "shop/web:lost", must[v1.Image](t)(random.Image(10, 1))).String()
	list := rawManifest{fmt.Sprintf(`{"schemaVersion": 2, "mediaType": %[1]q, "manifests": [
		{"mediaType": %[2]q, "digest": %[3]q, "size": %[4]d}, {"mediaType": %[5]q, "digest": %[6]q, "size": 2}]}`,
		types.OCIImageIndex, artifact.kind, artifactDigest, size, types.OCIManifestSchema1, lost), types.OCIImageIndex}
	if err := remote.Put(repository.Tag("sha256-"+from.web.Hex), list); err != nil {
		t.Fatal(err)
	}
	from.delete(t, "shop/web@"+lost)
	m := mirrored(t, from.release, target.host, insecure)
	if target.digest(t, "shop/web@"+artifactDigest.String()) == "" {
		t.Error("the artifact is not copied")
	}
	if len(m.Notes) != 1 || !strings.Contains(m.Notes[0], lost) {
		t.Errorf("the notes are %q", m.Notes)
	}
}

// A rawManifest is a manifest of any type.
type rawManifest struct {
	text string
	kind types.MediaType
}

func (r rawManifest) RawManifest() ([]byte, error)        { return []byte(r.text), nil }
func (r rawManifest) MediaType() (types.MediaType, error) { return r.kind, nil }
