package apply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Levels that follow each other, with one component each, are in one node. They are levels
// all the same: none begins before the one before is ready.
func TestLevelsOfOneComponentWaitForEachOther(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, `
-- 0000_10_base_gate.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: gate, namespace: NS, annotations: {runlevel.dev/ready: "false"}}
-- 0000_10_base_other.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: NS}}
-- 0000_20_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`)
	did := run(t, t.Context(), release, apply.Options{Mode: graph.Update, Timeout: 2 * time.Second})
	want := strings.ReplaceAll(`created ConfigMap NS/gate
created ConfigMap NS/other
not done ConfigMap NS/settings
`, "NS", namespace)
	if diff := cmp.Diff(want, did.actions()); diff != "" {
		t.Error(diff)
	}
	if did.Err == nil || did.Err.Error() != "the time is up after 2s: 1 object not applied, 1 object not ready" {
		t.Error(did.Err)
	}
	if why := did.Changes[2].Message; why != "after ConfigMap "+namespace+"/gate, which is not ready" {
		t.Error(why)
	}
	did = run(t, t.Context(), release, apply.Options{Mode: graph.Update, NoWait: true})
	if did.Err != nil || did.Changes[2].Action != apply.Created {
		t.Error(did.Err, did.actions())
	}
}
