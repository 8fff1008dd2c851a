package oci_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/oci"
)

func TestParseTarget(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, oci.LayoutFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		"registry.example/shop":         "registry.example/shop:1.0.0",
		"registry.example/shop:2":       "registry.example/shop:2",
		"registry.example:5000/shop":    "registry.example:5000/shop:1.0.0",
		"localhost/shop":                "localhost/shop:1.0.0",
		"layout":                        "layout:1.0.0",
		"./out.d/layout":                "./out.d/layout:1.0.0",
		"out/layout:2":                  "out/layout:2",
		"../shop.tar":                   "../shop.tar:1.0.0",
		"/tmp/none/shop-1.0.0.tar:last": "/tmp/none/shop-1.0.0.tar:last",
		folder:                          folder + ":1.0.0",
		folder + ":2":                   folder + ":2",
	} {
		location, err := oci.ParseTarget(ref, "1.0.0", false)
		if err != nil || location.String() != want {
			t.Errorf("%s is %s, %v; want %s", ref, location, err, want)
		}
	}
	for _, ref := range []string{"./layout:a b", folder + ":a b", "shop.tar.gz", "shop.tgz:1",
		"layout:" + strings.Repeat("a", 129)} {
		if location, err := oci.ParseTarget(ref, "1.0.0", false); err == nil {
			t.Errorf("got %s for %s, want an error", location, ref)
		}
	}
	const digest = "registry.example/shop@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	if location, err := oci.ParseTarget(digest, "1.0.0", false); err == nil {
		t.Errorf("got %s for a digest, want an error", location)
	}
}
