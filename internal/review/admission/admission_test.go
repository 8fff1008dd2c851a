package admission_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	apiserver "k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/review/admission"
)

const configuration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop}
webhooks:
- name: deployments.shop.example
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [gatekeeper]}]}
  rules: [{apiGroups: [apps], apiVersions: [v1beta1], operations: [CREATE], resources: [deployments]}]
- name: exact.shop.example
  matchPolicy: Exact
  failurePolicy: Ignore
  rules: [{apiGroups: [apps], apiVersions: [v1beta1], operations: ["*"], resources: ["*"], scope: Namespaced}]
- name: everything.shop.example
  matchConditions: [{name: never, expression: "false"}]
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]
- name: broken.shop.example
  namespaceSelector: {matchExpressions: [{key: app, operator: Near}]}
`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestWebhooksMatchRequests(t *testing.T) {
	t.Parallel()
	webhooks := admission.Webhooks(parse(t, configuration))
	if len(webhooks) != 3 {
		t.Fatalf("%d webhooks are valid, want 3", len(webhooks))
	}
	for _, c := range []struct {
		object    string
		operation apiserver.Operation
		want      [3]bool
	}{
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}", apiserver.Create,
			[3]bool{true, false, true}},
		{"{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: web, namespace: other}}", apiserver.Create,
			[3]bool{false, true, true}},
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}", apiserver.Update,
			[3]bool{false, false, true}},
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {name: g, namespace: shop, labels: {app: gatekeeper}}}",
			apiserver.Create, [3]bool{false, false, true}},
		{"{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", apiserver.Create, [3]bool{false, false, true}},
		{"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: shop}}",
			apiserver.Create, [3]bool{}},
	} {
		request := admission.RequestFor(parse(t, c.object), c.operation, labels.Set{"team": "shop"})
		for i, webhook := range webhooks {
			if got := webhook.Matches(request); got != c.want[i] {
				t.Errorf("%s matches %s of %s: %t", webhook.Name, c.operation, c.object, got)
			}
		}
	}
}

func TestMustAnswer(t *testing.T) {
	t.Parallel()
	for i, want := range []bool{true, false, false} {
		if webhook := admission.Webhooks(parse(t, configuration))[i]; webhook.MustAnswer() != want {
			t.Errorf("%s must answer: %t", webhook.Name, !want)
		}
	}
}
