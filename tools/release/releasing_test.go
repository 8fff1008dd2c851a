package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// releasingVariable enables the test that builds a release with the commands of docs/releasing.md.
const releasingVariable = "RUNLEVEL_TEST_RELEASING"

// marked finds the commands of a page that a test runs, also inside a list.
var marked = regexp.MustCompile("(?ms)^ *<!-- a test runs this -->\n *```sh\n(.*?)^ *```$")

// standIn is a program that records its arguments. It fails where gh would look for a release that does not exist.
const standIn = `#!/bin/sh
echo "$(basename "$0") $*" >>"$RUNNER_TEMP/calls"
test "$2" != view || test -n "$HAS_DRAFT"
`

// A releaser runs the commands with which a release is cut.
type releaser struct {
	t   *testing.T
	env []string
}

func (r *releaser) run(folder, commands string) {
	r.t.Helper()
	shell := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	shell.Dir, shell.Env = folder, append(os.Environ(), r.env...)
	if out, err := shell.CombinedOutput(); err != nil {
		r.t.Fatalf("%v:\n%s\n%s", err, commands, out)
	}
}

// TestARelease cuts a release in a clone, with a throw-away key, and programs for linux/amd64 only: with the commands
// of docs/releasing.md, and then those by which the workflow verifies and publishes it. Only the registry is real
// there.
func TestARelease(t *testing.T) {
	page, err := os.ReadFile("../../docs/releasing.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := marked.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 || !strings.Contains(blocks[1][1], "make release") {
		t.Fatalf("docs/releasing.md has %d blocks that a test runs, want one that verifies and one that builds",
			len(blocks))
	}
	steps := publishingSteps(t)
	if os.Getenv(releasingVariable) == "" {
		t.Skip("set " + releasingVariable + "=1: this test builds a release, which takes minutes")
	}
	for _, program := range []string{"jq", "openssl", "perl", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("install " + program + ": the steps of a release need it")
		}
	}
	scratch := t.TempDir()
	clone := filepath.Join(scratch, "runlevel")
	if out, err := exec.Command("git", "clone", "--quiet", "--shared", "../..", clone).CombinedOutput(); err != nil {
		t.Skipf("this test needs git and a clone: %v\n%s", err, out)
	}
	registry := imageregistry.StartTLS()
	defer registry.Close()
	create(t, filepath.Join(scratch, "ca.pem"), registry.Certificate())
	for _, name := range []string{"gh", "helm"} {
		create(t, filepath.Join(scratch, "stand-ins", name), []byte(standIn))
	}
	image := registry.Host + "/team/runlevel"
	r := releaser{t: t, env: []string{
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.com",
		"RELEASEFLAGS=-platforms linux/amd64 -image " + image,
		"TAG=v0.2.0", "IMAGE=" + image, "CHARTS=registry.example/charts", "RUNNER_TEMP=" + scratch,
		"GITHUB_PATH=" + filepath.Join(scratch, "path"), "GITHUB_OUTPUT=" + filepath.Join(scratch, "output"),
		fmt.Sprintf("PATH=%[1]s/stand-ins:%[1]s/bin:%[2]s", scratch, os.Getenv("PATH")),
	}}
	r.run(clone, blocks[1][1])
	folder := filepath.Join(clone, "bin", "release")
	r.run(folder, blocks[0][1]+"rm checksums.sig")
	r.run(folder, "cp runlevel.pub ../..\n"+steps["Verify the files"])
	r.run(folder, "runlevel version | grep -F v0.2.0")
	const trust = "export SSL_CERT_FILE=$RUNNER_TEMP/ca.pem\n"
	r.run(clone, steps["Draft the release"])
	r.run(folder, trust+steps["Push the images and charts"])
	r.run(folder, trust+`runlevel release info "$IMAGE-release:0.2.0" | grep -F machine-controller`)
	r.run(clone, "git tag v0.2.0\n"+steps["Publish the release"])
	checkCalls(t, filepath.Join(scratch, "calls"), folder)

	create(t, filepath.Join(folder, "install.yaml"), []byte("another file"))
	shell := exec.Command("bash", "-euo", "pipefail", "-c", blocks[0][1])
	shell.Dir = folder
	if out, err := shell.CombinedOutput(); err == nil || !strings.Contains(string(out), "install.yaml: FAILED") {
		t.Errorf("a changed file is verified: %v\n%s", err, out)
	}
}

