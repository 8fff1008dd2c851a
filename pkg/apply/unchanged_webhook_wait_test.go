package apply_test

import (
	"sync"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// The run waits for an unchanged webhook configuration if its Service has no endpoints any more.
func TestUnchangedWebhookWithoutEndpointsIsAwaited(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	served := load(t, namespace+"-served", namespace, hook+`
-- 0000_04_web_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: hook, namespace: NS}, spec: {ports: [{port: 443}]}}
`)
	mustApply(t, served, apply.Options{})
	release := load(t, namespace, namespace, `
-- 0000_10_web_webhook.yaml --
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: call.NS.example.com
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [NS.example.com], apiVersions: [v1], resources: [nothing], operations: [CREATE]}]
  clientConfig: {service: {name: hook, namespace: NS}}
`)
	mustApply(t, release, apply.Options{})

	slice := namespace + "/hook-1"
	merge(t, c, endpoints, slice, `{"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":false}}]}`)
	var again sync.Once
	hasWaited := false
	did := run(t, t.Context(), release,
		apply.Options{ReportWaits: 10 * time.Millisecond, OnEvent: func(event apply.Event) {
			if event.Type == apply.Waiting {
				hasWaited = true
				again.Do(func() {
					merge(t, c, endpoints, slice,
						`{"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":true}}]}`)
				})
			}
		}})
	if did.Err != nil || did.Changes[0].Action != object.Unchanged || !hasWaited {
		t.Errorf("%s%v, it has waited: %t", did.actions(), did.Err, hasWaited)
	}
}
