package operator_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/ui/incluster"
)

// TestThePagesOfTheOperator have the release with its files, which are read from their copy on the cluster. Open
// requests do not hold up the end of the operator.
func TestThePagesOfTheOperator(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	serving := webserver.Serving{Address: "127.83.1.3:8443", Program: "runlevel-operator"}
	s.options.Serve = func(ctx context.Context, m ctrl.Manager) error {
		return incluster.Serve(ctx, m, s.sandbox.Config, incluster.Options{Serving: serving})
	}
	s.beginWith("1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	anna := s.scraper(serving.Address, "anna")
	s.must(s.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "anna"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "anna"}},
	}))
	object := "/releases/" + system + "/default/object?kind=ConfigMap&namespace=shop&name=settings"
	for path, want := range map[string]string{
		"/":                                "default",
		"/releases/" + system + "/default": "1.0.0",
		object:                             "In the release",
		"/cluster":                         "1.0.0",
	} {
		s.await(path+" has "+want, func() bool {
			code, text, _ := anna.getPage(t.Context(), path)
			return code == http.StatusOK && strings.Contains(text, want)
		})
	}
	events, err := anna.open(t.Context(), "/events?page=%2F")
	s.must(err)
	defer events.Body.Close()
	began := time.Now()
	s.must(s.end())
	if took := time.Since(began); took > 4*time.Second { // the server waits for 5 seconds
		t.Errorf("the operator ended after %s", took)
	}
}
