package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// hiddenValues are values of Secrets, one in base64, that no output may show.
var hiddenValues = []string{"pl4nted-one", "cGw0bnRlZC10d28tMg==", "pl4nted-three", "pl4nted-four", "cGw0bnRlZC1maXZl",
	"pl4nted-six", "12345678912345"}

func secret(name, annotations, rest string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: shop\n  annotations: "+
		"{%s}\n%s", name, annotations, rest)
}

func stringData(value string) string { return "stringData:\n  password: " + value + "\n" }

func data(value string) string { return "data:\n  password: " + value + "\n" }

func copied(value string) string {
	return `kubectl.kubernetes.io/last-applied-configuration: '{"data":{"password":"` + value + `"}}'`
}

// releasesWithSecrets are the files of two releases, in the folders old and new.
func releasesWithSecrets() map[string]string {
	return map[string]string{
		"old/0000_50_web_01_changed.yaml": secret("changed", copied(hiddenValues[0]), stringData(hiddenValues[2])),
		"new/0000_50_web_01_changed.yaml": secret("changed", copied(hiddenValues[3]), stringData(hiddenValues[5])),
		"old/0000_50_web_02_data.yaml":    secret("data", "", data(hiddenValues[1])),
		"new/0000_50_web_02_data.yaml":    secret("data", "", data(hiddenValues[4])),
		"old/0000_50_web_03_dropped.yaml": secret("dropped", "", stringData(hiddenValues[0])),
		"new/0000_50_web_04_created.yaml": secret("created", "", stringData(hiddenValues[2])),
		"old/0000_50_web_05_deleted.yaml": secret("deleted", "", stringData(hiddenValues[3])),
		"new/0000_50_web_05_deleted.yaml": secret("deleted", `release.openshift.io/delete: "true"`,
			stringData(hiddenValues[3])),
		"old/0000_50_web_06_sealed.yaml": secret("sealed", "", data(hiddenValues[1])+"immutable: true\n"),
		"new/0000_50_web_06_sealed.yaml": secret("sealed", "", data(hiddenValues[4])+"immutable: true\n"),
		"old/0000_50_web_07_moved.yaml":  secret("moved", "", "stringData: {password: "+hiddenValues[0]+"}\n"),
		"new/0000_50_web_07_moved.yaml": secret("moved", "",
			"type: example.com/other\nstringData: {token: "+hiddenValues[0]+"}\n"),
		"new/0000_50_web_08_recreate.yaml": secret("recreate", `runlevel.dev/recreate: "true"`, data(hiddenValues[4])),
	}
}

