package kinds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

func TestInjectsAuthority(t *testing.T) {
	for key, want := range map[string]bool{
		"cert-manager.io/inject-ca-from":            true,
		"cert-manager.io/inject-apiserver-ca":       true,
		"service.beta.openshift.io/inject-cabundle": true,
		"sidecar.istio.io/inject":                   false,
		"vault.hashicorp.com/agent-inject":          false,
		"cert-manager.io/allow-direct-injection":    false,
	} {
		object := &unstructured.Unstructured{}
		object.SetAnnotations(map[string]string{key: "true"})
		if got := kinds.InjectsAuthority(object); got != want {
			t.Errorf("%s injects an authority: %t", key, got)
		}
	}
}

func TestCalledServices(t *testing.T) {
	hooks := types.NamespacedName{Namespace: "shop", Name: "hooks"}
	tests := map[string]struct {
		object string
		want   []types.NamespacedName
	}{
		"webhooks, each Service once": {`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: [
			{clientConfig: {service: {namespace: shop, name: hooks}}}, {clientConfig: {service: {namespace: shop, name: hooks}}},
			{clientConfig: {url: "https://hooks.example.com"}}, {clientConfig: {service: {namespace: shop, name: more}}}]}`,
			[]types.NamespacedName{hooks, {Namespace: "shop", Name: "more"}}},
		"an APIService": {`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, spec: {service: {namespace: shop, name: hooks}}}`, []types.NamespacedName{hooks}},
		"a local APIService": {
			`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, spec: {group: apps}}`, nil,
		},
		"another group's kind": {`{apiVersion: example.com/v1, kind: MyWebhookConfiguration, webhooks: [{clientConfig: {service: {name: hooks}}}]}`, nil},
		"webhooks of the wrong type": {
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: {a: b}}`, nil,
		},
		"a Service of the wrong type": {
			`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, spec: {service: shop/hooks}}`, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(test.object), &object.Object); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, kinds.CalledServices(object)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
