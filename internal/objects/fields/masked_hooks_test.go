package fields_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

// hooked is a Deployment with hooks, and with kubectl's copy of itself.
const hooked = `
kind: Deployment
metadata:
  name: web
  annotations:
    shop.example/note: hunter2 is the name of our rabbit
    kubectl.kubernetes.io/last-applied-configuration: '{"metadata":{"annotations":{"runlevel.dev/lifecycle-hooks":"hunter2"}}}'
    runlevel.dev/lifecycle-hooks: |
      pre: {execNewPod: {env: [{name: PASSWORD, value: hunter2}]}}
`

// TestHooksAreMasked covers the values of environment variables of hooks, and kubectl's copy of the hooks.
func TestHooksAreMasked(t *testing.T) {
	const want = `{"kind":"Deployment","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"***",` +
		`"runlevel.dev/lifecycle-hooks":"pre:\n  execNewPod:\n    env:\n    - name: PASSWORD\n      value: '***'\n","shop.example/note":"hunter2 is the name of our rabbit"},"name":"web"}}`
	whole := object(t, hooked)
	for wanted, given := range map[string]map[string]any{want: whole,
		`{"items":[` + want + `]}`: {"items": []any{whole}}} {
		text, err := json.Marshal(fields.Mask(given))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, string(text)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if fields.HoldsSecrets(whole) {
		t.Error("a Deployment with hooks holds no Secret, which keeps errors from being shown")
	}
	without := object(t, strings.ReplaceAll(hooked, "value: hunter2", "valueFrom: {secretKeyRef: {name: a, key: b}}"))
	delete(without["metadata"].(map[string]any)["annotations"].(map[string]any),
		"kubectl.kubernetes.io/last-applied-configuration")
	if diff := cmp.Diff(without, fields.Mask(without)); diff != "" {
		t.Errorf("hooks without values are not shown as they are written: %s", diff)
	}
}

// TestDiffMasksHooks: hooks are masked in the annotation, and in objects that contain it.
func TestDiffMasksHooks(t *testing.T) {
	const value, other = "'***'", "'*** (changed)'"
	text := func(value string) string {
		return `pre:\n  execNewPod:\n    env:\n    - name: PASSWORD\n      value: ` + value + `\n`
	}
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"another value": {hooked, strings.ReplaceAll(hooked, "value: hunter2", "value: hunter3"), []string{
			`metadata.annotations["runlevel.dev/lifecycle-hooks"]: "` + text(value) + `" -> "` + text(other) + `"`}},
		"another copy": {hooked, strings.ReplaceAll(hooked, `"hunter2"`, `"hunter3"`), []string{
			`metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]: "***" -> "*** (changed)"`}},
		"hooks that are new": {`{kind: Deployment, metadata: {name: web}}`,
			`{kind: Deployment, metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: "{pre: {execNewPod: {env: [{name: A, value: hunter2}]}}}"}}}`, []string{
				`metadata.annotations: null -> {"runlevel.dev/lifecycle-hooks":"pre:\n  execNewPod:\n    env:\n    - name: A\n      value: '***'\n"}`}},
		"removed hooks": {`{metadata: {annotations: {a: b, runlevel.dev/lifecycle-hooks: "{pre: hunter2}"}}}`,
			`{metadata: {annotations: {a: b}}}`, []string{
				`metadata.annotations["runlevel.dev/lifecycle-hooks"]: "***" -> null`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want,
				lines(fields.Diff(object(t, test.before), object(t, test.after)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
