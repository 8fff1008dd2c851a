package payload

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What comes of a release must be the same, whether an earlier reading was reused or not.
func TestReuse(t *testing.T) {
	config := func(name, more string) []byte {
		return []byte("# about\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + more + "}\n")
	}
	before := memory{
		"release-manifests/release-metadata":      []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`),
		"release-manifests/0000_50_a_01.yaml":     config("a", ""),
		"release-manifests/0000_50_b_01.yaml":     config("b", ""),
		"release-manifests/0000_50_c_broken.yaml": []byte("kind: [\n"),
		"release-manifests/0000_50_c_wrong.yaml":  config("c", ", annotations: {a: 1}"),
		"release-manifests/0000_50_d_empty.yaml":  []byte("---\n---\n# nothing\n"),
		"manifests/0000_10_t_01.yaml":             append(config("t", ""), "# {{.ReleaseImage}}\n"...),
		"manifests/0000_10_t_02.yaml":             append(config("u", ""), "# {{if .ReleaseImage}}\n#{{end}}\n"...),
	}
	after := maps.Clone(before)
	after["release-manifests/0000_50_a_00.yaml"] = config("new", "")
	after["release-manifests/0000_50_b_01.yaml"] = config("b", ", namespace: other")
	delete(after, "release-manifests/0000_50_a_01.yaml")
	options := Options{KeepText: true}
	read := func(files memory, options Options) (*Payload, []Problem) {
		p, problems, err := Parse(t.Context(), files.open(), options)
		if err != nil {
			t.Fatal(err)
		}
		return p, problems
	}
	first, _ := read(before, options)
	for name, files := range map[string]memory{"the same": before, "changed": after} {
		for _, image := range []string{"", "registry.example/release:1"} {
			options := options
			options.ReleaseImage = image
			want, wantProblems := read(files, options)
			options.Reuse = first
			got, problems := read(files, options)
			if diff := cmp.Diff(wantProblems, problems); diff != "" {
				t.Errorf("%s, %q: %s", name, image, diff)
			}
			same := cmp.Options{cmp.AllowUnexported(Manifest{}, chunk{}), cmpopts.IgnoreUnexported(Payload{}, Filter{})}
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Errorf("%s, %q: %s", name, image, diff)
			}
		}
	}
	options.Reuse = first
	again, _ := read(before, options)
	for i, m := range again.Manifests {
		if m != first.Manifests[i] {
			t.Errorf("%s was read again", m.Path)
		}
	}
}