// TestCommandsShowNoSecret runs every command that reads releases on releases with Secrets that are changed, new,
// removed, deleted, and invalid in ways that are reported.
func TestCommandsShowNoSecret(t *testing.T) {
	folder := t.TempDir()
	good := releasesWithSecrets()
	bad := map[string]string{
		"bad/0000_50_web_01_type.yaml":   secret("type", "", "data: ["+hiddenValues[0]+"]\n"),
		"bad/0000_50_web_02_base64.yaml": secret("base64", "", data(hiddenValues[0])),
		"bad/0000_50_web_03_number.yaml": secret("number", "", "data: {password: 12345678912345}\n"),
		"bad/0000_50_web_04_twice.yaml": secret("twice", "",
			stringData(hiddenValues[2])+"  password: "+hiddenValues[3]+"\n"),
		"bad/0000_50_web_05_anchor.yaml": secret("anchor", "", stringData("*"+hiddenValues[0])),
		"bad/0000_50_web_06_flow.yaml":   secret("flow", "", stringData("{{"+hiddenValues[0]+"}}")),
		"bad/0000_50_web_07_open.yaml":   secret("open", "", stringData(`"`+hiddenValues[0])),
		"bad/0000_50_web_08_tag.yaml":    secret("tag", "", stringData("!"+hiddenValues[0]+" x")),
		"bad/0000_50_web_09_annotate.yaml": secret("annotate",
			copied(hiddenValues[2])+", release.openshift.io/delete: yes", stringData(hiddenValues[3])),
		"bad/0000_50_web_10_extra.yaml": secret("extra", "",
			stringData(hiddenValues[3])+"passwords: "+hiddenValues[0]+"\n"),
		"bad/0000_50_web_11_list.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, " +
			"stringData: {a: " + hiddenValues[0] + "}}\n",
		"bad/0000_50_web_12_key.yaml":     secret("key", "", stringData("a: "+hiddenValues[0]+": b")),
		"bad/0000_50_web_14_tagged.yaml":  secret("tagged", "", stringData("!!int "+hiddenValues[0])),
		"bad/0000_50_web_15_boolean.yaml": secret("boolean", "", stringData("!!bool |\n    "+hiddenValues[2])),
		"bad/0000_50_web_16_null.yaml":    secret("nullkey", "", stringData("x\n  ~: "+hiddenValues[0])),
		"bad/0000_50_web_17_itself.yaml": secret("itself", "",
			"stringData: &"+hiddenValues[0]+"\n  password: *"+hiddenValues[0]+"\n"),
		"bad/0000_50_web_18_number.yaml": secret("numbers", "example.com/password: 12345678912345", stringData("x")),
		"bad/0000_50_web_13.json":        `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"json"},"stringData":{"a":` + hiddenValues[0] + `}}`,
	}
	for _, files := range []map[string]string{good, bad} {
		for name, text := range files {
			write(t, filepath.Join(folder, name), text)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "written"), 0o755); err != nil {
		t.Fatal(err)
	}
	old, next, broken := filepath.Join(folder, "old"), filepath.Join(folder, "new"), filepath.Join(folder, "bad")
	for _, args := range [][]string{
		{"render", next}, {"render", next, "-o", "json"}, {"render", next, "--explain"},
		{"render", next, "--only-excluded"},
		{"render", next, "--output-dir", filepath.Join(folder, "rendered")},
		{"graph", next, "--manifests"}, {"graph", next, "-o", "json"}, {"graph", next, "-o", "dot"},
		{"graph", next, "-o", "svg"}, {"graph", next, "-o", "mermaid"}, {"graph", next, "--references"},
		{"plan", old, next, "--all"}, {"plan", old, next, "-o", "json"}, {"plan", old, next, "-o", "yaml"},
		{"plan", old, next, "-o", "markdown"}, {"plan", old, next, "-o", "html", "--all"},
		{"plan", next, old}, {"plan", next, old, "-o", "markdown"},
		{"lint", next, "--previous", old}, {"lint", next, "--previous", old, "-o", "json"},
		{"lint", next, "--previous", old, "-o", "sarif"},
		{"lint", next, "--previous", old, "-o", "junit"}, {"lint", next, "--previous", old, "-o", "github"},
		{"lint", next, "--previous", old, "-o", "html"}, {"lint", broken, "-o", "html"},
		{"lint", broken, "-o", "junit"}, {"lint", broken, "-o", "github"},
		{"lint", next, "--previous", old, "--baseline", filepath.Join(folder, "written", "good"), "--write-baseline"},
		{"lint", broken, "--baseline", filepath.Join(folder, "written", "bad"), "--write-baseline"},
		{"render", broken}, {"graph", broken}, {"plan", broken, next}, {"lint", broken},
		{"lint", broken, "-o", "sarif"}, {"lint", next, "--previous", broken},
	} {
		var out, problems bytes.Buffer
		code := cli.Run(context.Background(), args, core.Streams{Out: &out, Err: &problems})
		if output := out.String() + problems.String(); code < 0 ||
			len(output) == 0 && !strings.Contains(strings.Join(args, " "), "only-excluded") {
			t.Errorf("%v: got no output", args)
		} else {
			checkNoSecret(t, args, output)
		}
	}
	var files []string
	for _, name := range []string{"rendered", "written"} {
		found, err := filepath.Glob(filepath.Join(folder, name, "*"))
		if err != nil || len(found) == 0 {
			t.Fatal("no files are in "+name, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checkNoSecret(t, []string{file}, string(text))
	}
}

func checkNoSecret(t *testing.T, what []string, output string) {
	t.Helper()
	for _, value := range hiddenValues {
		for line := range strings.Lines(output) {
			if strings.Contains(line, value) ||
				strings.Contains(line, base64.StdEncoding.EncodeToString([]byte(value))) {
				t.Errorf("%v shows the secret %s: %s", what, value, line)
			}
		}
	}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
