package sandbox_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestServiceAccountHasOnlyItsOwnRights(t *testing.T) {
	namespace := cluster.Namespace(t)
	weak := kubernetes.NewForConfigOrDie(cluster.Account(t, namespace, "weak"))

	_, err := weak.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:"+namespace+":weak") {
		t.Errorf("listing Secrets: %v, want Forbidden for the account", err)
	}
}

func TestOrdinaryUserIsAThrottledClusterAdmin(t *testing.T) {
	exempt := priorityOf(t, cluster.Sandbox(t).Config)
	if got := priorityOf(t, cluster.Sandbox(t).UserConfig); got == exempt {
		t.Errorf("admin and ordinary user have the same priority level %q", got)
	}
	user := kubernetes.NewForConfigOrDie(cluster.Sandbox(t).UserConfig)
	if _, err := user.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error("the ordinary user is not a cluster-admin:", err)
	}
}

// priorityOf returns the priority level of a user in the API server.
func priorityOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	var level string
	config = sandboxtest.Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		response, err := send.RoundTrip(request)
		if err == nil {
			level = response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID")
		}
		return response, err
	})
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(),
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return level
}

func TestKubeconfigHasBothUsers(t *testing.T) {
	for _, name := range []string{sandbox.AdminUser, sandbox.OrdinaryUser} {
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: cluster.Sandbox(t).Kubeconfig},
			&clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		client := kubernetes.NewForConfigOrDie(config)
		who, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if who.Status.UserInfo.Username != name {
			t.Errorf("the user of context %s is %s, want %[1]s", name, who.Status.UserInfo.Username)
		}
	}
}

func TestAuditLogFollowsThePolicy(t *testing.T) {
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	audited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), audited,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(cluster.Sandbox(t).Logs, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !containsAll(string(log), `"verb":"create"`, namespace, `"resource":"configmaps"`) {
		t.Errorf("the audit log lacks the creation of the ConfigMap:\n%s", log)
	}
}

func containsAll(text string, wanted ...string) bool {
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			return false
		}
	}
	return true
}
