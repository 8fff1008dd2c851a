package release_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// ocInfo has the compared fields of the JSON of "oc adm release info".
type ocInfo struct {
	Digest   string
	Metadata struct {
		Version  string
		Previous []string
		Metadata map[string]any
	}
	References struct {
		Spec struct {
			Tags []struct {
				Name string
				From struct{ Name string }
			}
		}
	}
	Images map[string]struct {
		Layers []struct{ Size int64 }
	}
}

// oc runs OpenShift's client, and returns its standard output.
func oc(t *testing.T, args ...string) []byte {
	t.Helper()
	program := os.Getenv("RUNLEVEL_TEST_OC")
	if _, err := os.Stat(program); err != nil || !filepath.IsAbs(program) {
		t.Skip("RUNLEVEL_TEST_OC does not name oc")
	}
	command := exec.CommandContext(t.Context(), program, append([]string{"adm", "release"}, args...)...)
	command.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG="+os.DevNull)
	out, err := command.Output()
	if err != nil {
		var failure *exec.ExitError
		if errors.As(err, &failure) {
			t.Fatalf("oc %v: %v\n%s%s", args, err, out, failure.Stderr)
		}
		t.Fatal(err)
	}
	return out
}

// TestOpenShiftsClientReadsTheSame compares info and extract with OpenShift's client, for a release whose images are in
// a registry, and for a real one.
func TestOpenShiftsClientReadsTheSame(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	shared := layerOf('s', 3_000_000)
	own := releaseImage(t, map[string]string{
		"web": push(t, registry, "shop/web", imageOf(t, shared, layerOf('w', 500_000))),
		"db":  push(t, registry, "shop/db", imageOf(t, shared)),
	}, nil)
	t.Run("own", func(t *testing.T) {
		compareWithOC(t, push(t, registry, "shop/release", own), "--size")
	})
	t.Run("real", func(t *testing.T) {
		folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
		if folder == "" {
			t.Skip("RUNLEVEL_TEST_RELEASE names no release")
		}
		image, err := imageregistry.ImageOf(os.DirFS(folder))
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: "amd64"}); err != nil {
			t.Fatal(err)
		}
		compareWithOC(t, push(t, registry, "real/release", image))
	})
}

// compareWithOC compares the descriptions of a release, and its files.
func compareWithOC(t *testing.T, ref string, flags ...string) {
	t.Helper()
	args := []string{"info", ref, "--insecure", "-o", "json"}
	if len(flags) > 0 {
		args = append(args, "--include-images")
	}
	var want ocInfo
	if err := json.Unmarshal(oc(t, args...), &want); err != nil {
		t.Fatal(err)
	}
	have := describe(t, append([]string{ref, "--insecure"}, flags...)...)
	wantImages, haveImages := map[string]string{}, map[string]string{}
	for _, tag := range want.References.Spec.Tags {
		wantImages[tag.Name] = tag.From.Name
	}
	for _, image := range have.Images {
		haveImages[image.Name] = image.Image
		if image.Size == nil {
			continue
		}
		size := int64(0)
		for _, layer := range want.Images[image.Name].Layers {
			size += layer.Size
		}
		if size != image.Size.Bytes {
			t.Errorf("image %s has %d bytes, oc says %d", image.Name, image.Size.Bytes, size)
		}
	}
	for what, both := range map[string][2]any{
		"digest":   {want.Digest, have.Digest},
		"version":  {want.Metadata.Version, have.Version},
		"previous": {append([]string{}, want.Metadata.Previous...), have.Previous},
		"metadata": {want.Metadata.Metadata, have.Metadata},
		"images":   {wantImages, haveImages},
	} {
		if diff := cmp.Diff(both[0], both[1]); diff != "" {
			t.Errorf("%s, -oc +runlevel:\n%s", what, diff)
		}
	}

	folder := t.TempDir()
	oc(t, "extract", ref, "--insecure", "--to", filepath.Join(folder, "oc"))
	if code, _, problems := run(t, "extract", ref, "--insecure", "--to", filepath.Join(folder, "own")); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	if diff := cmp.Diff(documentsIn(t, filepath.Join(folder, "oc")),
		documentsIn(t, filepath.Join(folder, "own", "release-manifests"))); diff != "" {
		t.Errorf("files, -oc +runlevel:\n%s", diff)
	}
	file := oc(t, "extract", ref, "--insecure", "--file", "image-references")
	if _, out, _ := run(t, "extract", ref, "--insecure", "--file", "image-references"); out != string(file) {
		t.Errorf("image-references: oc prints\n%s\nrunlevel prints\n%s", file, out)
	}
}

// documentsIn returns the objects in the files of a folder. OpenShift's client writes manifests again in its own way,
// and files without a manifest not at all.
func documentsIn(t *testing.T, folder string) map[string][]any {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]any{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var document any
			if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(entry.Name(), err)
			}
			if document != nil {
				files[entry.Name()] = append(files[entry.Name()], document)
			}
		}
	}
	return files
}
