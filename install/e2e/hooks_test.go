package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hooked is a Deployment in a folder of manifests: STRATEGY, HOOKS, IMAGE and VERSION are replaced.
const hooked = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: NAME
  namespace: NAMESPACE
  annotations:
    runlevel.dev/lifecycle-hooks: |
HOOKS
spec:
  replicas: 1
  progressDeadlineSeconds: 60
  strategy: {type: STRATEGY}
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}, annotations: {version: "VERSION"}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: app, image: IMAGE, command: [/program, serve]}
`

// A hookCase is a hook of an update, on a real kubelet.
type hookCase struct {
	stage    string // pre, mid or post
	policy   string
	fields   string // more lines of the hook
	command  string // arguments of /program, in YAML
	image    string // image of the new version; empty for the image of the tests
	code     int    // exit code of the apply
	output   []string
	podsLeft int
}

// TestDeploymentHooks updates Deployments whose hooks end in all ways in which containers end. Each Deployment is a
// separate release.
func TestDeploymentHooks(t *testing.T) {
	newStage(t)
	for name, test := range map[string]hookCase{
		"pre-succeeds": {
			stage:   "pre",
			policy:  "Abort",
			command: `[/program, exit, "0"]`,
			output:  []string{"ran         pre hook"},
		},
		"mid-succeeds": {
			stage:   "mid",
			policy:  "Abort",
			command: `[/program, exit, "0"]`,
			output:  []string{"ran         mid hook"},
		},
		"post-succeeds": {
			stage:   "post",
			policy:  "Retry",
			command: `[/program, exit, "0"]`,
			output:  []string{"ran         post hook"},
		},
		"keep": {
			stage:    "pre",
			policy:   "Abort",
			fields:   "keep: Always",
			command:  `[/program, exit, "0"]`,
			output:   []string{"ran         pre hook"},
			podsLeft: 1,
		},
		"abort": {
			stage:    "pre",
			policy:   "Abort",
			command:  `[/program, exit, "3", "no", table]`,
			code:     1,
			output:   []string{"exit code 3", "exit 3 no table"},
			podsLeft: 1,
		},
		"ignore": {
			stage:    "pre",
			policy:   "Ignore",
			command:  `[/program, exit, "3"]`,
			output:   []string{"exit code 3", "configured  Deployment"},
			podsLeft: 1,
		},
		"retry": {
			stage:    "pre",
			policy:   "Retry",
			fields:   "backoffLimit: 1",
			command:  `[/program, exit, "3"]`,
			code:     1,
			output:   []string{"exit code 3"},
			podsLeft: 2,
		},
		"mid-abort": {
			stage:    "mid",
			policy:   "Abort",
			command:  `[/program, exit, "3"]`,
			code:     1,
			output:   []string{"exit code 3"},
			podsLeft: 1,
		},
		"out-of-memory": {
			stage:    "pre",
			policy:   "Abort",
			fields:   "resources: {limits: {memory: 64Mi}}",
			command:  `[/program, eat]`,
			code:     1,
			output:   []string{"OOMKilled"},
			podsLeft: 1,
		},
		"timeout": {
			stage:    "pre",
			policy:   "Abort",
			fields:   "timeoutSeconds: 3",
			command:  `[/program, serve]`,
			code:     1,
			output:   []string{"has not ended"},
			podsLeft: 1,
		},
		"start-error": {
			stage:    "pre",
			policy:   "Abort",
			fields:   "timeoutSeconds: 10",
			command:  `[/missing]`,
			code:     1,
			output:   []string{"/missing"},
			podsLeft: 1,
		},
		"image-not-there": {
			stage:    "pre",
			policy:   "Abort",
			fields:   "timeoutSeconds: 5",
			command:  `[/program, exit, "0"]`,
			image:    "registry.example/missing:1",
			code:     1,
			output:   []string{"registry.example/missing:1"},
			podsLeft: 1,
		},
	} {
		t.Run(name, func(t *testing.T) { newStage(t).hook(name, test) })
	}
}

// hook installs a Deployment without its hook, and updates it.
func (s *stage) hook(name string, test hookCase) {
	s.t.Helper()
	namespace := shared.Namespace(s.t)
	s.run("apply", s.hookRelease(name, namespace, "1.0.0", "", hookCase{stage: test.stage}), "--name", name,
		"--release-version", "1.0.0")
	hooks := fmt.Sprintf("%s:\n  failurePolicy: %s\n  execNewPod: {containerName: app, command: %s}\n", test.stage,
		test.policy, test.command)
	if test.fields != "" {
		hooks += "  " + test.fields + "\n"
	}
	out, code := s.try("apply", s.hookRelease(name, namespace, "1.1.0", hooks, test), "--name", name,
		"--release-version", "1.1.0")
	if code != test.code {
		s.t.Errorf("exit code %d, want %d", code, test.code)
	}
	s.expect("the output", out, test.output...)
	s.eventually("pods of the hook that are left", func(ctx context.Context) bool {
		pods, err := s.core.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: "runlevel.dev/hook-of=" + name})
		return err == nil && len(pods.Items) == test.podsLeft
	})
	deployment, err := s.core.AppsV1().Deployments(namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	want := "1.1.0"
	if test.code != 0 {
		want = "1.0.0"
	}
	if got := deployment.Spec.Template.Annotations["version"]; got != want || *deployment.Spec.Replicas != 1 {
		s.t.Errorf("the Deployment is of version %s with %d replicas, want %s with 1", got, *deployment.Spec.Replicas,
			want)
	}
	if test.code != 0 {
		out, _ := s.try("why", "deployment/"+name, "-n", namespace)
		s.expect("runlevel why", out, append(test.output[:1:1], "hook has failed and blocked the rollout")...)
	}
}

// hookRelease writes a release, and returns its folder.
func (s *stage) hookRelease(name, namespace, version, hooks string, test hookCase) string {
	s.t.Helper()
	strategy, image := "RollingUpdate", appImage
	if test.stage == "mid" {
		strategy = "Recreate"
	}
	if test.image != "" {
		image = test.image
	}
	manifest := hooked
	if hooks == "" {
		manifest = strings.Replace(manifest, "  annotations:\n    runlevel.dev/lifecycle-hooks: |\nHOOKS\n", "", 1)
	}
	indented := "      " + strings.ReplaceAll(strings.TrimSpace(hooks), "\n", "\n      ")
	text := strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "HOOKS", indented, "STRATEGY", strategy, "IMAGE",
		image, "VERSION", version).Replace(manifest)
	folder := s.t.TempDir()
	s.must(os.WriteFile(filepath.Join(folder, "0000_10_app_01_deployment.yaml"), []byte(text), 0o600))
	return folder
}
