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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The tests of this file use the examples of docs/ci.md as readers would.

// A workflow contains the used fields of a GitHub workflow.
type workflow struct {
	Name        string            `json:"name"`
	Permissions map[string]string `json:"permissions"`
	On          struct {
		PullRequest struct{} `json:"pull_request"`
		Push        struct {
			Branches []string `json:"branches"`
		} `json:"push"`
	} `json:"true"` // as YAML 1.1 reads "on", and GitHub does not
	Jobs map[string]struct {
		RunsOn string         `json:"runs-on"`
		Steps  []workflowStep `json:"steps"`
	} `json:"jobs"`
}

// A workflowStep has values of any type. An action gets them as texts.
type workflowStep struct {
	ID   string         `json:"id"`
	If   string         `json:"if"`
	Uses string         `json:"uses"`
	With map[string]any `json:"with"`
}

// A prowConfig contains the used fields of Prow's configuration.
type prowConfig struct {
	Presubmits map[string][]struct {
		Name         string         `json:"name"`
		Decorate     bool           `json:"decorate"`
		RunIfChanged string         `json:"run_if_changed"`
		Spec         corev1.PodSpec `json:"spec"`
	} `json:"presubmits"`
}

// A gitlabJob contains the used fields of a GitLab job.
type gitlabJob struct {
	Extends   string            `json:"extends"`
	Needs     []string          `json:"needs"`
	Stage     string            `json:"stage"`
	Image     string            `json:"image"`
	Variables map[string]string `json:"variables"`
	Rules     []struct {
		If      string   `json:"if"`
		Changes []string `json:"changes"`
	} `json:"rules"`
	Script    []string `json:"script"`
	Artifacts struct {
		When    string            `json:"when"`
		Reports map[string]string `json:"reports"`
	} `json:"artifacts"`
}

const (
	ours    = "runlevel/runlevel@"
	release = "registry.example/shop/release:1.4" // the release of the documentation
)

// blocks are the code blocks of docs/ci.md in a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	fenced := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	for _, match := range fenced.FindAllStringSubmatch(read(t, filepath.Join(root, "docs/ci.md")), -1) {
		if match[1] == language {
			found = append(found, match[2])
		}
	}
	return found
}

// block returns the block that contains a text.
func block(t *testing.T, language, has string) string {
	t.Helper()
	all := slices.DeleteFunc(blocks(t, language), func(text string) bool { return !strings.Contains(text, has) })
	if len(all) != 1 {
		t.Fatalf("docs/ci.md has %d blocks of %s with %q, want one", len(all), language, has)
	}
	return all[0]
}

// inputs returns the inputs that a step gives to our action, as texts.
func (s workflowStep) inputs(t *testing.T) map[string]string {
	t.Helper()
	declared := readAction(t)
	inputs := map[string]string{}
	for name, value := range s.With {
		if _, ok := declared.Inputs[name]; !ok {
			t.Errorf("docs/ci.md has an input that the action does not have: %s", name)
			continue
		}
		text, err := yaml.Marshal(value)
		check(t, err)
		inputs[name] = strings.TrimSpace(string(text))
	}
	return inputs
}

func readWorkflow(t *testing.T) []workflowStep {
	t.Helper()
	var w workflow
	check(t, yaml.UnmarshalStrict([]byte(block(t, "yaml", "# .github/workflows/")), &w))
	if len(w.On.Push.Branches) != 1 || len(w.Jobs) != 1 {
		t.Fatalf("the workflow builds on no branch: %+v", w)
	}
	var steps []workflowStep
	for _, job := range w.Jobs {
		steps = job.Steps
	}
	for _, has := range []string{"sarif-file", "rehearse: true", "html-folder"} {
		var more []workflowStep
		check(t, yaml.UnmarshalStrict([]byte(block(t, "yaml", has)), &more))
		steps = append(steps, more...)
	}
	return steps
}

