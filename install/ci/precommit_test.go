package ci_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"sigs.k8s.io/yaml"
)

// A hook is a hook of .pre-commit-hooks.yaml. Other fields are mistakes.
type hook struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Description    string   `json:"description"`
	Language       string   `json:"language"`
	Entry          string   `json:"entry"`
	Args           []string `json:"args"`
	PassFilenames  *bool    `json:"pass_filenames"`
	Files          string   `json:"files"`
	Stages         []string `json:"stages"`
	MinimumVersion string   `json:"minimum_pre_commit_version"`
}

func readHooks(t *testing.T) map[string]hook {
	t.Helper()
	var list []hook
	check(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, ".pre-commit-hooks.yaml"))), &list))
	hooks := map[string]hook{}
	for _, h := range list {
		hooks[h.ID] = h
	}
	return hooks
}

// A committer contains a component, and the hooks of this repository at HEAD.
type committer struct {
	folder string // folder of the component
	env    map[string]string
	run    func(t *testing.T, id string) (log string, code int)
}

// newCommitter installs the hooks with pre-commit. If pre-commit is missing, newCommitter clones the repository and
// runs "go install ./..." there, as pre-commit does.
func newCommitter(t *testing.T, files map[string]string) *committer {
	t.Helper()
	sandboxtest.SkipInShort(t, "builds runlevel as a CI job does")
	c := &committer{folder: repository(t, files), env: goEnvironment(t)}
	c.env["PATH"], c.env["HOME"] = os.Getenv("PATH"), t.TempDir()
	// The flags are those of the action, so that the program is compiled once for both tests.
	c.env["GOFLAGS"] += " -trimpath -tags=grpcnotrace"
	c.env["CGO_ENABLED"] = "0"
	origin, err := filepath.Abs(strings.TrimSpace(output(t, root, "git", "rev-parse", "--show-toplevel")))
	check(t, err)
	if _, err := exec.LookPath("pre-commit"); err == nil {
		c.usePreCommit(t, origin)
		return c
	}
	clone, gopath := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	output(t, root, "git", "clone", "--quiet", origin, clone)
	env := maps.Clone(c.env)
	env["GOPATH"] = gopath
	install := exec.Command("go", "install", "./...")
	install.Dir, install.Env = clone, flat(env)
	if log, code := finish(t, install); code != 0 {
		t.Fatalf("go install ./... ended with %d\n%s", code, log)
	}
	c.env["PATH"] = filepath.Join(gopath, "bin") + string(filepath.ListSeparator) + c.env["PATH"]
	c.run = c.runHook
	return c
}

func (c *committer) usePreCommit(t *testing.T, origin string) {
	head := strings.TrimSpace(output(t, root, "git", "rev-parse", "HEAD"))
	c.env["PRE_COMMIT_HOME"] = t.TempDir()
	config := "repos:\n- repo: " + origin + "\n  rev: " + head + "\n  hooks:\n"
	for id := range readHooks(t) {
		config += "  - id: " + id + "\n    args: [./manifests]\n"
	}
	write(t, filepath.Join(c.folder, ".pre-commit-config.yaml"), config)
	c.run = func(t *testing.T, id string) (string, int) {
		t.Helper()
		args := []string{"run", id}
		for _, stage := range readHooks(t)[id].Stages {
			args = append(args, "--hook-stage", stage)
		}
		command := exec.Command("pre-commit", args...)
		command.Dir, command.Env = c.folder, flat(c.env)
		return finish(t, command)
	}
}

// runHook runs a hook if a staged file matches the hook.
func (c *committer) runHook(t *testing.T, id string) (string, int) {
	t.Helper()
	h := readHooks(t)[id]
	if !anyMatches(h.Files, strings.Fields(output(t, c.folder, "git", "diff", "--staged", "--name-only"))) {
		return "(no files to check) Skipped\n", 0
	}
	command := exec.Command("env", append(strings.Fields(h.Entry), h.Args...)...)
	command.Dir, command.Env = c.folder, flat(c.env)
	return finish(t, command)
}

func anyMatches(pattern string, files []string) bool {
	for _, file := range files {
		if regexp.MustCompile(pattern).MatchString(file) {
			return true
		}
	}
	return false
}

func TestPreCommit(t *testing.T) {
	right := map[string]string{
		"README.md": "The web of the shop.\n",
		"manifests/0000_10_web_00_namespace.yaml": namespace,
		"manifests/0000_50_web_01_settings.yaml":  settings,
	}
	c := newCommitter(t, right)
	stage := func(file, text string) {
		write(t, filepath.Join(c.folder, file), text)
		output(t, c.folder, "git", "add", file)
	}

	stage("README.md", "The shop's web.\n")
	if log, code := c.run(t, "runlevel-lint"); code != 0 || !strings.Contains(log, "Skipped") {
		t.Errorf("with no manifest staged: ended with %d\n%s", code, log)
	}

	manifest := "manifests/0000_50_web_01_settings.yaml"
	stage(manifest, settings+"  annotations:\n    shop.example/revision: 7\n")
	if log, code := c.run(t, "runlevel-lint"); code != 1 ||
		!regexp.MustCompile(regexp.QuoteMeta(manifest)+`:\d+:\d+: error: .*\[malformed\]`).MatchString(log) {
		t.Errorf("with an error staged: ended with %d\n%s", code, log)
	}
	stage(manifest, settings+"  labels:\n    of: web\n")
	if log, code := c.run(t, "runlevel-lint"); code != 0 {
		t.Errorf("with nothing wrong: ended with %d\n%s", code, log)
	}

	c.env["KUBEBUILDER_ASSETS"] = controlPlane(t)
	services := "manifests/0000_50_web_02_services.yaml"
	stage(services, twoOnOnePort)
	if log, code := c.run(t, "runlevel-lint"); code != 0 {
		t.Errorf("with what only a rehearsal finds, lint ended with %d\n%s", code, log)
	}
	if log, code := c.run(t, "runlevel-rehearse"); code != 1 ||
		!strings.Contains(log, services+":21:5: error: Service web/admin: the API server refuses it: ") {
		t.Errorf("with findings of a rehearsal, exit code is %d\n%s", code, log)
	}
}

// A commit must not wait for a rehearsal. Hooks get no names of files, which runlevel would take for SOURCEs.
func TestHooksOfPreCommitFile(t *testing.T) {
	hooks := readHooks(t)
	if got, want := hooks["runlevel-rehearse"].Stages, []string{"pre-push"}; !slices.Equal(got, want) {
		t.Errorf("a rehearsal is for %v, want %v", got, want)
	}
	for id, h := range hooks {
		if h.Language != "golang" || h.PassFilenames == nil || *h.PassFilenames {
			t.Errorf("hook %s: language %q must be golang, and pass_filenames false", id, h.Language)
		}
		for file, want := range map[string]bool{
			"manifests/0000_50_web_01_settings.yaml": true, "manifests/a.yml": true, "deep/in/it.json": true,
			".runlevel-lint": true, "README.md": false, "yaml": false, "a.yaml.gotmpl": false,
		} {
			if got := anyMatches(h.Files, []string{file}); got != want {
				t.Errorf("hook %s matches %s: got %v, want %v", id, file, got, want)
			}
		}
	}
}
