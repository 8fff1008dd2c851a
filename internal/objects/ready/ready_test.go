package ready_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/ready"
)

func TestMissingObjectIsAwaited(t *testing.T) {
	for _, object := range []*unstructured.Unstructured{nil, {}} {
		for _, standard := range []ready.Standard{ready.Full, ready.Upstream} {
			want := ready.Verdict{State: ready.Waiting, Message: "it does not exist yet"}
			if got := ready.Check(object, standard, ready.Related{}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	}
}

func TestObjectsThatAreNeverUnreadyAreNotWatched(t *testing.T) {
	tests := map[string]struct {
		object         string
		full, upstream bool
	}{
		"a Deployment":  {`{apiVersion: apps/v1, kind: Deployment}`, true, true},
		"a StatefulSet": {`{apiVersion: apps/v1, kind: StatefulSet}`, true, false},
		"a Namespace":   {`{apiVersion: v1, kind: Namespace}`, true, false},
		"a definition": {`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}`, true,
			true},
		"a ClusterOperator": {`{apiVersion: config.openshift.io/v1, kind: ClusterOperator}`, true, true},
		"a ConfigMap":       {`{apiVersion: v1, kind: ConfigMap}`, false, false},
		"a claim":           {`{apiVersion: v1, kind: PersistentVolumeClaim}`, false, false},
		"a CronJob":         {`{apiVersion: batch/v1, kind: CronJob}`, false, false},
		"a custom resource": {`{apiVersion: example.com/v1, kind: Certificate}`, true, false},
		"one not to be waited for": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {annotations: {runlevel.dev/ready: none}}}`, false,
			false,
		},
		"a ConfigMap with an " +
			"expression": {`{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {runlevel.dev/ready: "has(self.data)"}}}`, true, true},
		"an APIService": {`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, spec: {service: {namespace: a, name: b}}}`, true, false},
		"a local APIService": {`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, spec: {group: apps}}`,
			false, false},
		"webhooks by URL":        {`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: [{clientConfig: {url: "https://a.example.com"}}]}`, false, false},
		"a webhook of a Service": {`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: [{clientConfig: {service: {namespace: a, name: b}}}]}`, true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := readObject(t, []byte(test.object))
			if got := ready.Awaits(object, ready.Full); got != test.full {
				t.Errorf("by the full standard: got %t, want %t", got, test.full)
			}
			if got := ready.Awaits(object, ready.Upstream); got != test.upstream {
				t.Errorf("by upstream's standard: got %t, want %t", got, test.upstream)
			}
		})
	}
}

func TestReadyExpressions(t *testing.T) {
	status := `apiVersion: example.com/v1
kind: Certificate
metadata: {name: web, generation: 2}
status: {phase: Issued, used: 3, share: 0.5, conditions: [{type: Ready, status: "True"}], memory: 1Gi, nothing: null}
`
	tests := map[string]struct{ expression, want string }{
		"true": {`self.status.phase == "Issued"`, "ready"},
		"false": {`self.status.phase == "Lost"`,
			`waiting: self.status.phase == "Lost" is not true yet`},
		"a missing field": {`self.status.ready`, "waiting: self.status.ready is not true yet: no such key: ready"},
		"a missing field below one": {`self.spec.replicas == 1`,
			"waiting: self.spec.replicas == 1 is not true yet: no such key: spec"},
		"asked for a field": {`has(self.status.ready) && self.status.ready`,
			"waiting: has(self.status.ready) && self.status.ready is not true yet"},
		"conditions": {`self.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`,
			"ready"},
		"numbers":    {`self.status.used > 2 && self.status.share < 1.0 && self.metadata.generation == 2`, "ready"},
		"quantities": {`quantity(self.status.memory).isGreaterThan(quantity("1Mi"))`, "ready"},
		"null":       {`self.status.nothing == null`, "ready"},
		"beyond the end": {`self.status.conditions[1].status == "True"`,
			`waiting: self.status.conditions[1].status == "True" can't be evaluated: index out of bounds: 1`},
		"types that do not fit": {`self.status.phase > 1`,
			"waiting: self.status.phase > 1 can't be evaluated: no such overload"},
		"no answer": {`self.status.used`,
			"waiting: self.status.used is of type int, and must be true or false"},
		"several lines": {"self.status.used == 3\n  && self.status.phase == \"Lost\"",
			`waiting: self.status.used == 3 && self.status.phase == "Lost" is not true yet`},
		"of no object": {`object.status.ready`,
			"failed: runlevel.dev/ready can't be used: it is not valid CEL, at character 1: undeclared reference to " +
				"'object' (in container '')"},
		"a number": {`1 + 1`, "failed: runlevel.dev/ready can't be used: it is of type int, and must be true or false"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := readObject(t, []byte(status))
			object.SetAnnotations(map[string]string{ready.Annotation: test.expression})
			for range 2 { // compiled, and met again
				if got := show(ready.Check(object, ready.Full, ready.Related{})); got != test.want {
					t.Errorf("got %s\nwant %s", got, test.want)
				}
			}
		})
	}
}

