package apply_test

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Users with the role would have no rights while the controller gathers them again.
func TestAggregatedRoleKeepsItsRules(t *testing.T) {
	name := test.Namespace(t)
	release := load(t, name, name, `
-- 0000_10_roles_10_all.yaml --
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS-all}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {NS.example.com/part: "true"}}]}
rules: []
-- 0000_10_roles_20_part.yaml --
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS-part, labels: {NS.example.com/part: "true"}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`)
	if did := run(t, t.Context(), release, apply.Options{Options: installMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	var gathered *rbacv1.ClusterRole
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			gathered, err = test.Client(t).RbacV1().ClusterRoles().Get(ctx, name+"-all", metav1.GetOptions{})
			return err == nil && len(gathered.Rules) == 1, err
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []graph.Mode{graph.Reconcile, graph.Update} {
		did := run(t, t.Context(), release, apply.Options{Options: inMode(mode)})
		if want := "unchanged ClusterRole " + name + "-all\nunchanged ClusterRole " + name +
			"-part\n"; did.actions() != want || did.Err != nil {
			t.Errorf("%s: got error %v, actions\n%swant\n%s", mode, did.Err, did.actions(), want)
		}
	}
	live, err := test.Client(t).RbacV1().ClusterRoles().Get(t.Context(), name+"-all", metav1.GetOptions{})
	if err != nil || live.ResourceVersion != gathered.ResourceVersion {
		t.Errorf("the apply has written the role again: rules %v, error %v", live.Rules, err)
	}
}
