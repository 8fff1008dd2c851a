package ci_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const (
	namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: web
`
	settings = `apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: web
`
	misspelt = settings + `  annotations:
    release.openshift.io/deleted: "true"
`
	// Only an API server detects that a port is taken.
	twoOnOnePort = `apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: web
spec:
  type: NodePort
  ports:
  - port: 80
    nodePort: 32080
---
apiVersion: v1
kind: Service
metadata:
  name: admin
  namespace: web
spec:
  type: NodePort
  ports:
  - port: 80
    nodePort: 32080
`
)

// A component with an error, and the previous release, which has one more file.
func webComponent() map[string]string {
	return map[string]string{
		"manifests/0000_10_web_00_namespace.yaml": namespace,
		"manifests/0000_50_web_01_settings.yaml":  misspelt,
		"before/0000_10_web_00_namespace.yaml":    namespace,
		"before/0000_50_web_01_settings.yaml":     settings,
		"before/0000_50_web_02_banner.yaml":       strings.ReplaceAll(settings, "settings", "banner"),
	}
}

// A component that has removed a file, and its release, in which another component has an error.
func webInRelease() map[string]string {
	return map[string]string{
		"manifests/01_settings.yaml":             settings,
		"release/0000_10_base_00_namespace.yaml": namespace,
		"release/0000_50_other_01_prices.yaml":   strings.ReplaceAll(misspelt, "name: settings", "name: prices"),
		"release/0000_50_web_01_settings.yaml":   settings,
		"release/0000_50_web_02_banner.yaml":     strings.ReplaceAll(settings, "settings", "banner"),
	}
}

// The first run of the action builds runlevel, and later runs find it in the cache.
func TestActionBuildsOnce(t *testing.T) {
	r := newRunner(t, webComponent())
	first := r.run(t, nil)
	if want := []string{"key", "actions/cache/restore", "build", "actions/cache/save", "lint"}; !slices.Equal(first.ran,
		want) {
		t.Fatalf("the first run has run %v, want %v\n%s", first.ran, want, first.log)
	}
	second := r.run(t, nil)
	if want := []string{"key", "actions/cache/restore", "lint"}; !slices.Equal(second.ran, want) {
		t.Fatalf("the second run has run %v, want %v\n%s", second.ran, want, second.log)
	}
	help := output(t, r.workspace, r.program(t), "lint", "--help")

	t.Run("misuse", func(t *testing.T) { testMisuse(t, r) })
	t.Run("into a release", func(t *testing.T) {
		for _, word := range []string{"--into ", "github", "junit", "--write-baseline"} {
			skipUnlessKnown(t, help, word)
		}
		testInto(t, r)
		testDocumented(t, r, help)
	})
	t.Run("annotations", func(t *testing.T) {
		skipUnlessKnown(t, help, "github")
		testAnnotations(t, r)
	})
	t.Run("update", func(t *testing.T) {
		skipUnlessKnown(t, help, "github")
		testUpdate(t, r)
	})
	t.Run("SARIF", func(t *testing.T) {
		skipUnlessKnown(t, help, "github")
		testSARIF(t, r)
	})
	t.Run("HTML", func(t *testing.T) {
		skipUnlessKnown(t, help, "html")
		testHTML(t, r)
	})
	t.Run("broken", func(t *testing.T) {
		skipUnlessKnown(t, help, "github")
		testBroken(t, r)
	})
	t.Run("rehearsal", func(t *testing.T) { testRehearsal(t, r) })
}

// program returns the program that the action has built.
func (r *runner) program(t *testing.T) string {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(r.kept, "*", "runlevel"))
	check(t, err)
	if len(kept) != 1 {
		t.Fatalf("kept are %v, want one program", kept)
	}
	return kept[0]
}

// skipUnlessKnown skips a test that needs a flag or format that lint does not have yet.
func skipUnlessKnown(t *testing.T, help, word string) {
	t.Helper()
	if !strings.Contains(help, word) {
		t.Skipf("lint does not know %q yet", strings.TrimSpace(word))
	}
}

func testMisuse(t *testing.T, r *runner) {
	for name, test := range map[string]struct {
		inputs map[string]string
		want   string
	}{
		"a plan of one release": {map[string]string{"plan": "true"},
			"::error title=runlevel::input plan: there is nothing to compare with: set into or previous, too\n"},
		"neither true nor false": {map[string]string{"plan": "yes"},
			"::error title=runlevel::input plan: write true or false\n"},
		"neither rehearsed nor not": {map[string]string{"rehearse": "yes"},
			"::error title=runlevel::input rehearse: write true or false\n"},
		"an open quote": {map[string]string{"args": "--off 'dropped"},
			"::error title=runlevel::input args: a quote is not closed\n"},
		"an unknown flag":     {map[string]string{"args": "--profle x"}, "unknown flag: --profle"},
		"an unknown severity": {map[string]string{"fail-on": "fatal"}, "--fail-on"},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.run(t, test.inputs)
			if got.code != 2 || !strings.Contains(got.log, test.want) ||
				!strings.Contains(got.log, "::error title=runlevel::") {
				t.Errorf("ended with %d, want 2 and %q:\n%s", got.code, test.want, got.log)
			}
		})
	}
}

func testAnnotations(t *testing.T, r *runner) {
	got := r.run(t, nil)
	if got.code != 1 {
		t.Errorf("ended with %d, want 1", got.code)
	}
	if want := regexp.MustCompile(
		`(?m)^::error [^:]*file=manifests/0000_50_web_01_settings\.yaml,[^:]*line=\d+`,
	); !want.MatchString(got.log) {
		t.Errorf("there is no error beside its line:\n%s", got.log)
	}
	if want := map[string]string{"errors": "1", "warnings": "0", "sarif": ""}; !cmp.Equal(got.outputs, want) {
		t.Errorf("outputs (-want +got):\n%s", cmp.Diff(want, got.outputs))
	}
	if want := "**runlevel lint**: errors: 1, warnings: 0\n\n"; got.summary != want {
		t.Errorf("the summary is %q, want %q", got.summary, want)
	}
	if got := r.run(t, map[string]string{"fail-on": "never"}); got.code != 0 || got.outputs["errors"] != "1" {
		t.Errorf("with fail-on never: ended with %d and %s errors, want 0 and 1", got.code, got.outputs["errors"])
	}
	if got := r.run(t, map[string]string{"config": "nowhere"}); got.code != 2 ||
		!strings.Contains(got.log, "open nowhere: ") {
		t.Errorf("with a missing configuration: exit code is %d\n%s", got.code, got.log)
	}
	if got := r.run(t, map[string]string{"manifests": "before"}); got.code != 0 || got.outputs["errors"] != "0" {
		t.Errorf("of manifests that are right: ended with %d and %s errors\n%s", got.code, got.outputs["errors"],
			got.log)
	}
}

func testUpdate(t *testing.T, r *runner) {
	got := r.run(t, map[string]string{"previous": "before", "plan": "true"})
	if got.code != 1 || !strings.Contains(got.log, "before/0000_50_web_02_banner.yaml:1") {
		t.Errorf("exit code is %d, without a finding about the removed object:\n%s", got.code, got.log)
	}
	for _, want := range []string{"**runlevel lint**: errors: 2,", "ConfigMap web/banner", "dropped"} {
		if !strings.Contains(got.summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, got.summary)
		}
	}
}

// Problems of another component are not reported.
func testInto(t *testing.T, r *runner) {
	changed := newRunner(t, webInRelease())
	changed.kept = r.kept
	got := changed.run(t, map[string]string{"component": "web", "into": "release", "plan": "true"})
	if got.code != 1 || got.outputs["errors"] != "1" {
		t.Errorf("ended with %d and %s errors, want 1 and 1:\n%s", got.code, got.outputs["errors"], got.log)
	}
	if !strings.Contains(got.summary, "ConfigMap web/banner") || strings.Contains(got.summary, "prices") {
		t.Errorf("the summary is not that of the change alone:\n%s", got.summary)
	}
}

func testSARIF(t *testing.T, r *runner) {
	file := "out of the way/it's \"runlevel\".sarif"
	got := r.run(t, map[string]string{"sarif-file": file})
	if got.code != 1 || got.outputs["sarif"] != file {
		t.Errorf("exit code is %d and sarif is %q, want 1 and %q", got.code, got.outputs["sarif"],
			file)
	}
	var report struct {
		Runs []struct {
			Results []struct{ RuleID string }
		}
	}
	check(t, json.Unmarshal([]byte(read(t, filepath.Join(r.workspace, file))), &report))
	if len(report.Runs) != 1 || len(report.Runs[0].Results) == 0 {
		t.Errorf("the file has no findings: %+v", report)
	}
}

// testHTML checks that the pages have all findings and the plan.
func testHTML(t *testing.T, r *runner) {
	got := r.run(t, map[string]string{"html-folder": "out of the way", "plan": "true", "previous": "before"})
	if got.code != 1 {
		t.Errorf("exit code is %d, want 1:\n%s", got.code, got.log)
	}
	for name, want := range map[string]string{"lint.html": "delete-misspelt", "plan.html": "ConfigMap web/banner"} {
		if page := read(t, filepath.Join(r.workspace, "out of the way", name)); !strings.Contains(page, want) {
			t.Errorf("%s lacks %q:\n%s", name, want, page)
		}
	}
	check(t, os.MkdirAll(filepath.Join(r.workspace, "full", "lint.html"), 0o755))
	got = r.run(t, map[string]string{"html-folder": "full"})
	if want := "--output html=full/lint.html: it is a folder"; got.code != 2 || !strings.Contains(got.log, want) {
		t.Errorf("exit code is %d, want 2 and %q for a page that can't be written:\n%s", got.code, want, got.log)
	}
}

// testBroken runs the action on a release without a possible plan: lint reports the reason, and fails the job.
func testBroken(t *testing.T, r *runner) {
	broken := newRunner(t, webComponent())
	broken.kept = r.kept
	write(t, filepath.Join(broken.workspace, "manifests/0000_50_web_01_settings.yaml"), "kind: [\n")
	got := broken.run(t, map[string]string{"previous": "before", "plan": "true"})
	if got.code != 1 || !strings.Contains(got.log, "::error ") || !strings.Contains(got.summary, "There is no plan.") {
		t.Errorf("ended with %d, want 1; the log is\n%s\nand the summary\n%s", got.code, got.log, got.summary)
	}
}

// testRehearsal runs the action on a mistake that lint finds only with a rehearsal.
func testRehearsal(t *testing.T, r *runner) {
	web := newRunner(t, map[string]string{
		"manifests/0000_10_web_00_namespace.yaml": namespace,
		"manifests/0000_50_web_01_services.yaml":  twoOnOnePort,
	})
	web.kept, web.env["KUBEBUILDER_ASSETS"] = r.kept, controlPlane(t)
	if got := web.run(t, nil); got.code != 0 {
		t.Errorf("without a rehearsal: ended with %d, want 0\n%s", got.code, got.log)
	}
	got := web.run(t, map[string]string{"rehearse": "true"})
	if want := "::error file=manifests/0000_50_web_01_services.yaml,line=21,col=5,title=rehearsal-refused::"; got.code != 1 || !strings.Contains(got.log, want) {
		t.Errorf("ended with %d, want 1 and %s\n%s", got.code, want, got.log)
	}
	if got.outputs["errors"] != "1" {
		t.Errorf("there are %s errors, want 1", got.outputs["errors"])
	}
	if want := []string{"key", "actions/cache/restore", "actions/cache/restore", "programs",
		"lint"}; !slices.Equal(got.ran, want) {
		t.Errorf("has run %v, want %v: nothing was built, so there is nothing to keep", got.ran, want)
	}
}

// controlPlane is a folder with the programs of a control plane, as KUBEBUILDER_ASSETS names one.
func controlPlane(t *testing.T) string {
	t.Helper()
	sandboxtest.NeedControlPlane(t)
	programs, err := binaries.Locate(t.Context(), binaries.Names(), os.Stderr)
	check(t, err)
	folder := t.TempDir()
	for name, file := range programs {
		check(t, os.Symlink(file, filepath.Join(folder, name)))
	}
	return folder
}

// The first job builds the programs of a rehearsal. Others find them, until the sources change.
func TestActionKeepsTheControlPlane(t *testing.T) {
	build := `if [ "$1" = sandbox ]; then mkdir -p "$HOME/.cache/runlevel/control-plane/built"; fi`
	if runtime.GOOS == "darwin" {
		build = strings.ReplaceAll(build, ".cache", "Library/Caches")
	}
	r, calls := newRecorder(t, build)
	rehearse := map[string]string{"rehearse": "true"}
	first := []string{"key", "actions/cache/restore", "actions/cache/restore", "programs", "actions/cache/save", "lint"}
	if got := r.run(t, rehearse); got.code != 0 || !slices.Equal(got.ran, first) {
		t.Errorf("the first run ended with %d and has run %v, want %v\n%s", got.code, got.ran, first, got.log)
	}
	if got, want := calls()[0], []string{"sandbox", "build"}; !slices.Equal(got, want) {
		t.Errorf("first calls are %v, want %v", got, want)
	}
	r.env["HOME"] = t.TempDir()
	later := slices.Delete(slices.Clone(first), 4, 5)
	if got := r.run(t, rehearse); got.code != 0 || !slices.Equal(got.ran, later) {
		t.Errorf("the second run ended with %d and has run %v, want %v\n%s", got.code, got.ran, later, got.log)
	}
	write(t, filepath.Join(r.action, "sandbox/controlplane/more.go"), "package main\n")
	r.env["HOME"] = t.TempDir()
	if got := r.run(t, rehearse); !slices.Equal(got.ran, first) {
		t.Errorf("with another control plane, has run %v, want %v", got.ran, first)
	}
}

// The action takes no input for a flag, a command or another line.
func TestActionPassesInputsOn(t *testing.T) {
	hostile := "a b'c\"d $(touch pwned) `touch pwned` ${HOME} ; touch pwned\n::set-output name=x::y\n*"
	for name, test := range map[string]struct {
		inputs            map[string]string
		build, lint, plan []string
	}{
		"nothing": {
			lint: []string{"lint", "--fail-on=error", "-o", "github", "--", "manifests"},
		},
		"all": {
			inputs: map[string]string{
				"manifests": "install", "component": "web", "into": "registry.example/shop:1.4", "previous": "before",
				"baseline": "known.json",
				"config":   "lint.cfg", "fail-on": "warning", "filters": "--profile ha",
				"args": "--off dropped\n--kubernetes-version 1.34", "plan": "true", "rehearse": "true",
			},
			build: []string{"sandbox", "build"},
			lint: []string{
				"lint", "--profile", "ha", "--off", "dropped", "--kubernetes-version", "1.34", "--component=web",
				"--into=registry.example/shop:1.4",
				"--previous=before", "--baseline=known.json", "--config=lint.cfg", "--fail-on=warning", "--rehearse",
				"-o", "github", "--", "install",
			},
			plan: []string{"plan", "-o", "markdown", "--profile", "ha", "--component=web",
				"--into=registry.example/shop:1.4", "--", "install"},
		},
		"values that would do harm": {
			inputs: map[string]string{
				"manifests": hostile, "component": hostile, "into": hostile, "previous": hostile, "baseline": hostile,
				"config": hostile, "fail-on": hostile, "plan": "true",
			},
			lint: []string{
				"lint", "--component=" + hostile, "--into=" + hostile, "--previous=" + hostile, "--baseline=" + hostile,
				"--config=" + hostile, "--fail-on=" + hostile, "-o", "github", "--", hostile,
			},
			plan: []string{"plan", "-o", "markdown", "--component=" + hostile, "--into=" + hostile, "--", hostile},
		},
		"values that look like flags": {
			inputs: map[string]string{"manifests": "--config=x", "previous": "--help", "plan": "true"},
			lint:   []string{"lint", "--previous=--help", "--fail-on=error", "-o", "github", "--", "--config=x"},
			plan:   []string{"plan", "-o", "markdown", "--", "--help", "--config=x"},
		},
		"words of flags": {
			inputs: map[string]string{"args": `--unmanaged 'ConfigMap/web/a b' "$(touch pwned)" * ~ \$HOME ;` +
				"\n\t`touch pwned`\n"},
			lint: []string{"lint", "--unmanaged", "ConfigMap/web/a b", "$(touch pwned)", "*", "~", "$HOME", ";",
				"`touch", "pwned`", "--fail-on=error", "-o", "github", "--", "manifests"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, calls := newRecorder(t, `echo "::warning file=a::b"`)
			got := r.run(t, test.inputs)
			want := slices.DeleteFunc([][]string{test.build, test.lint, test.plan}, func(call []string) bool {
				return call == nil
			})
			if diff := cmp.Diff(want, calls()); diff != "" {
				t.Errorf("runlevel was called (-want +got):\n%s\n%s", diff, got.log)
			}
			if found, _ := filepath.Glob(filepath.Join(r.workspace, "*pwned*")); found != nil {
				t.Error("an input was run as a command")
			}
			if want := map[string]string{"errors": "0", "warnings": "1", "sarif": ""}; got.code != 0 ||
				!cmp.Equal(want, got.outputs) {
				t.Errorf("ended with %d; outputs (-want +got):\n%s\n%s", got.code, cmp.Diff(want, got.outputs), got.log)
			}
		})
	}
}

func TestActionTakesNoOutputsFromAFileName(t *testing.T) {
	r, _ := newRecorder(t, "")
	name := "a\nerrors=7\nsarif<<x\nb.sarif"
	got := r.run(t, map[string]string{"sarif-file": name})
	if want := map[string]string{"errors": "0", "warnings": "0", "sarif": name}; !cmp.Equal(want, got.outputs) {
		t.Errorf("outputs (-want +got):\n%s\n%s", cmp.Diff(want, got.outputs), got.log)
	}
}

// Output of runlevel may quote a file of the pull request.
func TestActionTakesNoCommandsFromOutput(t *testing.T) {
	r, _ := newRecorder(t, `echo "::set-output name=errors::0" >&2`)
	got := r.run(t, nil)
	fenced := regexp.MustCompile(
		`(?m)^::stop-commands::(\w{10,})\n::set-output name=errors::0\n::(\w{10,})::\n`,
	).FindStringSubmatch(got.log)
	if fenced == nil || fenced[1] != fenced[2] {
		t.Errorf("the runner would take commands from this:\n%s", got.log)
	}
	again := r.run(t, nil)
	if fenced != nil && strings.Contains(again.log, fenced[1]) {
		t.Errorf("what ends the fence can be known before: %s", fenced[1])
	}
}

// newRecorder returns a runner whose cache has a script in runlevel's place. The script records its arguments, and then
// runs the given commands.
func newRecorder(t *testing.T, does string) (r *runner, calls func() [][]string) {
	t.Helper()
	r = newRunner(t, map[string]string{"a file that a star would find": ""})
	notes := filepath.Join(t.TempDir(), "calls")
	_, _, outputs := r.bash(t, readAction(t).Runs.Steps[0], map[string]string{"runner.temp": t.TempDir()}, "")
	folder := filepath.Join(r.kept, outputs["key"])
	check(t, os.MkdirAll(folder, 0o755))
	script := "#!/bin/sh\nprintf '%s\\0' \"$@\" >>" + notes + "\nprintf '\\1' >>" + notes + "\n" + does + "\n"
	check(t, os.WriteFile(filepath.Join(folder, "runlevel"), []byte(script), 0o755))
	return r, func() [][]string {
		var calls [][]string
		for call := range strings.SplitSeq(strings.TrimSuffix(read(t, notes), "\x01"), "\x01") {
			calls = append(calls, strings.Split(strings.TrimSuffix(call, "\x00"), "\x00"))
		}
		return calls
	}
}

func TestActionReportsAMissingGo(t *testing.T) {
	r := newRunner(t, nil)
	r.env["PATH"] = t.TempDir()
	for _, name := range []string{"bash", "cat", "dirname", "find", "git", "grep", "mkdir", "mktemp", "sort", "uname",
		"xargs"} {
		place := strings.TrimSpace(output(t, root, "sh", "-c", "command -v "+name))
		check(t, os.Symlink(place, filepath.Join(r.env["PATH"], name)))
	}
	got := r.run(t, nil)
	if got.code != 2 || !strings.Contains(got.log,
		"::error title=runlevel::runlevel is built with Go, and there is none: put a step with actions/setup-go "+
			"before this one\n") {
		t.Errorf("ended with %d:\n%s", got.code, got.log)
	}
}

// A cached program must not be used for other sources.
func TestActionCachesBuildsBySource(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	r := newRunner(t, nil)
	key := func() string {
		_, _, outputs := r.bash(t, readAction(t).Runs.Steps[0], map[string]string{"runner.temp": t.TempDir()}, "")
		return outputs["key"]
	}
	before := key()
	if before != key() {
		t.Errorf("the same sources have two keys, %s and %s", before, key())
	}
	listed := output(t, r.action, "go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}",
		"./cmd/runlevel")
	for folder := range strings.FieldsSeq(listed) {
		file := filepath.Join(folder, "more.go")
		write(t, file, "")
		empty := key()
		write(t, file, "package more\n")
		if empty == before || key() == empty {
			t.Errorf("to add %s, or to change it, gives the same key", file)
		}
		check(t, os.Remove(file))
	}
	if key() != before {
		t.Error("the sources are as they were, and the key is not")
	}
}

// The tag of an action can be moved to another commit.
func TestActionsArePinned(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^.*\buses:.*$`)
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	lines := uses.FindAllString(read(t, filepath.Join(root, "action.yml")), -1)
	if len(lines) == 0 {
		t.Fatal("action.yml uses nothing: is the test wrong?")
	}
	for _, line := range lines {
		if !pinned.MatchString(line) {
			t.Errorf("write the commit, and its version behind it: %s", strings.TrimSpace(line))
		}
	}
}

// An input in the text of a command could itself be a command, and an input that no step reads has no effect.
func TestInputsAreVariables(t *testing.T) {
	declared := readAction(t)
	script := read(t, "action.sh")
	var env string
	for _, s := range declared.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("a step's command has an expression in its text: %s", s.Run)
		}
		for name, value := range s.Env {
			env += value + "\n"
			if !strings.Contains(script, "${"+name) {
				t.Errorf("action.sh does not read %s", name)
			}
		}
	}
	for name, input := range declared.Inputs {
		if input.Description == "" || !strings.Contains(env, "${{ inputs."+name+" }}\n") {
			t.Errorf("input %s has no description, or no step reads it", name)
		}
	}
}
