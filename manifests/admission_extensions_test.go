package manifests_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestRefusedExtensionConfigs: they can't be created, and a valid one can't be changed to an invalid one.
func TestRefusedExtensionConfigs(t *testing.T) {
	t.Parallel()
	c := shared.Client(t)
	apply(t, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	create := func(ctx context.Context, where runtimev1.ClientConfig) error {
		config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "ext-"}}
		config.Spec.ClientConfig = where
		return c.Create(ctx, config, client.DryRunAll)
	}
	const begin = "spec.clientConfig.url: begin it with https://"
	sandboxtest.Eventually(t, "the policy is in force", func(ctx context.Context) bool {
		err := create(ctx, runtimev1.ClientConfig{URL: "http://example.com"})
		return err != nil && strings.Contains(err.Error(), begin)
	})
	service := runtimev1.ServiceReference{Namespace: "demo", Name: "ext"}
	for _, test := range []struct {
		where runtimev1.ClientConfig
		want  string
	}{
		{runtimev1.ClientConfig{URL: "example.com"}, begin},
		{runtimev1.ClientConfig{URL: "HTTP://example.com"}, begin},
		{runtimev1.ClientConfig{URL: "https://example.com/prefix", Service: service},
			"name the extension by its url or by its service"},
		{runtimev1.ClientConfig{CABundle: []byte("a")}, "name the extension by its url or by its service"},
		{runtimev1.ClientConfig{URL: "https://example.com:9443/prefix"}, ""},
		{runtimev1.ClientConfig{Service: service}, ""},
	} {
		err := create(t.Context(), test.where)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test.where, err)
		}
	}
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "ext-"}}
	config.Spec.ClientConfig.URL = "https://example.com"
	if err := c.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), config) })
	if err := patch(t, c, config.DeepCopy(), `spec: {clientConfig: {url: "http://example.com"}}`); err == nil ||
		!strings.Contains(err.Error(), begin) {
		t.Errorf("%v", err)
	}
	if err := patch(t, c, config, `metadata: {labels: {a: b}}`); err != nil {
		t.Errorf("%v", err)
	}
}
