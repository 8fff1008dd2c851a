package packages

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

// TestHomebrewFormula runs the formula: each platform has its archive, and the files that it installs exist.
func TestHomebrewFormula(t *testing.T) {
	p := publishAll(t)
	file := filepath.Join(p.folder, "runlevel.rb")
	text := read(t, p.folder)["runlevel.rb"]
	for _, archive := range p.On("linux", "darwin") {
		if !strings.Contains(text, archive.File+"\"\n      sha256 \""+archive.SHA256+"\"\n") {
			t.Errorf("the formula does not have %s and its digest:\n%s", archive.File, text)
		}
	}
	output := run(t, program(t, "ruby"), "testdata/homebrew.rb", file, p.On("darwin")[0].Contents)
	want := "macos intel URL/runlevel_v0.1.0_darwin_amd64.tar.gz\n" +
		"macos arm URL/runlevel_v0.1.0_darwin_arm64.tar.gz\n" +
		"linux intel URL/runlevel_v0.1.0_linux_amd64.tar.gz\nlinux arm URL/runlevel_v0.1.0_linux_arm64.tar.gz\n"
	if got := strings.ReplaceAll(output, p.Downloads, "URL"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestKrewManifest installs the plugin for all platforms by krew itself, as the check of krew's index does.
func TestKrewManifest(t *testing.T) {
	p := publishAll(t)
	tools := t.TempDir()
	run(t, "go", "-C", filepath.Join(p.Source, "tools/packaging"), "build", "-o", tools, "sigs.k8s.io/krew/cmd/krew",
		"sigs.k8s.io/krew/cmd/validate-krew-manifest")
	kubectl := "#!/bin/sh\nprogram=$1\nshift\nexec \"" + tools + "/$program\" \"$@\"\n" // runs plugins only
	check(t, os.WriteFile(filepath.Join(tools, "kubectl"), []byte(kubectl), 0o755))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	manifest := filepath.Join(t.TempDir(), "runlevel.yaml") // named as in krew's index
	check(t, os.WriteFile(manifest, []byte(read(t, p.folder)["runlevel-krew.yaml"]), 0o644))
	output := run(t, filepath.Join(tools, "validate-krew-manifest"), "-manifest", manifest)
	if !strings.Contains(output, "all 6 spec.platforms installed fine") {
		t.Error(output)
	}
	home := t.TempDir()
	t.Setenv("KREW_ROOT", home)
	run(t, "kubectl", "krew", "install", "--manifest="+manifest)
	if output := run(t, filepath.Join(home, "bin/kubectl-runlevel")); output != "runlevel v0.1.0\n" {
		t.Errorf("the plugin prints %q", output)
	}
}

// TestManifestsForWindows checks the fields and, if RUNLEVEL_TEST_SCHEMAS names a folder with the schemas of winget and
// scoop, the manifests.
func TestManifestsForWindows(t *testing.T) {
	p := publishAll(t)
	for file, test := range map[string]struct {
		schema string
		digest func(string) string
	}{
		"Runlevel.Runlevel.yaml":              {"winget.version.json", nil},
		"Runlevel.Runlevel.installer.yaml":    {"winget.installer.json", strings.ToUpper},
		"Runlevel.Runlevel.locale.en-US.yaml": {"winget.defaultLocale.json", nil},
		"runlevel.json":                       {"scoop.json", strings.ToLower},
	} {
		text := read(t, p.folder)[file]
		document, err := yaml.YAMLToJSONStrict([]byte(text))
		check(t, err)
		for _, archive := range p.On("windows") {
			if test.digest != nil && (!strings.Contains(text, p.Downloads+"/"+archive.File) ||
				!strings.Contains(text, test.digest(archive.SHA256))) {
				t.Errorf("%s does not have %s and its digest:\n%s", file, archive.File, text)
			}
		}
		var fields struct{ PackageVersion, Version string }
		check(t, json.Unmarshal(document, &fields))
		if fields.PackageVersion+fields.Version != "0.1.0" {
			t.Errorf("%s has version %q", file, fields.PackageVersion+fields.Version)
		}
		if schemas := os.Getenv("RUNLEVEL_TEST_SCHEMAS"); schemas != "" {
			validate(t, filepath.Join(schemas, test.schema), document)
		}
	}
}

func validate(t *testing.T, schema string, document []byte) {
	t.Helper()
	text, err := os.ReadFile(schema)
	check(t, err)
	result, err := gojsonschema.Validate(gojsonschema.NewBytesLoader(text), gojsonschema.NewBytesLoader(document))
	check(t, err)
	for _, problem := range result.Errors() {
		t.Errorf("%s: %s", schema, problem)
	}
}
