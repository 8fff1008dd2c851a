package apply_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A step that waits for an unready object or for its next try does not delay other steps, even with one worker.
func TestWaitingStepsDoNotDelayOthers(t *testing.T) {
	for name, waits := range map[string]string{
		"to try again": `{apiVersion: v1, kind: ConfigMap, metadata: {name: COMPONENT, namespace: NS-not-there}}`,
		"for an unready object": `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: COMPONENT, namespace: NS}, spec: {paused: true, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {nodeName: nowhere, containers: [{name: web, image: registry.example/web}]}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			var files strings.Builder
			for _, component := range []string{"a", "b", "c"} {
				fmt.Fprintf(&files, "-- 0000_10_%s_10.yaml --\n%s\n", component,
					strings.ReplaceAll(waits, "COMPONENT", component))
			}
			fmt.Fprintln(&files, "-- 0000_10_d_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: last, "+
				"namespace: NS}}")
			did := run(t, t.Context(), load(t, namespace, namespace, files.String()),
				apply.Options{Options: updateMode, Workers: 1, Timeout: 3 * time.Second})
			if last := did.Changes[len(did.Changes)-1]; last.Action != object.Created {
				t.Errorf("got action %s: %v", last.Action, did.Err)
			}
		})
	}
}
