package apply_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
)

// A container that exits at once is Ready for an instant after each start, and the next level does not begin. The user
// may not list nodes, so Runlevel does not know that the nodes are simulated.
func TestACrashLoopIsNotReady(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	c := connectThrough(t, func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/api/v1/nodes") {
			return http.ErrHandlerTimeout
		}
		return nil
	})
	release := load(t, namespace, namespace, `
-- 0000_10_web_10.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {sandbox.runlevel.dev/pod: crash, sandbox.runlevel.dev/run-for: 300ms}}
    spec: {containers: [{name: web, image: registry.example/web}]}
-- 0000_20_late_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: NS}}
`)
	did := runOn(t, t.Context(), c, release, apply.Options{Options: updateMode, Timeout: 12 * time.Second})
	if did.Err == nil || !strings.Contains(did.actions(), "not done ConfigMap") {
		t.Errorf("the crash loop is considered ready: %v\n%s", did.Err, did.actions())
	}
}
