package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var control = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(control.Run(m)) }

// TestPreviewsShowNoSecret previews Secrets that are missing, that another tool has created,
// and that were applied: changed, deleted, refused, recreated.
func TestPreviewsShowNoSecret(t *testing.T) {
	folder := t.TempDir()
	for name, text := range releasesWithSecrets() {
		write(t, filepath.Join(folder, name), text)
	}
	old, next := filepath.Join(folder, "old"), filepath.Join(folder, "new")
	preview := func(source string) {
		for _, args := range [][]string{
			{"diff"}, {"diff", "--all"}, {"diff", "-o", "json"}, {"diff", "-o", "json", "--all"},
			{"diff", "-o", "yaml", "--all"}, {"diff", "-o", "markdown"},
			{"plan", "--cluster"}, {"plan", "--cluster", "--all"}, {"plan", "--cluster", "-o", "json"},
			{"plan", "--cluster", "-o", "yaml"}, {"plan", "--cluster", "-o", "markdown"},
			{"plan", "--cluster", "-o", "html"},
			{"apply", "--dry-run=server"}, {"apply", "--dry-run=server", "-o", "json"},
		} {
			args = append(args, source, "--name", "secrets", "--kubeconfig", control.Sandbox(t).Kubeconfig)
			code, output := runCommand(args)
			if code > 1 || len(output) == 0 {
				t.Errorf("%v: got exit code %d and output %q, want 0 or 1, and some output", args, code, output)
			}
			checkNoSecret(t, args, output)
		}
	}
	preview(old) // the objects have no Namespace yet
	client := control.Client(t).CoreV1()
	if _, err := client.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	preview(old)
	theirs := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "changed",
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: hiddenValues[3]},
		},
		Data: map[string][]byte{"password": []byte(hiddenValues[2]), "token": []byte(hiddenValues[5])},
	}
	if _, err := client.Secrets("shop").Create(t.Context(), theirs,
		metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
		t.Fatal(err)
	}
	preview(old)
	if code, output := runCommand([]string{"apply", old, "--name", "secrets", "--kubeconfig",
		control.Sandbox(t).Kubeconfig}); code != 0 {
		t.Fatalf("got exit code %d, want 0:\n%s", code, output)
	}
	preview(old)
	preview(next)
}

// runCommand runs a command, and returns its exit code, and its output with its errors.
func runCommand(args []string) (code int, output string) {
	var out, problems bytes.Buffer
	code = cli.Run(context.Background(), args, core.Streams{Out: &out, Err: &problems})
	return code, out.String() + problems.String()
}