// An expression that never ends would block the apply.
func TestCostlyExpressionsEnd(t *testing.T) {
	object := readObject(t, []byte(`{apiVersion: example.com/v1, kind: Certificate, status: {list: []}}`))
	list := make([]any, 1000)
	for i := range list {
		list[i] = strings.Repeat("a", 100)
	}
	object.Object["status"] = map[string]any{"list": list}
	for name, expression := range map[string]string{
		"loops":   `self.status.list.all(a, self.status.list.all(b, self.status.list.all(c, self.status.list.all(d, a == b))))`,
		"growth":  `self.status.list.map(a, self.status.list.map(b, self.status.list.map(c, a + b + c))).size() > 0`,
		"matches": `self.status.list.all(a, self.status.list.all(b, (a + b).matches("^(a*)*(a*)*$")))`,
	} {
		t.Run(name, func(t *testing.T) {
			object.SetAnnotations(map[string]string{ready.Annotation: expression})
			want := ready.Verdict{
				State:   ready.Waiting,
				Message: expression + " can't be evaluated: it would take too long",
			}
			if got := ready.Check(object, ready.Full, ready.Related{}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// An error about a value may quote it.
func TestMessagesHaveNoValuesOfSecrets(t *testing.T) {
	object := readObject(t, []byte(`{apiVersion: v1, kind: Secret, stringData: {token: hunter2}}`))
	for _, expression := range []string{`ip(self.stringData.token) == ip("127.0.0.1")`,
		`{"a": true}[self.stringData.token]`} {
		object.SetAnnotations(map[string]string{ready.Annotation: expression})
		object.SetKind("Certificate")
		if got := ready.Check(object, ready.Full, ready.Related{}); !strings.Contains(got.Message, "hunter2") {
			t.Errorf("the verdict on another kind: got %+v, want an error with the value", got)
		}
		object.SetKind("Secret")
		if got := ready.Check(object, ready.Full, ready.Related{}); got.State != ready.Waiting ||
			strings.Contains(got.Message, "hunter2") {
			t.Errorf("the verdict on a Secret: got %+v, want %s without the value", got, ready.Waiting)
		}
	}
}

func TestMessagesAreOneShortLine(t *testing.T) {
	object := readObject(t, []byte(
		`{apiVersion: example.com/v1, kind: Certificate, status: {conditions: [{type: Ready, status: "False"}]}}`,
	))
	tests := map[string]struct{ message, want string }{
		"line breaks":      {"Not yet.\n  Retrying\tin 5s...", "not yet. Retrying in 5s"},
		"escape sequences": {"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		"names":            {"ReplicaSet web has no pods.", "ReplicaSet web has no pods"},
		"abbreviations":    {"CSR is not approved", "CSR is not approved"},
		"other languages":  {"Über alles", "über alles"},
		"very long":        {strings.Repeat("a ", 500), strings.TrimSpace(strings.Repeat("a ", 300)) + " …"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conditions := object.Object["status"].(map[string]any)["conditions"].([]any)
			conditions[0].(map[string]any)["message"] = test.message
			if got := ready.Check(object, ready.Full, ready.Related{}).Message; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidateExpression(t *testing.T) {
	for text, want := range map[string]string{
		"none":                        "",
		`self.status.phase == "A"`:    "",
		" ":                           "it is empty: write a CEL expression such as self.status.phase == \"Ready\", or none",
		"self.status.phase == \n== 1": "it is not valid CEL, in line 2, at character 1: Syntax error:",
		`"yes"`:                       "it is of type string, and must be true or false",
	} {
		err := ready.Validate(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
