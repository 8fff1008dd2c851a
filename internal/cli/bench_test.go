package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/runlevel/runlevel/internal/cli"
)

// BenchmarkCommands runs whole commands on a release of many small manifests.
func BenchmarkCommands(b *testing.B) {
	folder := b.TempDir()
	for i := range 2_000 {
		name := fmt.Sprintf("0000_%02d_component-%d_%04d.yaml", i/20, i%4, i)
		text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c%d\n  namespace: web\ndata:\n  key: value\n", i)
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
				if code := cli.Run(context.Background(), args, cli.Streams{Out: io.Discard, Err: os.Stderr}); code != 0 {
					b.Fatalf("exit code %d", code)
				}
			}
		})
	}
}
