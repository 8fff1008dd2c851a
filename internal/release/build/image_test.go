package build_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/build"
)

// read decodes a part of a release.
func read[T any](t testing.TB, release *build.Release, described v1.Descriptor) T {
	t.Helper()
	raw, err := oci.ReadBlob(context.Background(), release.Parts(), described)
	if err != nil {
		t.Fatal(err)
	}
	var value T
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// entriesOf returns the entries of a layer as tar lists them: modes and names.
func entriesOf(t testing.TB, release *build.Release, layer v1.Descriptor) []string {
	t.Helper()
	blob, err := release.Parts().Blob(context.Background(), layer, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	unpacked, err := gzip.NewReader(blob)
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for archive := tar.NewReader(unpacked); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(newYear) || header.Uid != 0 {
			t.Errorf("%s has time %s and user %d", header.Name, header.ModTime, header.Uid)
		}
		entries = append(entries, header.FileInfo().Mode().String()+" "+header.Name)
	}
}

const plain = "name: shop\nversion: 1.0.0\ncomponents: [{name: web, source: web}, {name: api, source: api}]\n"

// plainFolder writes a release whose manifests need no registry.
func plainFolder(t testing.TB) string {
	image := "other.example/x/web@sha256:" + strings.Repeat("a", 64)
	return write(t, map[string]string{
		"release.yaml": plain, "web/a.yaml": deployment("web", image), "api/b.yaml": deployment("api", image),
	})
}

func TestImageFromScratch(t *testing.T) {
	release, err := buildIn(t, plainFolder(t), build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	manifest := read[v1.Manifest](t, release, release.Root)
	want := []string{
		"drwxrwxrwx release-manifests", "-r--r--r-- release-manifests/image-references",
		"-r--r--r-- release-manifests/release-metadata", "-r--r--r-- release-manifests/0000_50_api_b.yaml",
		"-r--r--r-- release-manifests/0000_50_web_a.yaml", "-r--r--r-- runlevel.yaml",
	}
	if diff := cmp.Diff(want, entriesOf(t, release, manifest.Layers[0])); diff != "" {
		t.Error(diff)
	}
	config := read[v1.ConfigFile](t, release, manifest.Config)
	if diff := cmp.Diff(map[string]string{"io.openshift.release": "1.0.0"}, config.Config.Labels); diff != "" {
		t.Error(diff)
	}
	if config.OS != "linux" || config.Architecture != "amd64" || len(config.RootFS.DiffIDs) != 1 {
		t.Errorf("the configuration is %+v", config)
	}
}

// TestComponentThatNamesTheRelease: the operator's Deployment is a template, and so are the manifests before it.
func TestComponentThatNamesTheRelease(t *testing.T) {
	folder := write(t, map[string]string{
		"release.yaml": plain, "web/a.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: web}}",
		"web/b.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: web}, " +
			"data: {release: '--release-image={{.ReleaseImage}}'}}",
		"api/b.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: api}}",
	})
	release, err := buildIn(t, folder, build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"drwxrwxrwx release-manifests", "-r--r--r-- release-manifests/image-references",
		"-r--r--r-- release-manifests/release-metadata", "-r--r--r-- release-manifests/0000_50_api_b.yaml",
		"drwxrwxrwx manifests", "-r--r--r-- manifests/0000_50_web_a.yaml", "-r--r--r-- manifests/0000_50_web_b.yaml",
		"-r--r--r-- runlevel.yaml",
	}
	manifest := read[v1.Manifest](t, release, release.Root)
	if diff := cmp.Diff(want, entriesOf(t, release, manifest.Layers[0])); diff != "" {
		t.Error(diff)
	}
}

func TestIndexFromScratch(t *testing.T) {
	platforms := []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"},
		{OS: "linux", Architecture: "amd64"}}
	release, err := buildIn(t, plainFolder(t), build.Options{Platforms: platforms})
	if err != nil {
		t.Fatal(err)
	}
	index := read[v1.IndexManifest](t, release, release.Root)
	for i, described := range index.Manifests {
		manifest := read[v1.Manifest](t, release, described)
		config := read[v1.ConfigFile](t, release, manifest.Config)
		if !described.Platform.Equals(platforms[i]) || config.Architecture != platforms[i].Architecture {
			t.Errorf("image %d is for %s and %s", i, described.Platform, config.Architecture)
		}
	}
	if len(index.Manifests) != 2 {
		t.Errorf("the index has %d images", len(index.Manifests))
	}
}

// TestImageOnABase keeps what runs the operator, and drops labels.
func TestImageOnABase(t *testing.T) {
	host := startRegistry(t)
	var index v1.ImageIndex = empty.Index
	for _, architecture := range []string{"arm64", "amd64"} {
		image := imageOf(t, map[string]string{"of": "the base"}, map[string]string{"run": architecture})
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	digest := push(t, host+"/runlevel:v1", index)
	folder := plainFolder(t)
	release, err := buildIn(t, folder, build.Options{Base: host + "/runlevel:v1"})
	if err != nil {
		t.Fatal(err)
	}
	built := read[v1.IndexManifest](t, release, release.Root)
	if len(built.Manifests) != 2 {
		t.Fatalf("the index has %d images, want one for each platform of the base", len(built.Manifests))
	}
	manifest := read[v1.Manifest](t, release, built.Manifests[1])
	config := read[v1.ConfigFile](t, release, manifest.Config)
	want := map[string]string{"io.openshift.release": "1.0.0", "io.openshift.release.base-image-digest": digest}
	if diff := cmp.Diff(want, config.Config.Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/run"}, config.Config.Entrypoint); diff != "" || config.Config.User != "65532" {
		t.Errorf("%s, user %s", diff, config.Config.User)
	}
	if len(manifest.Layers) != 2 || len(config.RootFS.DiffIDs) != 2 {
		t.Fatalf("the image has %d layers and %d diff IDs", len(manifest.Layers), len(config.RootFS.DiffIDs))
	}
	layer, err := release.Parts().Blob(context.Background(), manifest.Layers[0], 0)
	if err != nil {
		t.Fatalf("the layer of the base can't be read: %v", err)
	}
	layer.Close()
	one, err := buildIn(t, folder, build.Options{Base: host + "/runlevel:v1",
		Platforms: []v1.Platform{{OS: "linux", Architecture: "amd64"}}, Lock: release.Lock})
	if err != nil {
		t.Fatal(err)
	}
	if read[v1.Manifest](t, one, one.Root).Config.Digest != manifest.Config.Digest {
		t.Error("the image of one platform differs from that of the index")
	}
}

func TestBasesThatDoNotFit(t *testing.T) {
	host := startRegistry(t)
	push(t, host+"/runlevel:v1", imageOf(t, nil, map[string]string{"run": "runlevel"}))
	push(t, host+"/release:v1", imageOf(t, map[string]string{"io.openshift.release": "1.2.3"}, nil))
	push(t, host+"/two:v1", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        imageOf(t, nil, nil),
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	}, mutate.IndexAddendum{
		Add:        imageOf(t, nil, nil),
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64", Variant: "v2"}},
	}))
	folder := plainFolder(t)
	for base, want := range map[string]string{
		host + "/runlevel:v1": "it does not have all platforms of --platform: it has linux/amd64",
		host + "/two:v1":      "it does not have all platforms of --platform: it has linux/amd64, linux/amd64/v2",
		host + "/release:v1":  "it is a release itself, 1.2.3: name the image that this one was put on",
		host + "/none:v1":     "the registry has no such image",
	} {
		platforms := []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "s390x"}}
		_, err := buildIn(t, folder, build.Options{Base: base, Platforms: platforms})
		if got := errorOf(t, err, folder, ""); got != "base "+base+": "+want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestDocuments checks the rules of SPDX 2.3 and of in-toto that matter to their readers.
