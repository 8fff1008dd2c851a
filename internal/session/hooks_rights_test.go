package session_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// TestHooksNeedTheRightsThatTheGateRequires checks that hooks need no other rights, also to report why a hook failed.
func TestHooksNeedTheRightsThatTheGateRequires(t *testing.T) {
	r := newHookedRelease(t)
	may := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	user := r.release
	user.config = test.Account(t, r.namespace, "user",
		may("", "configmaps", "get", "list", "watch", "create", "update"), // rights on the record
		may("coordination.k8s.io", "leases", "get", "create", "update"),
		may("apps", "deployments", "get", "list", "watch", "create", "patch"),
		may("apps", "deployments/status", "patch"),
		may("apps", "replicasets", "list"),
		may("", "pods", "get", "list", "watch", "create", "delete"),
		may("", "pods/log", "get"),
		may("", "events", "create"),
	)
	failing := func(image string) string {
		files := hookedWeb(image,
			hooksBut(deploymenthook.Pre, hookFails+`, {name: SANDBOX_LOG, value: "no such table"}`))
		return strings.Replace(files, "failurePolicy: Abort", "failurePolicy: Ignore", 1)
	}
	awaitRights(t, user, failing("one"))
	user.must("1.0.0", failing("one"))
	did := user.must("1.0.1", failing("two"))
	for _, warning := range did.Report.Warnings {
		if !strings.Contains(warning.Text, "HorizontalPodAutoscalers") {
			t.Errorf("got warning: %s", warning.Text)
		}
	}
	r.deployment(isOf("two", 1))
	r.hasRun("mid two Succeeded", "post one Succeeded", "post two Succeeded", "pre one Failed", "pre two Failed")
}