func TestDocumentedWorkflow(t *testing.T) {
	count := 0
	for _, s := range readWorkflow(t) {
		if strings.HasPrefix(s.Uses, ours) {
			count++
			s.inputs(t)
		} else if !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(s.Uses) {
			t.Errorf("not pinned by a commit: %s", s.Uses)
		}
	}
	if count != 4 {
		t.Errorf("our action is used %d times, want 4", count)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(
		read(t, filepath.Join(root, "docs/ci.md")), -1,
	) {
		for _, name := range regexp.MustCompile("[a-z-]+").FindAllString(row[1], -1) {
			if _, ok := readAction(t).Inputs[name]; !ok {
				t.Errorf("docs/ci.md has an input in its table that the action does not: %s", name)
			}
		}
	}
}

func TestDocumentedHooks(t *testing.T) {
	var config struct {
		InstalledFor []string `json:"default_install_hook_types"`
		Repos        []struct {
			Repo  string `json:"repo"`
			Rev   string `json:"rev"`
			Hooks []struct {
				ID   string   `json:"id"`
				Args []string `json:"args"`
			} `json:"hooks"`
		} `json:"repos"`
	}
	check(t, yaml.UnmarshalStrict([]byte(block(t, "yaml", "# .pre-commit-config.yaml")), &config))
	hooks := readHooks(t)
	if want := []string{"pre-commit", "pre-push"}; !slices.Equal(config.InstalledFor, want) {
		t.Errorf("docs/ci.md installs hooks for %v, want %v", config.InstalledFor, want)
	}
	for _, h := range config.Repos[0].Hooks {
		if _, ok := hooks[h.ID]; !ok || !slices.Equal(h.Args, []string{"./manifests"}) {
			t.Errorf("hook %s with %q does not exist, or TestPreCommit uses other arguments", h.ID, h.Args)
		}
	}
	if len(config.Repos[0].Hooks) != len(hooks) {
		t.Errorf("docs/ci.md shows %d hooks of %d", len(config.Repos[0].Hooks), len(hooks))
	}
}

// The excerpts of files of install/ci in docs/ci.md must match the files.
func TestDocumentedFiles(t *testing.T) {
	for file, has := range map[string]string{"gitlab-ci.yaml": "merge_request_event", "prow-job.yaml": "presubmits"} {
		if diff := cmp.Diff(read(t, file), block(t, "yaml", has)); diff != "" {
			t.Errorf("docs/ci.md shows another %s (-file +page):\n%s", file, diff)
		}
	}
	commands := block(t, "sh", "podman build")
	if want := "-f install/ci/Containerfile"; !strings.Contains(commands, want) {
		t.Errorf("docs/ci.md does not build with %q", want)
	}
	stages := regexp.MustCompile(`(?m)^FROM \S+(?: AS (\w+))?$`).FindAllStringSubmatch(read(t, "Containerfile"), -1)
	for _, target := range regexp.MustCompile(`--target (\w+)`).FindAllStringSubmatch(commands, -1) {
		if !slices.ContainsFunc(stages, func(stage []string) bool { return stage[1] == target[1] }) {
			t.Errorf("the Containerfile has no stage %s, which docs/ci.md builds", target[1])
		}
	}
}

// The images that the pages name are in registries that do not exist, or have short names, for which each reader has a
// registry.
func TestNoRegistryIsNamed(t *testing.T) {
	for _, file := range []string{"Containerfile", "gitlab-ci.yaml", "prow-job.yaml", filepath.Join(root, "docs/ci.md"),
		filepath.Join(root, "action.yml")} {
		for _, found := range regexp.MustCompile(`\b(?:[\w-]+\.)+\w+/[\w./-]+[:@]\w`).FindAllString(read(t, file), -1) {
			if !strings.HasPrefix(found, "registry.example/") {
				t.Errorf("%s names a registry: %s", file, found)
			}
		}
	}
}

// A shellJob is a job that CI runs in a shell. It writes a report, and then passes or fails.
type shellJob struct {
	script string
	env    map[string]string
	report string // path from the folder of the component
}

func shellJobs(t *testing.T) map[string]shellJob {
	t.Helper()
	var gitlab map[string]gitlabJob
	check(t, yaml.UnmarshalStrict([]byte(read(t, "gitlab-ci.yaml")), &gitlab))
	lint, rehearsal := gitlab["runlevel-lint"], gitlab["runlevel-rehearse"]
	if rehearsal.Extends != "runlevel-lint" || !slices.Equal(rehearsal.Needs, []string{"runlevel-lint"}) {
		t.Errorf("the rehearsal of GitLab is not like lint, or not after it: %+v", rehearsal)
	}
	report := lint.Artifacts.Reports["junit"]
	jobs := map[string]shellJob{
		"GitLab lint":     {strings.Join(lint.Script, "\n"), lint.Variables, report},
		"GitLab rehearse": {strings.Join(rehearsal.Script, "\n"), maps.Clone(lint.Variables), report},
	}
	var prow prowConfig
	check(t, yaml.UnmarshalStrict([]byte(read(t, "prow-job.yaml")), &prow))
	for _, presubmit := range prow.Presubmits["shop/web"] {
		container := presubmit.Spec.Containers[0]
		if !presubmit.Decorate || !slices.Equal(container.Command, []string{"/bin/sh", "-ec"}) ||
			len(container.Args) != 1 {
			t.Fatalf("the job of Prow is not decorated, or runs no script: %+v", presubmit)
		}
		if !regexp.MustCompile(presubmit.RunIfChanged).MatchString("manifests/0000_50_web_01_settings.yaml") {
			t.Errorf("the job of Prow does not run for manifests: %s", presubmit.RunIfChanged)
		}
		env := map[string]string{"ARTIFACTS": "artifacts"}
		for _, variable := range container.Env {
			env[variable.Name] = variable.Value
		}
		jobs["Prow "+strings.TrimPrefix(presubmit.Name, "pull-shop-web-runlevel-")] = shellJob{container.Args[0], env,
			"artifacts/junit_runlevel.xml"}
	}
	return jobs
}

// runShell runs a script of CI with runlevel, or with another program in its place.
func runShell(t *testing.T, job shellJob, folder, program string) (log string, code int) {
	t.Helper()
	bin := t.TempDir()
	check(t, os.Symlink(program, filepath.Join(bin, "runlevel")))
	check(t, os.MkdirAll(filepath.Join(folder, "artifacts"), 0o755))
	env := maps.Clone(job.env)
	env["PATH"], env["HOME"] = bin+string(filepath.ListSeparator)+os.Getenv("PATH"), t.TempDir()
	command := exec.Command("sh", "-ec", job.script)
	command.Dir, command.Env = folder, flat(env)
	return finish(t, command)
}

func TestShellJobsReportAndFail(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	check(t, os.WriteFile(program, []byte(`#!/bin/sh
for last; do :; done
case "$*" in
*"--into `+release+` -o text -o junit="*)
  echo "<testsuites/>" >"${last#junit=}"
  echo "error: in your manifest"
  exit 1 ;;
*) exit 2 ;;
esac
`), 0o755))
	for name, job := range shellJobs(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			log, code := runShell(t, job, folder, program)
			if code != 1 || log != "error: in your manifest\n" {
				t.Errorf("ended with %d and printed %q, want 1 and the error", code, log)
			}
			if got := read(t, filepath.Join(folder, job.report)); got != "<testsuites/>\n" {
				t.Errorf("%s has %q", job.report, got)
			}
		})
	}
}

