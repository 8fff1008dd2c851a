package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// BenchmarkCommands runs whole commands on a release of many small manifests.
func BenchmarkCommands(b *testing.B) {
	folder := b.TempDir()
	for i := range 2_000 {
		name := fmt.Sprintf("0000_%02d_component-%d_%04d.yaml", i/20, i%4, i)
		text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c%d\n  namespace: web\ndata:\n  "+
			"key: value\n", i)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"render", folder}, {"render", folder, "-o", "json"}, {"graph", folder},
		{"graph", folder, "-o", "svg"}, {"graph", folder, "-o", "dot", "--mode", "install", "--edges", "all"},
	} {
		b.Run(fmt.Sprint(args[0], args[2:]), func(b *testing.B) {
			for b.Loop() {
				if code := cli.Run(context.Background(), args,
					core.Streams{Out: io.Discard, Err: os.Stderr}); code != 0 {
					b.Fatalf("exit code %d", code)
				}
			}
		})
	}
}

// BenchmarkComponent lints one component of a real release in its place, and for comparison
// the whole release.
func BenchmarkComponent(b *testing.B) {
	release := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if release == "" {
		b.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	files, err := filepath.Glob(filepath.Join(release, "release-manifests", "0000_*_machine-api-operator_*"))
	if err != nil || len(files) == 0 {
		b.Fatal("the release has no machine-api-operator: ", err)
	}
	own := b.TempDir()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, filepath.Base(file)), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"one component": {"lint", own, "--component", "machine-api-operator", "--into", release, "--fail-on", "never"},
		"all":           {"lint", release, "--fail-on", "never"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if code := cli.Run(context.Background(), args,
					core.Streams{Out: io.Discard, Err: io.Discard}); code != 0 {
					b.Fatalf("exit code %d", code)
				}
			}
		})
	}
}