func TestDocuments(t *testing.T) {
	host := startRegistry(t)
	folder, web, _ := shopFolder(t, host)
	release, err := buildIn(t, folder, build.Options{Builder: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := release.Parts().Referrers(context.Background(), release.Root.Digest)
	if err != nil || len(referrers) != 2 {
		t.Fatalf("the release has %d referrers (%v), want 2", len(referrers), err)
	}
	layers := map[string]v1.Descriptor{}
	for _, described := range referrers {
		manifest := read[v1.Manifest](t, release, described)
		if manifest.Subject == nil || manifest.Subject.Digest != release.Root.Digest {
			t.Errorf("the subject of %s is %v", manifest.ArtifactType, manifest.Subject)
		}
		layers[manifest.ArtifactType] = manifest.Layers[0]
	}
	sbom := read[struct {
		SPDXID, SPDXVersion, DataLicense, Name, DocumentNamespace string
		CreationInfo                                              struct {
			Created  string
			Creators []string
		}
		Packages []struct {
			SPDXID, Name, DownloadLocation string
			ExternalRefs                   []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SPDXElementID, RelatedSPDXElement, RelationshipType string }
	}](t, release, layers["application/spdx+json"])
	if sbom.SPDXID != "SPDXRef-DOCUMENT" || sbom.SPDXVersion != "SPDX-2.3" || sbom.DataLicense != "CC0-1.0" ||
		!strings.HasPrefix(sbom.DocumentNamespace, "https://") || sbom.CreationInfo.Created != "2026-01-01T00:00:00Z" ||
		len(sbom.CreationInfo.Creators) != 1 {
		t.Errorf("the document is %+v", sbom)
	}
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	var names []string
	for _, p := range sbom.Packages {
		if ids[p.SPDXID] || p.DownloadLocation == "" {
			t.Errorf("package %+v has no location, or its ID is not unique", p)
		}
		ids[p.SPDXID] = true
		names = append(names, p.Name)
	}
	for _, r := range sbom.Relationships {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("%+v relates what does not exist", r)
		}
	}
	if diff := cmp.Diff([]string{"shop", "api", "web", "api", "web"}, names); diff != "" {
		t.Error(diff)
	}
	_, sum, _ := strings.Cut(web, "@sha256:")
	purl := "pkg:oci/web@sha256%3A" + sum + "?repository_url=" +
		strings.NewReplacer("/", "%2F", ":", "%3A").Replace(host+"/shop/web")
	if got := sbom.Packages[4].ExternalRefs[0].ReferenceLocator; got != purl {
		t.Errorf("got %s, want %s", got, purl)
	}
	provenance := read[struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct{ Digest map[string]string }
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]any
				ResolvedDependencies []struct {
					Name   string
					Digest map[string]string
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}](t, release, layers["application/vnd.in-toto+json"])
	if provenance.Type != "https://in-toto.io/Statement/v1" ||
		provenance.PredicateType != "https://slsa.dev/provenance/v1" ||
		provenance.Subject[0].Digest["sha256"] != release.Root.Digest.Hex ||
		provenance.Predicate.RunDetails.Builder.ID == "" || provenance.Predicate.BuildDefinition.BuildType == "" {
		t.Errorf("the statement is %+v", provenance)
	}
	if dependencies := provenance.Predicate.BuildDefinition.ResolvedDependencies; len(dependencies) != 4 ||
		dependencies[3].Name != "image web" || dependencies[3].Digest["sha256"] != sum {
		t.Errorf("the dependencies are %+v", dependencies)
	}
}
