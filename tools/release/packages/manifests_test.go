package packages

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

// TestHomebrewFormula runs the formula and its test: each platform has its archive, and the installed files exist.
func TestHomebrewFormula(t *testing.T) {
	p := publish(t)
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
		"linux intel URL/runlevel_v0.1.0_linux_amd64.tar.gz\nlinux arm URL/runlevel_v0.1.0_linux_arm64.tar.gz\n" +
		"kubectl-runlevel is a link to runlevel\nthe test has passed\n"
	if got := strings.ReplaceAll(output, p.Downloads, "URL"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestKrewManifest installs the plugin for all platforms by krew itself, as the check of krew's index does.
func TestKrewManifest(t *testing.T) {
	p := publish(t)
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

// TestManifestsForWindows compares the program and, for each processor, the archive and its digest.
func TestManifestsForWindows(t *testing.T) {
	p := publish(t)
	var winget struct {
		Installers           []struct{ Architecture, InstallerURL, InstallerSha256 string }
		NestedInstallerFiles []struct{ RelativeFilePath string }
	}
	p.decode(t, "Runlevel.Runlevel.installer.yaml", &winget)
	got := map[string]string{}
	for _, i := range winget.Installers {
		got["winget "+i.Architecture] = i.InstallerURL + " " + i.InstallerSha256
	}
	programs := []string{winget.NestedInstallerFiles[0].RelativeFilePath}
	var scoop struct {
		Architecture map[string]struct{ URL, Hash string }
		Bin          []any // a program, then a pair of a program and its other name
	}
	p.decode(t, "runlevel.json", &scoop)
	for name, archive := range scoop.Architecture {
		got["scoop "+name] = archive.URL + " " + archive.Hash
	}
	for _, program := range scoop.Bin {
		programs = append(programs, strings.Trim(strings.TrimSuffix(fmt.Sprint(program), " kubectl-runlevel]"), "["))
	}
	want := map[string]string{}
	wingetName := map[string]string{"amd64": "x64", "arm64": "arm64"}
	scoopName := map[string]string{"amd64": "64bit", "arm64": "arm64"}
	for _, archive := range p.On("windows") {
		url := p.Downloads + "/" + archive.File
		want["winget "+wingetName[archive.Arch]] = url + " " + strings.ToUpper(archive.SHA256)
		want["scoop "+scoopName[archive.Arch]] = url + " " + archive.SHA256
		for _, program := range programs {
			if read(t, archive.Contents)[program] == "" {
				t.Errorf("%s does not have the program %s", archive.File, program)
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// TestSchemasForWindows validates the manifests of winget and scoop, and compares their versions.
func TestSchemasForWindows(t *testing.T) {
	p := publish(t)
	for file, schema := range map[string]string{
		"Runlevel.Runlevel.yaml":              "winget.version.json",
		"Runlevel.Runlevel.installer.yaml":    "winget.installer.json",
		"Runlevel.Runlevel.locale.en-US.yaml": "winget.defaultLocale.json",
		"runlevel.json":                       "scoop.json",
	} {
		var fields struct{ PackageVersion, Version string }
		document := p.decode(t, file, &fields)
		if fields.PackageVersion+fields.Version != "0.1.0" {
			t.Errorf("%s has version %q", file, fields.PackageVersion+fields.Version)
		}
		if schemas := os.Getenv("RUNLEVEL_TEST_SCHEMAS"); schemas != "" {
			validate(t, filepath.Join(schemas, schema), document)
		}
	}
}

// decode decodes a manifest and returns it as JSON.
func (p *published) decode(t *testing.T, file string, manifest any) []byte {
	t.Helper()
	document, err := yaml.YAMLToJSONStrict([]byte(read(t, p.folder)[file]))
	check(t, err)
	check(t, json.Unmarshal(document, manifest))
	return document
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
