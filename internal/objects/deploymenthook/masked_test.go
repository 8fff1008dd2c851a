package deploymenthook_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// TestMaskedHooks covers the parts of hooks that are masked, and those that are not.
func TestMaskedHooks(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing to hide": {"pre:   # before\n  execNewPod: {containerName: web, command: [rake]}\n", ""},
		"values": {`
post: # hunter2
  execNewPod:
    containerName: web
    command: ["rake", "smoke"]
    env:
    # value: hunter2
    - name: PASSWORD # hunter2
      value: hunter2
    - {name: EMPTY, value: ""}
    - name: REF
      valueFrom: {secretKeyRef: {name: database, key: password}}
pre:
  timeoutSeconds: 60
`, `
post:
  execNewPod:
    command:
    - rake
    - smoke
    containerName: web
    env:
    - name: PASSWORD
      value: '***'
    - name: EMPTY
    - name: REF
      valueFrom:
        secretKeyRef:
          key: password
          name: database
pre:
  timeoutSeconds: 60
`},
		"fields that no hook has": {`
pre:
  execNewPod:
    enw: [{name: A, value: hunter2}]
    env: {PASSWORD: hunter2}
  environment:
    PASSWORD: |
      hunter2
`, "***"},
		"texts and lists of values": {`
pre:
  execNewPod:
    env: [hunter2, PASSWORD=hunter2]
post: hunter2
`, "***"},
		"no YAML":      {"pre: {env: hunter2", "***"},
		"no mapping":   {"hunter2", "***"},
		"an alias":     {"a: &a hunter2\npre: {execNewPod: {command: [*a]}}", "***"},
		"no text":      {"", ""},
		"only comment": {"# later", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, want := strings.TrimPrefix(test.text, "\n"), strings.TrimPrefix(test.want, "\n")
			if want == "" {
				want = text
			}
			if diff := cmp.Diff(want, deploymenthook.Masked(text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMaskedChangeOfHooks marks values that differ, regardless of the position of the variable in the list.
func TestMaskedChangeOfHooks(t *testing.T) {
	const before = "pre:\n  execNewPod:\n    env:\n    - name: A\n      value: hunter2\n    - name: B\n      value: " +
		"hunter2\n"
	const after = "pre:\n  execNewPod:\n    env:\n    - name: NEW\n      value: hunter2\n    - name: B\n      value: " +
		"other\n    - name: A\n      value: hunter2\n"
	old, changed := deploymenthook.MaskedChange(before, after)
	if want := strings.ReplaceAll(before, "hunter2", "'***'"); old != want {
		t.Errorf("got old value\n%s", old)
	}
	want := strings.ReplaceAll(strings.ReplaceAll(after, "hunter2", "'***'"), "other", "'*** (changed)'")
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if old, changed := deploymenthook.MaskedChange("{hunter2", "{hunter3"); old != "***" || changed != "*** (changed)" {
		t.Errorf("two texts that are no YAML are %s and %s", old, changed)
	}
}
