package house

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A workflow has the fields of a GitHub workflow, or of action.yml, that the tests look at.
type workflow struct {
	On          map[string]any         `json:"on"`
	Permissions map[string]string      `json:"permissions"`
	Concurrency map[string]any         `json:"concurrency"`
	Jobs        map[string]workflowJob `json:"jobs"`
	Runs        workflowJob            `json:"runs"` // of action.yml
}

type workflowJob struct {
	Uses        string            `json:"uses"`
	Permissions map[string]string `json:"permissions"`
	Timeout     int               `json:"timeout-minutes"`
	Steps       []struct {
		Uses string         `json:"uses"`
		With map[string]any `json:"with"`
		Run  string         `json:"run"`
	} `json:"steps"`
}

// pinned is an action of an exact commit, with the version that a reader and Dependabot know it by.
var pinned = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestWorkflowsNeedLittleTrust looks for what OpenSSF's scorecard and reviewers of workflows look for: actions that
// could change, tokens that may do more than a job needs, and texts from outside in commands.
func TestWorkflowsNeedLittleTrust(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatal("too few workflows: ", files, err)
	}
	for _, file := range append(files, filepath.Join(root, "action.yml")) {
		name := strings.TrimPrefix(file, root)
		text := readFile(t, name)
		for _, line := range regexp.MustCompile(`(?m)^[ -]*uses: *(.*)$`).FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(line[1]) && !strings.HasPrefix(line[1], "./") {
				t.Errorf("%s: uses: %s: write NAME@COMMIT # vMAJOR.MINOR.PATCH", name, line[1])
			}
		}
		var w workflow
		// YAML 1.1 reads the key "on" as true.
		if err := yaml.Unmarshal([]byte(strings.Replace(text, "\non:", "\n\"on\":", 1)), &w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkSteps(t, name, w.Runs)
		if w.Runs.Steps != nil {
			continue
		}
		if !strings.Contains(text, "\npermissions: {}\n") || w.Concurrency == nil {
			t.Errorf("%s: write permissions: {} and concurrency at the top", name)
		}
		if _, isRisky := w.On["pull_request_target"]; isRisky || len(w.On) == 0 {
			t.Errorf("%s: runs on %v: a pull request must not run with the secrets of the repository", name, w.On)
		}
		for id, job := range w.Jobs {
			if len(job.Permissions) == 0 || job.Uses == "" && job.Timeout == 0 {
				t.Errorf("%s: job %s: write permissions and timeout-minutes", name, id)
			}
			checkSteps(t, name+": job "+id, job)
		}
	}
}

func checkSteps(t *testing.T, name string, job workflowJob) {
	t.Helper()
	for _, step := range job.Steps {
		if strings.Contains(step.Run, "${{") {
			t.Errorf("%s: pass values to commands by env, not by an expression in: %s", name, step.Run)
		}
		if isKept := step.With["persist-credentials"]; strings.HasPrefix(step.Uses, "actions/checkout@") &&
			isKept != false {
			t.Errorf("%s: write persist-credentials: false", name)
		}
	}
}
