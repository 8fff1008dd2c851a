package sandboxtest

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Account creates a service account with rights in its namespace, and returns its client
// configuration. The API server applies the rights after a moment.
func (c *SharedSandbox) Account(t testing.TB, namespace, name string, may ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	accounts := c.Client(t).CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(may) > 0 {
		c.allow(t, namespace, name, may)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Sandbox(t).Config)
	config.BearerToken = token.Status.Token
	return config
}

// allow binds an account to a new role in its namespace.
func (c *SharedSandbox) allow(t testing.TB, namespace, name string, may []rbacv1.PolicyRule) {
	t.Helper()
	meta, rbac := metav1.ObjectMeta{Name: name}, c.Client(t).RbacV1()
	if _, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: may},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
