package precondition_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/precondition"
)

var testbed = sandboxtest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// gather sets defaults for the missing fields of input, and gathers the facts.
func gather(t *testing.T, c *cluster.Cluster, input precondition.Input) *precondition.Facts {
	t.Helper()
	var scopes []inventory.Scope
	for _, m := range input.Payload.Manifests {
		if id := m.ID(); id.Group != "down.example.com" { // that group serves no kinds
			scopes = append(scopes, inventory.Scope{Kind: id.GroupKind(), Namespace: id.Namespace})
		}
	}
	var err error
	if input.Before, err = inventory.Take(t.Context(), c, scopes, nil); err != nil {
		t.Fatal(err)
	}
	if input.Record == nil {
		input.Record = history()
	}
	if input.Namespace == "" {
		input.Namespace = "runlevel"
	}
	facts, err := precondition.Gather(t.Context(), c, input)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// counting returns a configuration that counts create requests, by their resource.
func counting(config *rest.Config) (*rest.Config, map[string]int) {
	var mu sync.Mutex
	seen := map[string]int{}
	return sandboxtest.Before(config, func(request *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if request.Method == http.MethodPost {
			seen[request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]]++
		}
		return nil
	}), seen
}

// account creates a service account with some rights in a namespace, and returns its configuration.
func account(t *testing.T, namespace string, may ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	return knownRights(t, testbed.Account(t, namespace, "ci", may...), namespace, may)
}

// accountOfCluster creates an account with rights in the whole cluster, and returns its configuration.
func accountOfCluster(t *testing.T, namespace string, may ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	config, client := testbed.Account(t, namespace, "ci"), testbed.Client(t)
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Rules:      may,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "ci", Namespace: namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return knownRights(t, config, namespace, may)
}

// knownRights waits until the server knows what an account may do.
func knownRights(t *testing.T, config *rest.Config, namespace string, may []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	awaitRights(t, sandboxtest.Connect(t, config), namespace, may)
	return config
}

// awaitRights waits until the server has observed a role.
func awaitRights(t *testing.T, c *cluster.Cluster, namespace string, may []rbacv1.PolicyRule) {
	t.Helper()
	for _, rule := range may {
		requested := &authorizationv1.ResourceAttributes{
			Namespace: namespace,
			Verb:      rule.Verbs[0],
			Group:     rule.APIGroups[0],
			Resource:  rule.Resources[0],
		}
		if len(rule.ResourceNames) > 0 {
			requested.Name = rule.ResourceNames[0]
		}
		sandboxtest.Eventually(t, "the right is known", func(ctx context.Context) bool {
			answer, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
				&authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: requested},
				}, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed
		})
	}
}
