package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// planted is a secret value. No other text contains the value, its base64, or a part of that.
const planted = "pLaNtEd"

// secrets are two releases with the planted value in Secrets that are changed, new, removed, excluded, deleted,
// immutable, recreated, broken, and replaced by another kind. SECRET stands for the value, BASE64 for its base64.
const secrets = `
-- old/0000_10_web_a.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: changed, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"data":"SECRET"}'}}, data: {a: BASE64, gone: BASE64}, stringData: {b: SECRET, c: "SECRET\nSECRET"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: gone}, stringData: {b: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: dropped, annotations: {kubectl.kubernetes.io/last-applied-configuration: SECRET}}, stringData: {b: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: was-a-secret}, stringData: {b: SECRET}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: is-a-secret}, data: {b: c}}
---
{apiVersion: v1, kind: Secret, metadata: {name: sealed}, immutable: true, type: a/b, data: {a: BASE64}}
---
{apiVersion: v1, kind: Secret, metadata: {name: again, annotations: {runlevel.dev/recreate: "true"}}, immutable: true, data: {a: BASE64}}
---
{apiVersion: v1, kind: Secret, metadata: {name: broken}, data: {a: SECRET, b: {c: SECRET}}, stringData: [SECRET]}
---
{apiVersion: v1, kind: Secret, metadata: {name: left-out}, stringData: {b: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: create-only, annotations: {release.openshift.io/create-only: "true"}}, stringData: {b: SECRET}}
-- new/0000_10_web_a.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: changed, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"data":"SECRET1"}'}}, data: {a: BASE64Cg==}, stringData: {b: SECRET2, c: "SECRET\nSECRET3", new: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: gone, annotations: {release.openshift.io/delete: "true"}}, stringData: {b: SECRET1}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: was-a-secret}, data: {b: c}}
---
{apiVersion: v1, kind: Secret, metadata: {name: is-a-secret}, stringData: {b: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: sealed}, immutable: true, type: a/c, data: {b: BASE64}}
---
{apiVersion: v1, kind: Secret, metadata: {name: again, annotations: {runlevel.dev/recreate: "true"}}, immutable: true, stringData: {a: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: broken}, data: [SECRET], stringData: SECRET, dta: SECRET}
---
{apiVersion: v1, kind: Secret, metadata: {name: left-out, annotations: {release.openshift.io/feature-set: TechPreviewNoUpgrade}}, stringData: {b: SECRET}}
---
{apiVersion: v1, kind: Secret, metadata: {name: create-only, annotations: {release.openshift.io/create-only: "true"}}, stringData: {b: SECRET1}}
---
{apiVersion: v1, kind: Secret, metadata: {name: new, annotations: {kubectl.kubernetes.io/last-applied-configuration: SECRET}}, data: {a: BASE64}}
`

// TestSecretsAreNeverShown looks for the planted value in all output.
func TestSecretsAreNeverShown(t *testing.T) {
	folder := t.TempDir()
	text := strings.NewReplacer("SECRET", planted, "BASE64",
		base64.StdEncoding.EncodeToString([]byte(planted))).Replace(secrets)
	files, err := txtar.FS(txtar.Parse([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(folder, files); err != nil {
		t.Fatal(err)
	}
	old, next := filepath.Join(folder, "old"), filepath.Join(folder, "new")
	for _, releases := range [][]string{{old, next}, {next, old}} {
		for _, format := range []string{"text", "json", "yaml", "markdown", "html"} {
			shown := run(t, "plan", releases[0], releases[1], "-o", format, "--all", "--feature-set", "Default")
			if !strings.Contains(shown, "sealed") || !strings.Contains(shown, "***") {
				t.Errorf("%s: Secrets are not compared: %s", format, shown)
			}
			hides(t, "plan -o "+format, shown)
		}
	}
	written := filepath.Join(folder, "written")
	for _, args := range [][]string{{}, {"-o", "json"}, {"--explain"}, {"--only-excluded", "--feature-set", "Default"},
		{"--output-dir", written}} {
		hides(t, fmt.Sprint("render ", args), run(t, append([]string{"render", next}, args...)...))
	}
	err = fs.WalkDir(os.DirFS(written), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(written, path))
		hides(t, path, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if shown := run(t, "render", next, "--show-secrets"); !strings.Contains(shown, planted) {
		t.Error("--show-secrets does not show a Secret")
	}
}

// TestCommandInCommentHasFilters checks that the command that a shortened comment names has the same filters.
func TestCommandInCommentHasFilters(t *testing.T) {
	folder := t.TempDir()
	for _, side := range []string{"old", "new"} {
		var text strings.Builder
		text.WriteString("{apiVersion: v1, kind: ConfigMap, metadata: {name: other, annotations: " +
			"{exclude.release.openshift.io/it's: x}}}\n")
		for i := range 1_000 {
			fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}, data: {side: %s}}\n", i,
				side)
		}
		if err := os.Mkdir(filepath.Join(folder, side), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, side, "a.yaml"), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	out := run(t, "plan", "old", "./new", "-o", "markdown", "--all", "--feature-set", "Default", "--exclude", "it's",
		"--unmanaged", "ConfigMap/web/c1", "--unmanaged", "ConfigMap/web/c2")
	if want := "run `runlevel plan old ./new '--exclude=it'\\''s' --feature-set=Default --unmanaged=ConfigMap/web/c1 " +
		"--unmanaged=ConfigMap/web/c2`.\n"; !strings.HasSuffix(out, want) {
		t.Errorf("got\n%s\nwant %s", out[len(out)-300:], want)
	}
}

// TestFailuresAreNoDifference checks that with --exit-code, only a difference results in 1.
func TestFailuresAreNoDifference(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"old", "new"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name, "a.yaml"),
			[]byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+"}}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for want, more := range map[int][]string{1: nil, 2: {"--exit-code"}} {
		args := append([]string{"plan", filepath.Join(folder, "old"), filepath.Join(folder, "new")}, more...)
		if code := cli.Run(t.Context(), args, core.Streams{Out: failingWriter{}, Err: io.Discard}); code != want {
			t.Errorf("%v: exit code %d, want %d", more, code, want)
		}
	}
}

// A failingWriter fails on each write.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func hides(t *testing.T, what, shown string) {
	t.Helper()
	encoded := base64.RawStdEncoding.EncodeToString([]byte(planted))
	for _, secret := range []string{planted, encoded[:len(encoded)-2]} { // the last characters depend on the next bytes
		if strings.Contains(shown, secret) {
			t.Errorf("%s shows a secret:\n%s", what, shown)
		}
	}
}

// run runs a command that must succeed, and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if code := cli.Run(context.Background(), args, core.Streams{Out: &out, Err: &out}); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, &out)
	}
	return out.String()
}