// testDocumented runs the commands of docs/ci.md with runlevel, and with a release on disk in place of a release in a
// registry.
func testDocumented(t *testing.T, r *runner, help string) {
	web := newRunner(t, webInRelease())
	web.kept, web.env["KUBEBUILDER_ASSETS"] = r.kept, controlPlane(t)
	folder := filepath.Join(web.workspace, "release")
	for _, s := range readWorkflow(t) {
		if strings.HasPrefix(s.Uses, ours) {
			inputs := s.inputs(t)
			inputs["into"] = strings.ReplaceAll(inputs["into"], release, folder)
			rehearses := inputs["rehearse"] == "true"
			got := web.run(t, inputs)
			if got.code != 1 || !rehearses && got.outputs["errors"] != "1" ||
				rehearses != strings.Contains(got.log, "rehearsed on Kubernetes ") {
				t.Errorf("the workflow with %v ended with %d and %s errors, want 1 and 1:\n%s", inputs, got.code,
					got.outputs["errors"], got.log)
			}
		}
	}
	for name, job := range shellJobs(t) {
		job.env["RELEASE"], job.env["KUBEBUILDER_ASSETS"] = folder, web.env["KUBEBUILDER_ASSETS"]
		log, code := runShell(t, job, web.workspace, r.program(t))
		if strings.HasSuffix(name, "rehearse") != strings.Contains(log, "rehearsed on Kubernetes ") {
			t.Errorf("%s: rehearsal does not match the name:\n%s", name, log)
		}
		if code != 1 || !strings.Contains(log, "web/banner") ||
			!strings.Contains(read(t, filepath.Join(web.workspace, job.report)), "web/banner") {
			t.Errorf("%s: ended with %d:\n%s", name, code, log)
		}
	}
	for _, text := range blocks(t, "sh") {
		for _, flag := range regexp.MustCompile(`\blint \./manifests.*`).FindAllString(text, -1) {
			for _, name := range regexp.MustCompile(`--[a-z-]+`).FindAllString(flag, -1) {
				if !strings.Contains(help, name+" ") {
					t.Errorf("lint has no flag %s, which docs/ci.md shows", name)
				}
			}
		}
	}
}
