package capi_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/manifests"
)

// TestTheRightsOfThePayloadSuffice has a deletion with all phases done with the rights that the payload gives, and
// those of a provider for its own kind.
func TestTheRightsOfThePayloadSuffice(t *testing.T) {
	const user = "cluster-api-machines"
	allow(t, user, "get", "list", "watch", "patch", "delete")
	s := newSceneAs(t, user)
	s.addRule("web", clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain})
	m, node := s.runs(preDrain+"a", preTerminate+"x")
	s.addPod(node, "web", nil)
	budget := s.AddBudget("web", "web")
	attachment := s.addVolume(node, "data")
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreDrainHook", "")
	s.removeHook(m, preDrain+"a")
	s.MustDelete(budget)
	s.awaitDeleting("WaitingForVolumeDetach", "")
	s.MustDelete(attachment)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// allow gives a user a role of that name: the rights of the payload, and some on infrastructure.
func allow(t *testing.T, user string, onInfrastructure ...string) *rbacv1.ClusterRole {
	t.Helper()
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{"infra.example.com"}, Resources: []string{"testmachines"}, Verbs: onInfrastructure,
	}}
	for _, role := range payloadRoles(t) {
		if role.Name == "machine-controller" || role.Name == "machine-controller-cluster-api" {
			rules = append(rules, role.Rules...)
		}
	}
	c := stage.Client(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if err := c.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}); err != nil {
		t.Fatal(err)
	}
	// A controller whose first requests are refused tries again after pauses that grow.
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb:     "list",
			Group:    "cluster.x-k8s.io",
			Resource: "machines",
		},
	}}
	machinetest.Await(t, c, role, client.ObjectKeyFromObject(role), func(*rbacv1.ClusterRole) bool {
		asked := review.DeepCopy()
		if err := c.Create(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		return asked.Status.Allowed
	})
	return role
}

// payloadRoles returns the ClusterRoles of the payload.
func payloadRoles(t *testing.T) []rbacv1.ClusterRole {
	t.Helper()
	files, err := fs.Glob(manifests.Files(), "*rbac*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no roles", err)
	}
	var roles []rbacv1.ClusterRole
	for _, file := range files {
		text, err := fs.ReadFile(manifests.Files(), file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var role rbacv1.ClusterRole
			err := decoder.Decode(&role)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if role.Kind == "ClusterRole" {
				roles = append(roles, role)
			}
		}
	}
	return roles
}
