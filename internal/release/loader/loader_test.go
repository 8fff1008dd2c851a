package loader_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/pkg/payload"
)

const (
	plain   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n"
	console = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop, annotations: " +
		"{capability.openshift.io/name: Console}}\n"
)

// write writes a release of one file, and returns its folder.
func write(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "0000_50_web_01.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func withoutCapabilities(t *testing.T) loader.Options {
	t.Helper()
	none, err := payload.ParseCapabilities("None")
	if err != nil {
		t.Fatal(err)
	}
	return loader.Options{Payload: payload.Options{Filter: payload.Filter{Capabilities: none}}}
}

// TestCapabilityOfAppliedManifestsStaysEnabled updates to a release that has them for a disabled capability.
func TestCapabilityOfAppliedManifestsStaysEnabled(t *testing.T) {
	options := withoutCapabilities(t)
	before, _, err := loader.Load(t.Context(), write(t, plain), options)
	if err != nil {
		t.Fatal(err)
	}
	next := write(t, console)
	if loaded, _, err := loader.Load(t.Context(), next, options); err != nil || len(loaded.Manifests) != 0 {
		t.Fatalf("an install has %d manifests (%v), want none", len(loaded.Manifests), err)
	}
	options.Before = before
	updated, _, err := loader.Load(t.Context(), next, options)
	if err != nil || len(updated.Manifests) != 1 {
		t.Fatalf("the update has %d manifests (%v), want 1", len(updated.Manifests), err)
	}
	if enabled := updated.Filter.Capabilities.EnabledCapabilities; len(enabled) != 1 ||
		enabled[0] != configv1.ClusterVersionCapabilityConsole {
		t.Errorf("enabled are %v", enabled)
	}
}

func TestAReleaseWithProblemsIsRefused(t *testing.T) {
	folder := write(t, "kind: ConfigMap\n")
	_, _, err := loader.Load(t.Context(), folder, loader.Options{})
	var refused *loader.RefusedError
	if !errors.As(err, &refused) || refused.Source != folder ||
		!strings.Contains(err.Error(), "0000_50_web_01.yaml:1") {
		t.Errorf("the error is %v", err)
	}
}

func TestFiltersThatFitNothingAreRefused(t *testing.T) {
	release, _, err := loader.Load(t.Context(), write(t, plain), loader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	misspelt, err := loader.ParseSelector("ConfigMap/shop/wbe")
	if err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]loader.Options{
		`profile: no manifest of the release names "hyper": use hypershift, `: {
			Payload: payload.Options{Filter: payload.Filter{Profile: "hyper"}},
		},
		"unmanaged ConfigMap/shop/wbe: the release has no such object: use " +
			"ConfigMap/shop/web": {Unmanaged: []loader.Selector{misspelt}},
	} {
		if err := options.Check(release); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
