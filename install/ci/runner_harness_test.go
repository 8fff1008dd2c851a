package ci_test

import (
	"bytes"
	"errors"
	"io/fs"
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

const root = "../.."

// An action contains the used fields of action.yml. Other fields are mistakes.
type action struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Author      string            `json:"author"`
	Branding    map[string]string `json:"branding"`
	Inputs      map[string]struct {
		Description string  `json:"description"`
		Default     *string `json:"default"`
	} `json:"inputs"`
	Outputs map[string]struct {
		Description string `json:"description"`
		Value       string `json:"value"`
	} `json:"outputs"`
	Runs struct {
		Using string `json:"using"`
		Steps []step `json:"steps"`
	} `json:"runs"`
}

// A step is a step of an action, or of a job of a workflow.
type step struct {
	Name  string            `json:"name"`
	ID    string            `json:"id"`
	If    string            `json:"if"`
	Uses  string            `json:"uses"`
	With  map[string]string `json:"with"`
	Shell string            `json:"shell"`
	Run   string            `json:"run"`
	Env   map[string]string `json:"env"`
}

// A runner runs the steps of action.yml like the runner of a code host, in an environment without other variables.
type runner struct {
	action    string            // the folder of the action's files
	workspace string            // the folder of the component's
	env       map[string]string // beside the runner's own
	kept      string            // the cache: a folder with one for each key
}

// A run is the result of an action.
type run struct {
	code    int
	log     string
	outputs map[string]string
	summary string
	ran     []string // the steps that have run, by their commands or actions
}

func newRunner(t *testing.T, files map[string]string) *runner {
	t.Helper()
	sandboxtest.SkipInShort(t, "builds runlevel as a CI job does")
	r := &runner{
		action: sources(t), workspace: repository(t, files),
		env: goEnvironment(t), kept: t.TempDir(),
	}
	r.env["PATH"] = os.Getenv("PATH")
	r.env["HOME"] = t.TempDir()
	return r
}

func (r *runner) run(t *testing.T, inputs map[string]string) run {
	t.Helper()
	declared := readAction(t)
	values := map[string]string{"runner.temp": t.TempDir()} // which is emptied after each job
	for name, input := range declared.Inputs {
		values["inputs."+name] = ""
		if input.Default != nil {
			values["inputs."+name] = *input.Default
		}
	}
	for name, value := range inputs {
		if _, ok := declared.Inputs[name]; !ok {
			t.Fatalf("action.yml has no input %s", name)
		}
		values["inputs."+name] = value
	}
	summary := filepath.Join(t.TempDir(), "summary")
	result := run{outputs: map[string]string{}}
	for _, s := range declared.Runs.Steps {
		if !holds(t, s.If, values) {
			continue
		}
		var outputs map[string]string
		if s.Uses != "" {
			result.ran = append(result.ran, strings.Split(s.Uses, "@")[0])
			outputs = r.use(t, s, values)
		} else {
			result.ran = append(result.ran, s.Run[strings.LastIndex(s.Run, " ")+1:])
			var log string
			result.code, log, outputs = r.bash(t, s, values, summary)
			result.log += log
		}
		for name, value := range outputs {
			values["steps."+s.ID+".outputs."+name] = value
		}
		if result.code != 0 {
			break
		}
	}
	for name, output := range declared.Outputs {
		result.outputs[name] = evaluate(t, output.Value, values)
	}
	result.summary = read(t, summary)
	return result
}

// bash runs a step as the runner of GitHub runs "shell: bash".
func (r *runner) bash(t *testing.T, s step, values map[string]string, summary string) (int, string, map[string]string) {
	t.Helper()
	if s.Shell != "bash" {
		t.Fatalf("a step of a composite action needs its shell: %+v", s)
	}
	folder := t.TempDir()
	script, output := filepath.Join(folder, "script.sh"), filepath.Join(folder, "output")
	write(t, script, evaluate(t, s.Run, values))
	env := maps.Clone(r.env)
	maps.Copy(env, map[string]string{
		"GITHUB_ACTION_PATH": r.action, "GITHUB_WORKSPACE": r.workspace, "RUNNER_TEMP": values["runner.temp"],
		"GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": summary,
	})
	for name, value := range s.Env {
		env[name] = evaluate(t, value, values)
	}
	command := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	command.Dir = r.workspace
	command.Env = flat(env)
	log, code := finish(t, command)
	return code, log, parseOutputs(t, read(t, output))
}

