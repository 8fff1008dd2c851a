package copy_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// copyImage copies an image between two locations.
func copyImage(t testing.TB, from, target oci.Location, options copy.Options) (copy.Result, error) {
	t.Helper()
	return copyWith(t, t.Context(), from, target, options)
}

func copyWith(t testing.TB, ctx context.Context, from, target oci.Location, options copy.Options) (copy.Result, error) {
	t.Helper()
	source, err := oci.Open(ctx, from, oci.Options{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	described, err := source.Resolve(ctx, from.Identifier)
	if err != nil {
		return copy.Result{}, err
	}
	written, err := oci.Create(ctx, target, oci.Options{Insecure: true})
	if err != nil {
		return copy.Result{}, err
	}
	defer written.Close()
	options.Tag = target.Identifier
	result, err := copy.Copy(ctx, source, described, written, options)
	if err == nil {
		err = written.Commit(ctx)
	}
	return result, err
}

// mustCopy copies an image that must arrive.
func mustCopy(t testing.TB, from, target oci.Location, options copy.Options) copy.Result {
	t.Helper()
	result, err := copyImage(t, from, target, options)
	if err != nil {
		t.Fatalf("copy of %s to %s: %v", from, target, err)
	}
	return result
}

// checkRegistry reads an image or index from a registry with the library, and compares everything in it.
func checkRegistry(t testing.TB, location oci.Location, want v1.Hash) {
	t.Helper()
	reference, err := name.ParseReference(location.String(), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Get(reference)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != want {
		t.Errorf("%s has digest %s, not %s", location, got.Digest, want)
	}
	if got.MediaType.IsImage() {
		image, err := got.Image()
		if err == nil {
			err = validate.Image(image)
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	index, err := got.ImageIndex()
	if err == nil {
		err = validate.Index(index)
	}
	if err != nil {
		t.Error(err)
	}
}

func randomIndex(t testing.TB) v1.ImageIndex {
	t.Helper()
	index, err := random.Index(20_000, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestCopiesBetweenRegistriesLayoutsAndArchives(t *testing.T) {
	source := serve(t)
	index := randomIndex(t)
	source.push(t, "shop/release:1.4.0", index)
	want := digestOf(t, index)
	folder := t.TempDir()
	// each copy is the source of the next one
	places := []oci.Location{
		source.location(t, "shop/release:1.4.0"),
		{Path: filepath.Join(folder, "layout"), Identifier: "1.4.0"},
		{Path: filepath.Join(folder, "release.tar"), Identifier: "1.4.0"},
		{Path: filepath.Join(folder, "other.tar"), Identifier: "x"},
		{Path: filepath.Join(folder, "other"), Identifier: "y"},
		serve(t).location(t, "mirror/shop:1.4.0"),
		serve(t).location(t, "mirror/shop:1.4.0"),
	}
	for i, target := range places[1:] {
		var done, total int64
		progress := func(d, all int64) { done, total = d, all }
		first := mustCopy(t, places[i], target, copy.Options{Progress: progress})
		if first.Copied.Count != 11 || first.Skipped.Count != 0 {
			t.Errorf("%s: first copy is %+v", target, first)
		}
		if done != total || total < 6*20_000 {
			t.Errorf("%s: progress ends with %d of %d bytes", target, done, total)
		}
		again := mustCopy(t, places[i], target, copy.Options{})
		if again.Copied.Count != 1 || again.Skipped.Count != 10 { // the index gets its tag again
			t.Errorf("%s: second copy is %+v", target, again)
		}
	}
	checkRegistry(t, places[6], want)
	checkLayout(t, filepath.Join(folder, "layout"), want)
	if leftovers, _ := filepath.Glob(filepath.Join(folder, "*.partial")); len(leftovers) > 0 {
		t.Errorf("left over: %v", leftovers)
	}
}

// checkLayout reads the only image of a layout with the library, and compares everything in it.
func checkLayout(t testing.TB, folder string, want v1.Hash) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != want {
		t.Errorf("%s has %v", folder, manifest.Manifests)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	err = filepath.WalkDir(folder, func(file string, _ os.DirEntry, err error) error {
		if filepath.Ext(file) == ".partial" {
			t.Errorf("left over: %s", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// signature returns an image about another one, by its subject.
func signature(t testing.TB, subject partial.Describable) v1.Image {
	t.Helper()
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	described, err := partial.Descriptor(subject)
	if err != nil {
		t.Fatal(err)
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), "application/vnd.test.signature")
	return mutate.Subject(image, *described).(v1.Image)
}

func TestReferrersAndCosignsTagsAreCopied(t *testing.T) {
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	described := digestOf(t, image)
	signed := signature(t, image)
	attested := signature(t, signed)
	tagged, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	withAPI := []registry.Option{registry.WithReferrersSupport(true)}
	for from, fromOptions := range map[string][]registry.Option{"with API": withAPI, "without API": nil} {
		for target, toOptions := range map[string][]registry.Option{"with API": withAPI, "without API": nil} {
			t.Run(from+" to one "+target, func(t *testing.T) {
				source, mirror := serveWith(t, fromOptions), serveWith(t, toOptions)
				source.push(t, "shop/web:1", image)
				source.push(t, "shop/web@"+digestOf(t, signed).String(), signed)
				source.push(t, "shop/web@"+digestOf(t, attested).String(), attested)
				source.push(t, "shop/web:sha256-"+described.Hex+".sig", tagged)
				folder := oci.Location{Path: filepath.Join(t.TempDir(), "layout"), Identifier: "1"}
				archive := oci.Location{Path: filepath.Join(t.TempDir(), "x.tar"), Identifier: "1"}
				with := copy.Options{Referrers: true}
				mustCopy(t, source.location(t, "shop/web:1"), folder, with)
				mustCopy(t, folder, archive, with)
				mustCopy(t, archive, mirror.location(t, "mirror/web:1"), with)

				checkRegistry(t, mirror.location(t, "mirror/web:sha256-"+described.Hex+".sig"), digestOf(t, tagged))
				repository := mirror.host + "/mirror/web@"
				for subject, want := range map[v1.Hash]v1.Hash{
					described: digestOf(t, signed), digestOf(t, signed): digestOf(t, attested),
				} {
					digest, err := name.NewDigest(repository+subject.String(), name.Insecure)
					if err != nil {
						t.Fatal(err)
					}
					index, err := remote.Referrers(digest)
					if err != nil {
						t.Fatal(err)
					}
					manifest, err := index.IndexManifest()
					if err != nil {
						t.Fatal(err)
					}
					if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != want ||
						manifest.Manifests[0].ArtifactType != "application/vnd.test.signature" {
						t.Errorf("referrers of %s are %+v, not %s", subject, manifest.Manifests, want)
					}
				}
				// the signature does not make the choice of the only image ambiguous
				folder.Identifier = ""
				if _, err := copyImage(t, folder, archive, copy.Options{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestPlansEndWithTheirContext(t *testing.T) {
	folder := oci.Location{Path: writeLayout(t, randomIndex(t))}
	from, err := oci.Open(t.Context(), folder, oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	described, err := from.Resolve(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := copy.Find(ctx, from, described, copy.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestARepositoryOfALayout(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "mirror")
	layout, err := oci.CreateLayout(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer layout.Close()
	source := serve(t)
	digests := map[string]v1.Hash{}
	for _, repository := range []string{"shop/web", "shop/web2", "shop/web/nested"} {
		image, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		digests[repository] = digestOf(t, image)
		source.push(t, repository+":1", image)
		from, err := oci.Open(t.Context(), source.location(t, repository+":1"), oci.Options{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		described, err := from.Resolve(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		part := layout.Repository("registry.example/" + repository)
		options := copy.Options{Tag: "1"}
		if repository == "shop/web2" {
			options.Tag = "" // by digest only
		}
		if _, err := copy.Copy(t.Context(), from, described, part, options); err != nil {
			t.Fatal(err)
		}
	}
	if err := layout.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	read, err := oci.OpenLayout(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for _, test := range []struct {
		repository, identifier string
		exists                 bool
	}{
		{"shop/web", "1", true},
		{"shop/web", digests["shop/web"].String(), true},
		{"shop/web", digests["shop/web2"].String(), false},
		{"shop/web2", "1", false},
		{"shop/web2", digests["shop/web2"].String(), true},
		{"shop/web/nested", "1", true},
	} {
		got, err := read.Repository("registry.example/"+test.repository).Resolve(t.Context(), test.identifier)
		if (err == nil) != test.exists || test.exists && got.Digest != digests[test.repository] {
			t.Errorf("%s %s is %s, %v", test.repository, test.identifier, got.Digest, err)
		}
	}
}

func TestBlobsOfTheSameRegistryAreMounted(t *testing.T) {
	for name, supports := range map[string]bool{"supported": true, "not supported": false} {
		t.Run(name, func(t *testing.T) {
			mounted := map[string]bool{}
			var mu sync.Mutex
			registry := serve(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
					query := request.URL.Query()
					mu.Lock()
					defer mu.Unlock()
					switch {
					case !strings.HasPrefix(request.URL.Path, "/v2/mirror/web/blobs/"):
						next.ServeHTTP(w, request)
					case query.Get("mount") != "" && query.Get("from") == "shop/web" && supports:
						mounted[query.Get("mount")] = true
						w.WriteHeader(http.StatusCreated)
					case request.Method == http.MethodHead && !mounted[path.Base(request.URL.Path)]:
						w.WriteHeader(http.StatusNotFound)
					default:
						next.ServeHTTP(w, request)
					}
				})
			})
			image := randomImage(t, 10_000, 2)
			registry.push(t, "shop/web:1", image)
			registry.received.Store(0)
			target := registry.location(t, "mirror/web:1")
			result := mustCopy(t, registry.location(t, "shop/web:1"), target, copy.Options{})
			checkRegistry(t, target, digestOf(t, image))
			if uploads := registry.received.Load() > 0; uploads == supports || (result.Skipped.Count == 3) != supports {
				t.Errorf("%d bytes were uploaded: %+v", registry.received.Load(), result)
			}
		})
	}
}