// TestPublishing publishes releases by the workflow, in a repository with releases of two minor versions.
func TestPublishing(t *testing.T) {
	steps := publishingSteps(t)
	for _, test := range []struct{ tag, draft, kind string }{
		{"v0.10.0", "", "--latest"},
		{"v0.10.0", "1", "--latest"},
		{"v0.9.1", "", "--latest=false"},
		{"v0.11.0-rc.1", "", "--prerelease"},
	} {
		scratch := t.TempDir()
		create(t, filepath.Join(scratch, "stand-ins", "gh"), []byte(standIn))
		create(t, filepath.Join(scratch, "bin", "release", "install.yaml"), nil)
		r := releaser{t: t, env: []string{
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com", "RUNNER_TEMP=" + scratch, "TAG=" + test.tag, "HAS_DRAFT=" + test.draft,
			"PATH=" + filepath.Join(scratch, "stand-ins") + string(filepath.ListSeparator) + os.Getenv("PATH"),
		}}
		r.run(scratch, "git init --quiet\ngit commit --quiet --allow-empty --message a\n"+
			"for tag in v0.9.0 v0.9.1 v0.10.0 v0.11.0-rc.1; do git tag $tag; done\n"+
			steps["Draft the release"]+steps["Publish the release"])
		text, err := os.ReadFile(filepath.Join(scratch, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		want := "gh release edit " + test.tag + " --draft=false " + test.kind + "\n"
		isCreated := strings.Contains(string(text), " create ")
		if !strings.HasSuffix(string(text), want) || isCreated == (test.draft != "") {
			t.Errorf("the workflow calls\n%swant a draft %t, and last %s", text, test.draft == "", want)
		}
	}
}

// publishingSteps returns the commands of the workflow's job that publishes, by the names of its steps.
func publishingSteps(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../.github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps    []struct{ Name, Run string }
			Strategy struct{ Matrix struct{ Archive []string } }
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	for i, platform := range strings.Split(allPlatforms, ",") {
		archives := workflow.Jobs["sbom"].Strategy.Matrix.Archive
		if i >= len(archives) || !strings.HasPrefix(archives[i], strings.Replace(platform, "/", "_", 1)+".") {
			t.Errorf("job sbom of the release workflow has the archives %s, want those of %s", archives, allPlatforms)
		}
	}
	commands := map[string]string{}
	for _, step := range workflow.Jobs["publish"].Steps {
		commands[step.Name] = step.Run
	}
	for _, name := range []string{
		"Verify the files", "Draft the release", "Push the images and charts", "Publish the release",
	} {
		if commands[name] == "" {
			t.Fatalf("job publish of the release workflow has no step %q", name)
		}
	}
	return commands
}

// checkCalls fails the test unless both charts were pushed, and the release was published last, with all files.
func checkCalls(t *testing.T, log, folder string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	calls := strings.Split(strings.TrimSpace(string(text)), "\n")
	wanted := []string{
		"gh release view v0.2.0", "gh release create v0.2.0 --draft", "gh release upload v0.2.0 ",
		"helm push runlevel-machines-0.2.0.tgz oci://registry.example/charts",
		"helm push runlevel-operator-0.2.0.tgz oci://registry.example/charts",
		"gh release edit v0.2.0 --draft=false --latest",
	}
	if len(calls) != len(wanted) {
		t.Fatalf("the workflow calls\n%s\nwant\n%s", text, strings.Join(wanted, "\n"))
	}
	for i, call := range calls {
		if !strings.HasPrefix(call, wanted[i]) {
			t.Errorf("call %d is %s, want %s", i+1, call, wanted[i])
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(calls[2], "bin/release/"+file.Name()+" ") {
			t.Errorf("%s is not attached to the release", file.Name())
		}
	}
}

func create(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}
