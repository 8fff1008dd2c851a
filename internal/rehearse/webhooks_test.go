package rehearse_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// held has webhooks without a server, one of which needs a certificate that nothing injects.
var held = fstest.MapFS{
	"0000_10_shop_01_webhook.yaml": {Data: []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: settings.shop.example}
webhooks:
- name: settings.shop.example
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: "https://127.0.0.1:1/validate"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: secrets.shop.example, annotations: {cert-manager.io/inject-ca-from: shop/gatekeeper}}
webhooks:
- name: secrets.shop.example
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: "https://127.0.0.1:1/validate"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
`)},
	"0000_20_shop_01_config.yaml": {Data: []byte(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: more-settings, namespace: shop}}
---
{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: shop}}
`)},
}

// TestWebhooks asserts that webhooks are called where the containers of their servers run, and are reported elsewhere.
// The nodes are simulated in both cases.
func TestWebhooks(t *testing.T) {
	sandboxtest.NeedControlPlane(t)
	config := start(t, func(*http.Request) bool { return false })
	for _, c := range []struct {
		nodes int
		want  []string
	}{
		{0, []string{
			"settings.shop.example: its webhooks are not called: no container runs here; while its server does not " +
				"answer, the API server refuses to write ConfigMap shop/settings (0000_20_shop_01_config.yaml:2) and " +
				"1 object more",
			"secrets.shop.example: its webhooks are not called: no container runs here",
		}},
		{1, []string{
			`failed calling webhook "settings.shop.example"`,
			"secrets.shop.example: its webhooks are not called: nothing injects caBundle here (--with can)",
		}},
	} {
		t.Run(fmt.Sprintf("%d real nodes", c.nodes), func(t *testing.T) {
			// An API server may know a new webhook only after a moment.
			sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
				report, err := rehearse.On(ctx, config, rehearse.Options{
					New: parse(t, held, "1.0.0"), Sandbox: sandbox.Options{RealNodes: c.nodes}, Down: true,
				})
				if err != nil {
					return err
				}
				var found strings.Builder
				for _, seen := range report.Observations {
					fmt.Fprintf(&found, "%s: %s\n", seen.Object, seen.Message)
				}
				for _, want := range c.want {
					if !strings.Contains(found.String(), want) {
						return fmt.Errorf("%q is not among the findings:\n%s", want, found.String())
					}
				}
				if isCalled := strings.Contains(found.String(), "failed calling"); isCalled != (c.nodes > 0) {
					return fmt.Errorf("webhooks are called: %t", isCalled)
				}
				return nil
			})
		})
	}
}
