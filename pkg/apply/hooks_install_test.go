package apply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
)

// TestPreHookOfAnInstallWaitsForTheLevelsBefore, such as the level of the database that it migrates. The levels after
// it wait for the hook, and the other components of its level do not.
func TestPreHookOfAnInstallWaitsForTheLevelsBefore(t *testing.T) {
	s := newHookedShop(t)
	release := load(t, s.namespace, s.namespace,
		strings.ReplaceAll(hookedRelease{image: "one", hooks: hookThat("pre", "Abort", succeeds)}.files(),
			"0000_10_shop_20", "0000_20_shop_20")+`
-- 0000_05_db_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: db, namespace: NS, annotations: {runlevel.dev/ready: has(self.data)}}}
-- 0000_10_api_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: api, namespace: NS}}
`)
	did := run(t, t.Context(), release, apply.Options{Options: installMode, Timeout: 4 * time.Second})
	s.expectEvents(did, "created ConfigMap NS/db", "created ConfigMap NS/api")
	if did.Err == nil || !strings.Contains(did.Err.Error(), "1 object not ready, 1 hook not done") {
		t.Errorf("got error %v", did.Err)
	}
	if pods := s.hookPods(); len(pods) > 0 {
		t.Errorf("the hook has run: %q", pods)
	}
	patch(t, connect(t).Client.CoreV1().ConfigMaps(s.namespace).Patch, "db", `{"data": {"is": "open"}}`)
	again := run(t, t.Context(), release, apply.Options{Options: installMode})
	s.expectEvents(again, "unchanged ConfigMap NS/db", "unchanged ConfigMap NS/api", "ran pre hook of "+webDeployment,
		"created "+webDeployment, "created "+afterIt)
	if again.Err != nil {
		t.Error(again.Err)
	}
}