// use runs a step of actions/cache.
func (r *runner) use(t *testing.T, s step, values map[string]string) map[string]string {
	t.Helper()
	folder, key := evaluate(t, s.With["path"], values), evaluate(t, s.With["key"], values)
	kept := filepath.Join(r.kept, key)
	switch strings.Split(s.Uses, "@")[0] {
	case "actions/cache/restore":
		if _, err := os.Stat(kept); err == nil {
			check(t, os.MkdirAll(filepath.Dir(folder), 0o755))
			check(t, os.Symlink(kept, folder))
			return map[string]string{"cache-hit": "true"}
		}
	case "actions/cache/save":
		check(t, os.CopyFS(kept, os.DirFS(folder)))
	default:
		t.Fatalf("what does %s do?", s.Uses)
	}
	return nil
}

var expression = regexp.MustCompile(`\$\{\{ *([a-zA-Z0-9_.-]+) *\}\}`)

// evaluate replaces expressions by their values.
func evaluate(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	return expression.ReplaceAllStringFunc(text, func(found string) string {
		name := expression.FindStringSubmatch(found)[1]
		if _, ok := values[name]; !ok && strings.HasPrefix(name, "inputs.") {
			t.Errorf("action.yml has no input for %s", found)
		}
		return values[name]
	})
}

// holds reports whether a step runs. All conditions compare a value.
func holds(t *testing.T, condition string, values map[string]string) bool {
	t.Helper()
	words := strings.Fields(condition)
	switch {
	case condition == "":
		return true
	case len(words) != 3 || words[1] != "==" && words[1] != "!=":
		t.Fatalf("what does %q mean?", condition)
	}
	return (values[words[0]] == strings.Trim(words[2], "'")) == (words[1] == "==")
}

// parseOutputs reads the file of a step's outputs.
func parseOutputs(t *testing.T, text string) map[string]string {
	t.Helper()
	outputs, marks := map[string]string{}, map[string]bool{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines)-1; i++ {
		name, mark, ok := strings.Cut(lines[i], "<<")
		if !ok {
			t.Fatalf("an output in one line could be two: %q", lines[i])
		}
		end := slices.Index(lines[i+1:], mark)
		if end < 0 {
			t.Fatalf("the output %s does not end", name)
		}
		if marks[mark] {
			t.Errorf("a value could end the output %s: its mark %q is the same as another's", name, mark)
		}
		marks[mark] = true
		outputs[name] = strings.Join(lines[i+1:i+1+end], "\n")
		i += 1 + end
	}
	return outputs
}

func readAction(t *testing.T) action {
	t.Helper()
	var a action
	check(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, "action.yml"))), &a))
	return a
}

// sources returns a folder with the files of the commit HEAD, without a repository, as a
// runner gets an action. Uncommitted changes are not tested.
func sources(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	archive := filepath.Join(t.TempDir(), "sources.tar")
	output(t, root, "git", "archive", "--output", archive, "HEAD")
	output(t, folder, "tar", "-xf", archive)
	return folder
}

// repository creates a repository with files in one commit.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		write(t, filepath.Join(folder, name), text)
	}
	output(t, folder, "git", "init", "--quiet")
	commit(t, folder)
	return folder
}

func commit(t *testing.T, folder string) {
	t.Helper()
	output(t, folder, "git", "add", "--all")
	output(t, folder, "git", "-c", "user.name=Web", "-c", "user.email=web@shop.example", "commit", "--quiet",
		"--allow-empty", "--message", "Web")
}

// goEnvironment returns the environment that the go command needs to find modules. A new
// runner has no modules and no build cache. A full build takes minutes, so the tests share
// the caches of the go command, unless RUNLEVEL_TEST_COLD is set.
func goEnvironment(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	names := []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOFLAGS", "GOCACHE", "GOMODCACHE"}
	values := strings.Split(output(t, root, "go", append([]string{"env"}, names...)...), "\n")
	for i, name := range names {
		env[name] = values[i]
	}
	if os.Getenv("RUNLEVEL_TEST_COLD") != "" {
		env["GOFLAGS"] += " -modcacherw" // otherwise the folder could not be removed
		env["GOCACHE"], env["GOMODCACHE"] = t.TempDir(), t.TempDir()
	}
	return env
}

func flat(env map[string]string) []string {
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// finish runs a command, and returns its output and its exit code.
func finish(t *testing.T, command *exec.Cmd) (string, int) {
	t.Helper()
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	err := command.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return printed.String(), command.ProcessState.ExitCode()
}

func output(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = folder
	printed, err := command.Output()
	if err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			t.Fatalf("%s: %v\n%s", command, err, ended.Stderr)
		}
		t.Fatal(err)
	}
	return string(printed)
}

// read returns the text of a file, or "" if the file does not exist.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	check(t, os.WriteFile(file, []byte(text), 0o644))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
