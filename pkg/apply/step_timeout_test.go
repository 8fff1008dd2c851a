package apply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A refused object, an object whose Namespace never exists, and a Deployment that never becomes ready block neither
// later objects nor the end of the run. Each is reported once.
func TestFailuresBlockNothingAfterThePatience(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, "patient", namespace, `
-- 0000_10_shop_10_refused.yaml --
{apiVersion: v1, kind: Service, metadata: {name: refused, namespace: NS}, spec: {ports: [{port: 70000}]}}
-- 0000_20_shop_10_elsewhere.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: elsewhere, namespace: NS-never}}
-- 0000_30_shop_10_unready.yaml --
{apiVersion: apps/v1, kind: Deployment, metadata: {name: unready, namespace: NS}, spec: {
  selector: {matchLabels: {app: unready}},
  template: {metadata: {labels: {app: unready}}, spec: {nodeSelector: {no: such-node}, containers: [{name: web, image: registry.example/web}]}}}}
-- 0000_40_shop_10_last.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: NS}}
`)
	did := run(t, t.Context(), release, apply.Options{Options: updateMode, Patience: time.Second})
	failed := map[string]int{}
	for _, event := range did.events {
		if event.Type == apply.Failing {
			failed[event.Object.Name]++
		}
	}
	if len(failed) != 3 || failed["refused"] != 1 || failed["elsewhere"] != 1 || failed["unready"] != 1 {
		t.Errorf("reported: %v", failed)
	}
	last := did.Changes[len(did.Changes)-1]
	if last.ID.Name != "last" || last.Action != object.Created {
		t.Errorf("the last object: %s", did.actions())
	}
	if did.Err == nil || !strings.Contains(did.Err.Error(), "70000") {
		t.Errorf("got error %v", did.Err)
	}
}
