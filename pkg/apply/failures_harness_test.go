package apply_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// This file has helpers that make a real control plane refuse requests.

// sizes matches the size of a too large object in its refusal, which differs from run to run.
var sizes = regexp.MustCompile(`\(\d+ vs\.`)

// ages matches durations, and moments matches times.
var (
	ages    = regexp.MustCompile(`for \d+s`)
	moments = regexp.MustCompile(`since 20\S+Z`)
)

// errLost ends a run whose lock another process holds.
var errLost = fmt.Errorf("another process has the lock: %w", lock.ErrLost)

// serve starts the server of a webhook.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return server
}

// answer returns a webhook that allows requests if the code is 200, and denies them otherwise.
func answer(code int32, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID:     review.Request.UID,
			Allowed: code == http.StatusOK,
			Result:  &metav1.Status{Code: code, Message: message},
		}
		_ = json.NewEncoder(w).Encode(review)
	}
}

// webhook configures a server as the webhook for all ConfigMaps and Secrets of a namespace.
func webhook(t *testing.T, namespace string, server *httptest.Server, seconds int32) {
	t.Helper()
	configurations := test.Client(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "shop.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: certificateOf(server),
			},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create,
					admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{""},
					APIVersions: []string{"v1"},
					Resources:   []string{"configmaps", "secrets"},
				},
			}},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds: &seconds,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = configurations.Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
}

// awaitRefusal waits until the API server refuses to create a ConfigMap: it takes a moment to see its new policy.
func awaitRefusal(t *testing.T, namespace string, object *corev1.ConfigMap) {
	t.Helper()
	sandboxtest.Eventually(t, "nothing is refused", func(ctx context.Context) bool {
		_, err := test.Client(t).CoreV1().ConfigMaps(namespace).Create(ctx, object,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
}

// awaitCall waits until a webhook is called.
func awaitCall(t *testing.T, namespace string, called <-chan struct{}) {
	t.Helper()
	sandboxtest.Eventually(t, "the webhook is not called", func(ctx context.Context) bool {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
			_, _ = test.Client(t).CoreV1().ConfigMaps(namespace).Create(ctx, object,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}()
		select {
		case <-called:
			return true
		case <-ended:
			return false
		}
	})
}

// as returns a connection as the deployer of a namespace.
func as(t *testing.T, namespace string) *cluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(test.Sandbox(t).Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: deployer(namespace)}
	c, err := cluster.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func deployer(namespace string) string { return "system:serviceaccount:" + namespace + ":deployer" }

// grant returns a function that sets which resources the deployer of a namespace may write.
func grant(t *testing.T, namespace string) func(resources ...string) {
	t.Helper()
	roles, bindings := test.Client(t).RbacV1().ClusterRoles(), test.Client(t).RbacV1().ClusterRoleBindings()
	t.Cleanup(func() {
		_ = roles.Delete(context.Background(), namespace, metav1.DeleteOptions{})
		_ = bindings.Delete(context.Background(), namespace, metav1.DeleteOptions{})
	})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := roles.Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: deployer(namespace)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reviews := test.Client(t).AuthorizationV1().SubjectAccessReviews()
	return func(resources ...string) {
		role.Rules = []rbacv1.PolicyRule{
			{
				APIGroups: []string{""},
				Resources: []string{"configmaps", "services"},
				Verbs:     []string{"get", "list", "watch"},
			},
			{APIGroups: []string{""}, Resources: resources, Verbs: []string{"create", "update", "patch"}},
		}
		if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		for _, resource := range []string{"configmaps", "services"} {
			sandboxtest.Eventually(t, "the right has not changed", func(ctx context.Context) bool {
				review, err := reviews.Create(ctx,
					&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User: deployer(namespace), ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: namespace,
							Verb:      "patch",
							Resource:  resource,
						},
					}}, metav1.CreateOptions{})
				return err == nil && review.Status.Allowed == slices.Contains(resources, resource)
			})
		}
	}
}

// certificateOf returns a caBundle that trusts a test server.
func certificateOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
