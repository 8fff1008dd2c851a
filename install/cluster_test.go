package install

import (
	"os"
	"runtime"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var shared = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

const operator = "system:serviceaccount:runlevel-system:runlevel-operator"

// applyManifests applies all objects, and returns the administrator's connection.
func applyManifests(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := shared.Connect(t)
	for _, object := range Objects() {
		for _, warning := range sandboxtest.ApplyObject(t, c, object).Warnings {
			t.Errorf("%s %s: %s", object.GetKind(), object.GetName(), warning)
		}
	}
	awaitRight(t, c, true)
	return c
}

// awaitRight waits until the API server enforces the role for releases, or its deletion.
func awaitRight(t *testing.T, admin *cluster.Cluster, wanted bool) {
	t.Helper()
	attributes := authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "kube-system"}
	for mayOperator(t, admin, attributes) != wanted {
		runtime.Gosched()
	}
}

// The API server compiles the rules of definitions, and warns if a Deployment violates pod
// security. Pods are only created if pod security, the quota and the priority allow them.
func TestClusterAcceptsTheManifests(t *testing.T) {
	applyManifests(t)
	for _, definition := range Definitions() {
		resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
		sandboxtest.Await(t, shared, resource, definition.GetName(),
			func(d *apiextensionsv1.CustomResourceDefinition) bool {
				for _, condition := range d.Status.Conditions {
					if condition.Type == apiextensionsv1.Established &&
						condition.Status == apiextensionsv1.ConditionTrue {
						return true
					}
				}
				return false
			})
	}
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	sandboxtest.Await(t, shared, resource, "runlevel-system/runlevel-operator", func(d *appsv1.Deployment) bool {
		return d != nil && d.Status.AvailableReplicas == 1
	})
}

// asOperator connects as the operator's service account.
func asOperator(t *testing.T) *cluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(shared.Sandbox(t).Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: operator, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:runlevel-system",
			"system:authenticated"},
	}
	return sandboxtest.Connect(t, config)
}

// A release may have roles that give more than the operator has, here a path of the API server.
func TestOperatorMayGrantRightsThatItDoesNotHave(t *testing.T) {
	applyManifests(t)
	rights := asOperator(t).Client.RbacV1()
	meta := metav1.ObjectMeta{Name: "reads-metrics"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: meta,
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	if _, err := rights.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reads-metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
	}
	if _, err := rights.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestOperatorHasNoUnneededRights(t *testing.T) {
	admin := applyManifests(t)
	for _, what := range []authorizationv1.ResourceAttributes{
		{Verb: "impersonate", Resource: "users"},
		{Verb: "deletecollection", Resource: "pods"},
		{Verb: "update", Group: "apps", Resource: "deployments"},
		{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers"},
		{Verb: "bind", Group: "certificates.k8s.io", Resource: "signers"},
	} {
		if mayOperator(t, admin, what) {
			t.Errorf("the operator may %s %s", what.Verb, what.Resource)
		}
	}
}

// Prometheus sends the token of an account that may only read metrics.
func TestPrometheusIsGivenATokenForMetrics(t *testing.T) {
	admin := applyManifests(t)
	for _, object := range Monitoring() {
		// Prometheus' own kinds are not served here
		if resource, err := admin.Find(t.Context(), object.GroupVersionKind()); err == nil {
			if _, err := admin.Apply(t.Context(), resource, object, cluster.Force); err != nil {
				t.Fatal(err)
			}
		}
	}
	secret := sandboxtest.Await(t, shared, corev1.SchemeGroupVersion.WithResource("secrets"),
		"runlevel-system/runlevel-metrics-reader",
		func(s *corev1.Secret) bool { return s != nil && len(s.Data["token"]) > 0 })
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(secret.Data["token"])}}
	answer, err := admin.Client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reader := authorizationv1.SubjectAccessReviewSpec{
		User:   answer.Status.User.Username,
		Groups: answer.Status.User.Groups,
	}
	reader.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
	for !may(t, admin, reader) {
		runtime.Gosched()
	}
	reader.NonResourceAttributes = nil
	reader.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:      "get",
		Resource:  "configmaps",
		Namespace: "runlevel-system",
	}
	if may(t, admin, reader) {
		t.Error("the account may read ConfigMaps")
	}
}

// An administrator may remove the role for all releases, and bind a role for one release.
func TestWithoutTheRoleForReleasesTheOperatorDoesItsOwnWork(t *testing.T) {
	admin := applyManifests(t)
	bindings := admin.Client.RbacV1().ClusterRoleBindings()
	if err := bindings.Delete(t.Context(), "runlevel-operator-apply", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	defer applyManifests(t)
	awaitRight(t, admin, false)
	for _, what := range []authorizationv1.ResourceAttributes{
		{
			Verb:        "update",
			Group:       "config.openshift.io",
			Resource:    "clusterversions",
			Subresource: "status",
			Name:        "version",
		},
		{Verb: "create", Group: "config.openshift.io", Resource: "clusterversions"},
		{
			Verb:     "patch",
			Group:    "apiextensions.k8s.io",
			Resource: "customresourcedefinitions",
			Name:     "clusterversions.config.openshift.io",
		},
		{Verb: "update", Resource: "configmaps", Namespace: "runlevel-system", Name: "runlevel-release-default"},
		{
			Verb:      "update",
			Group:     "coordination.k8s.io",
			Resource:  "leases",
			Namespace: "runlevel-system",
			Name:      "runlevel-release-default",
		},
		{Verb: "create", Resource: "events", Namespace: "default"},
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	} {
		if !mayOperator(t, admin, what) {
			t.Errorf("the operator may not %s %s", what.Verb, what.Resource)
		}
	}
	_, err := asOperator(t).Client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "of-a-release"},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create a ConfigMap in another namespace: got error %v, want Forbidden", err)
	}
}

// mayOperator asks the API server for a right of the operator.
func mayOperator(t *testing.T, admin *cluster.Cluster, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	return may(t, admin, authorizationv1.SubjectAccessReviewSpec{
		User: operator, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &what,
	})
}

// may asks the API server for a right.
func may(t *testing.T, admin *cluster.Cluster, asked authorizationv1.SubjectAccessReviewSpec) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: asked}
	answer, err := admin.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}
