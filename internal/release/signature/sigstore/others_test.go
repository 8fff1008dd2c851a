package sigstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
)

// A program is one that others have written.
type program struct {
	t      *testing.T
	path   string
	folder string
}

// newProgram returns the program of an environment variable, with key files of each kind in its folder.
func newProgram(t *testing.T, variable string) program {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skip("set " + variable + ", see CONTRIBUTING.md")
	}
	return program{t, path, t.TempDir()}
}

func (p program) run(arguments ...string) (string, error) {
	p.t.Helper()
	command := exec.CommandContext(p.t.Context(), p.path, arguments...)
	command.Dir, command.Env = p.folder, append(os.Environ(), "COSIGN_PASSWORD=secret", "TMPDIR="+p.t.TempDir())
	out, err := command.CombinedOutput()
	return string(out), err
}

func (p program) write(name, text string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.folder, name), []byte(text), 0o600))
}

// TestCosignVerifiesOurSignatures has cosign verify each format, by keys of each kind.
func TestCosignVerifiesOurSignatures(t *testing.T) {
	cosign := newProgram(t, "RUNLEVEL_TEST_COSIGN")
	for name, pair := range allPairs(t) {
		if strings.HasPrefix(name, "PKCS #1") {
			continue // cosign reads no public keys of that kind
		}
		for _, place := range []string{withReferrers, withoutReferrers} {
			t.Run(name+" "+place, func(t *testing.T) {
				r := newRepository(t, place)
				cosign.write("key.pub", pair.public)
				verify := func(isBundle bool) (string, error) {
					return cosign.run("verify", "--key", "key.pub", "--insecure-ignore-tlog", "--allow-http-registry",
						fmt.Sprint("--new-bundle-format=", isBundle), r.name+"@"+r.image.Digest.String())
				}
				if out, err := verify(true); err == nil {
					t.Errorf("verifies an image without signatures:\n%s", out)
				}
				r.sign(pair.key(t))
				for _, isBundle := range []bool{true, false} {
					if out, err := verify(isBundle); err != nil {
						t.Errorf("bundle %t: %v\n%s", isBundle, err, out)
					}
				}
			})
		}
	}
}

// TestWeVerifyCosignsSignatures has cosign sign, by keys of each kind that it has encrypted.
func TestWeVerifyCosignsSignatures(t *testing.T) {
	cosign := newProgram(t, "RUNLEVEL_TEST_COSIGN")
	mustRun := func(arguments ...string) {
		t.Helper()
		if out, err := cosign.run(arguments...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	mustRun("signing-config", "create", "--out", "signing-config.json")
	for name, pair := range allPairs(t) {
		if strings.HasPrefix(name, "SEC 1") {
			continue // cosign does not read the block before the key
		}
		for _, place := range []string{withReferrers, withoutReferrers} {
			t.Run(name+" "+place, func(t *testing.T) {
				r := newRepository(t, place)
				image := r.name + "@" + r.image.Digest.String()
				cosign.write("key.pem", pair.private)
				mustRun("import-key-pair", "--key", "key.pem", "--output-key-prefix", "imported", "--yes")
				mustRun("sign", "--key", "imported.key", "--signing-config", "signing-config.json",
					"--allow-http-registry", "--yes", image)
				mustRun("sign", "--key", "imported.key", "--new-bundle-format=false", "--use-signing-config=false",
					"--tlog-upload=false", "--allow-http-registry", "--yes", image)
				found := r.find()
				if len(found) != 2 {
					t.Fatalf("found %d signatures", len(found))
				}
				for _, signature := range found {
					_, err := signature.Verify(r.image.Digest.String(), "", pair.keys(t))
					must(t, err)
				}
				text, err := os.ReadFile(filepath.Join(cosign.folder, "imported.key"))
				must(t, err)
				_, err = sigstore.ParsePrivateKey(text, func() ([]byte, error) { return []byte("secret"), nil })
				must(t, err)
			})
		}
	}
}

// TestNodesVerifyOurSignatures has the library of podman and CRI-O decide about a pull, by keys of each kind, and of an
// index.
func TestNodesVerifyOurSignatures(t *testing.T) {
	node := newProgram(t, "RUNLEVEL_TEST_NODE_POLICY")
	must(t, os.Mkdir(filepath.Join(node.folder, "registries.d"), 0o700))
	node.write("registries.d/attachments.yaml", "default-docker: {use-sigstore-attachments: true}")
	for name, pair := range allPairs(t) {
		if strings.HasPrefix(name, "PKCS #1") {
			continue // podman reads no public keys of that kind
		}
		t.Run(name, func(t *testing.T) {
			r := newRepository(t, withReferrers)
			key := filepath.Join(node.folder, "key.pub")
			node.write("key.pub", pair.public)
			node.write("policy.json", fmt.Sprintf(`{"default": [{"type": "reject"}], "transports": {"docker": {%q:
				[{"type": "sigstoreSigned", "keyPath": %q}]}}}`, r.name, key))
			pull := func(identifier string) (string, error) {
				return node.run("policy.json", "registries.d", r.name+identifier)
			}
			index := r.putIndex("list")
			for _, identifier := range []string{":1.4.0", ":list"} {
				if out, err := pull(identifier); err == nil || !strings.Contains(out, "no signature exists") {
					t.Errorf("%s without a signature: %v\n%s", identifier, err, out)
				}
			}
			must(t, pair.key(t).Attach(t.Context(), r, r.claim()))
			for _, identifier := range []string{":1.4.0", "@" + r.image.Digest.String(), "@" + index.Digest.String()} {
				if out, err := pull(identifier); err != nil {
					t.Errorf("%s: %v\n%s", identifier, err, out)
				}
			}
		})
	}
}

// putIndex adds an index with the image, whose signature is that of the image.
func (r *repository) putIndex(tag string) v1.Descriptor {
	r.t.Helper()
	image := r.image
	image.Platform = &v1.Platform{OS: "linux", Architecture: "amd64"}
	return r.putJSON(types.OCIImageIndex, v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{image},
	}, tag)
}
