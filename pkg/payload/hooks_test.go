package payload_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

// deploymentWith is a Deployment whose hooks are written as they are given, behind the key.
func deploymentWith(hooks string) string {
	return `apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
# the shop
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations:
    runlevel.dev/lifecycle-hooks: ` + hooks + `
    shop.example/äöü: more
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/shop/web}]}
`
}

// TestPlacesOfHooks are the lines and columns of the file, however the annotation is written.
func TestPlacesOfHooks(t *testing.T) {
	for name, test := range map[string]struct{ hooks, want string }{
		"a block": {`|
      pre:
        execNewPod:
          containerName: wep
          command: [rake]
          volumes: [data]`, "16:11 HookContainer, 18:21 HookVolume"},
		"a block with a comment and blank lines": {`|-  # before

      # migrates

      pre:
        execNewPod: {containerName: "wüb", command: rake}`, "18:44 InvalidHooks"},
		"a block with its own indentation": {`|2
        pre:
          execNewPod: {containerName: wep, command: [rake]}`, "15:24 HookContainer"},
		"a block with invalid YAML": {`|
      pre:
        execNewPod: {containerName: web, command: [rake]}
       post: {}`, "15:7 InvalidHooks"},
		"one line": {`{pre: {execNewPod: {containerName: wep, command: [rake]}}}`, "13:5 Malformed"},
		"one line in quotes": {`"{pre: {execNewPod: {containerName: wep, command: []}}}"`,
			"13:5 HookContainer, 13:5 InvalidHooks"},
		"one line in other quotes": {`'{pre: {execNewPod: {containerName: wep, command: []}}}'`,
			"13:5 HookContainer, 13:5 InvalidHooks"},
		"escapes": {`"pre: {execNewPod: {containerName: \"wep\", command: [rake]}}"`,
			"13:5 HookContainer"},
		"lines in quotes": {`"pre:\n  execNewPod:
          {containerName: wep, command: [rake]}"`, "13:5 HookContainer"},
		"a folded text": {`>
      {pre: {execNewPod:
      {containerName: wep, command: [rake]}}}`, "13:5 HookContainer"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, lineBreak := range []string{"\n", "\r\n"} {
				text := strings.ReplaceAll(deploymentWith(test.hooks), "\n", lineBreak)
				if diff := cmp.Diff(test.want,
					strings.Join(placesOf(t, "0000_50_web_01_all.yaml", text), ", ")); diff != "" {
					t.Errorf("with %q (-want +got):\n%s", lineBreak, diff)
				}
			}
		})
	}
}

func placesOf(t *testing.T, file, text string) []string {
	t.Helper()
	_, problems, err := payload.Parse(t.Context(), fstest.MapFS{file: {Data: []byte(text)}}, payload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for _, p := range problems {
		places = append(places, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Cause))
	}
	return places
}

// TestPlacesOfHooksInJSON are the line of the annotation.
func TestPlacesOfHooksInJSON(t *testing.T) {
	text := `{
  "apiVersion": "apps/v1", "kind": "Deployment",
  "metadata": {"name": "web", "namespace": "shop", "annotations": {
    "runlevel.dev/lifecycle-hooks": "mid:\n  execNewPod: {containerName: web, command: [rake]}\n"
  }},
  "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "registry.example/shop/web"}]}
  }}
}`
	if diff := cmp.Diff([]string{"4:5 HookStrategy"}, placesOf(t, "0000_50_web_01_all.json", text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHooksRefuseARelease unless their problems are only warnings.
func TestHooksRefuseARelease(t *testing.T) {
	load := func(hooks string) ([]payload.Problem, error) {
		files := fstest.MapFS{"0000_50_web_01_all.yaml": {Data: []byte(deploymentWith(hooks))}}
		_, warnings, err := payload.Load(t.Context(), files, payload.Options{})
		return warnings, err
	}
	const command = `|
      pre:
        execNewPod:
          containerName: web
          command: `
	_, err := load(command + "rake db:migrate")
	want := `0000_50_web_01_all.yaml:17: document 2: Deployment shop/web: runlevel.dev/lifecycle-hooks: pre.execNewPod.command: Invalid value: it is of type string, and must be a list with an item for each word, such as [rake, "db:migrate"], or [sh, -c, "…"] for a line of a shell`
	if err == nil || err.Error() != want {
		t.Errorf("the release is refused with\n%v\nand not with\n%s", err, want)
	}
	warnings, err := load(command + `["rake"]
          volumes: [data]`)
	if err != nil || len(warnings) != 1 || warnings[0].Cause != payload.HookVolume || warnings[0].Line != 18 {
		t.Errorf("a hook with an unknown volume gives %v and %v", warnings, err)
	}
}

// TestTombstonesHaveNoHooks: of a tombstone, only the name matters.
func TestTombstonesHaveNoHooks(t *testing.T) {
	tombstone := strings.Replace(deploymentWith("none"), "  annotations:\n",
		"  annotations:\n    release.openshift.io/delete: \"true\"\n", 1)
	if places := placesOf(t, "0000_50_web_01_all.yaml", tombstone); places != nil {
		t.Errorf("there are problems at %s", places)
	}
}
