package loader_test

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

const variants = `
apiVersion: v1
kind: ConfigMap
metadata: {name: edge, namespace: shop, annotations: {include.release.openshift.io/edge: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: edge-tech, namespace: shop, annotations: {include.release.openshift.io/edge: "true", release.openshift.io/feature-set: TechPreviewNoUpgrade}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: edge-gate, namespace: shop, annotations: {include.release.openshift.io/edge: "true", release.openshift.io/feature-gate: Fast}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: edge-console, namespace: shop, annotations: {include.release.openshift.io/edge: "true", capability.openshift.io/name: Console}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: core, namespace: shop, annotations: {include.release.openshift.io/core: "true"}}
`

// TestAppliedVersionIsReadWithItsOptions checks that an applied version keeps its options, except for those set now.
func TestAppliedVersionIsReadWithItsOptions(t *testing.T) {
	files := os.DirFS(write(t, variants))
	none, err := payload.ParseCapabilities("None")
	if err != nil {
		t.Fatal(err)
	}
	console, err := payload.ParseCapabilities("None,Console")
	if err != nil {
		t.Fatal(err)
	}
	read := func(values []byte, options payload.Options, unmanaged ...string) *payload.Payload {
		t.Helper()
		o := loader.Options{Payload: options}
		for _, text := range unmanaged {
			selector, err := loader.ParseSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			o.Unmanaged = append(o.Unmanaged, selector)
		}
		read, problems, err := loader.ParseOpened(t.Context(), &source.Release{FS: files, Values: values}, o)
		if err != nil || payload.Refuse(problems) != nil {
			t.Fatal(err, problems)
		}
		return read
	}
	before := read(nil, payload.Options{
		Name:         "shop",
		Version:      "1.2.3",
		ReleaseImage: "registry.example/shop@sha256:abc",
		Filter:       payload.Filter{Profile: "edge", Capabilities: none},
	}, "ConfigMap/edge-gate")
	values, err := loader.Values(before)
	if err != nil {
		t.Fatal(err)
	}
	names := func(p *payload.Payload) (all []string) {
		for _, m := range p.Manifests {
			all = append(all, m.ID().Name)
		}
		return all
	}
	for name, test := range map[string]struct {
		set       payload.Filter
		unmanaged []string
		want      []string
	}{
		"as it was":       {want: []string{"edge"}},
		"another profile": {set: payload.Filter{Profile: "core"}, want: []string{"core"}},
		"a feature set": {
			set:  payload.Filter{FeatureSet: "TechPreviewNoUpgrade"},
			want: []string{"edge", "edge-tech"},
		},
		"a capability": {set: payload.Filter{Capabilities: console}, want: []string{"edge", "edge-console"}},
		"another is left": {
			set:       payload.Filter{FeatureGates: []string{"Fast"}},
			unmanaged: []string{"ConfigMap/edge"},
			want:      []string{"edge-gate"},
		},
		"a gate is not back": {set: payload.Filter{FeatureGates: []string{"Fast"}}, want: []string{"edge"}},
	} {
		again := read(values, payload.Options{Filter: test.set}, test.unmanaged...)
		if got := names(again); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if again.Name != "shop" || again.Version != "1.2.3" {
			t.Errorf("%s: got release %s %s", name, again.Name, again.Version)
		}
	}
	if again := read(values, payload.Options{}); again.Hash != before.Hash || again.Content != before.Content {
		t.Errorf("the hashes are %s and %s, want %s and %s", again.Hash, again.Content, before.Hash, before.Content)
	}
	for _, values := range []string{"{", `{"filter": {"region": "eu"}}`} {
		_, _, err := loader.ParseOpened(t.Context(), &source.Release{FS: files, Values: []byte(values)},
			loader.Options{})
		if err == nil || !strings.Contains(err.Error(), "damaged, or written by a newer runlevel") {
			t.Errorf("values %s are read (%v)", values, err)
		}
	}
}

// TestFilesThatAreRead are enough to read a release again.
func TestFilesThatAreRead(t *testing.T) {
	folder := write(t, plain)
	for name, text := range map[string]string{
		"release-metadata": `{"kind": "cincinnati-metadata-v0", "version": "1.0.0"}`, "README.md": "none",
	} {
		if err := os.WriteFile(folder+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, _, err := loader.Load(t.Context(), folder, loader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := read.FileNames(); !slices.Equal(got, []string{"0000_50_web_01.yaml", "release-metadata"}) {
		t.Errorf("they are %v", got)
	}
	for _, name := range read.FileNames() {
		if _, err := fs.Stat(os.DirFS(folder), name); err != nil {
			t.Error(err)
		}
	}
}
