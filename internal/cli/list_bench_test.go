package cli_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// BenchmarkListContexts lists the releases of 100 contexts, which are all the same control plane.
func BenchmarkListContexts(b *testing.B) {
	kubeconfig := control.Sandbox(b).Kubeconfig
	release := b.TempDir()
	for i := range 50 {
		text := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: many-%d, namespace: default}}", i)
		name := filepath.Join(release, fmt.Sprintf("0000_10_many_%02d.yaml", i))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if code, out := runCommand([]string{"apply", release, "--name", "many", "--kubeconfig", kubeconfig}); code != 0 {
		b.Fatal(out)
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 99 {
		config.Contexts[fmt.Sprintf("cluster-%02d", i)] = config.Contexts[config.CurrentContext]
	}
	many := filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, many); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		streams := core.Streams{Out: io.Discard, Err: os.Stderr}
		args := []string{"list", "--contexts", "*", "--kubeconfig", many, "--timeout", "1m"}
		if code := cli.Run(b.Context(), args, streams); code != 0 {
			b.Fatalf("exit code %d", code)
		}
	}
}
