package session_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// The last objects are waited for, so that the watches have to outlive it, too.
func TestAPIServerIsKilledDuringAnInstall(t *testing.T) {
	const name, objects = "server-killed", 300
	release := load(t, name, "1.0.0", configMaps(objects)+`
-- 0000_90_web_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}
`)
	s := test.Sandbox(t)
	var writes atomic.Int64
	var restarted sync.WaitGroup
	c := connectAs(t, name, func(request *http.Request) error {
		if isWrite(request) && writes.Add(1) == objects/2 {
			if err := s.Kill(sandbox.APIServer); err != nil {
				t.Error(err)
			}
			restarted.Go(func() {
				if err := s.Resume(t.Context(), sandbox.APIServer); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	})
	o := options()
	o.Lock.Duration = time.Minute
	retried := 0
	o.Apply.OnEvent = func(event apply.Event) {
		if event.Type == apply.Retrying {
			retried++
		}
	}
	outcome := session.Run(t.Context(), c, release, o)
	restarted.Wait()
	if outcome.Err != nil || retried == 0 {
		t.Fatalf("the install ended with %v, after %d failures that heal", outcome.Err, retried)
	}
	found, err := c.Client.CoreV1().ConfigMaps(name).List(t.Context(),
		metav1.ListOptions{LabelSelector: "runlevel.dev/release=" + name})
	if err != nil || len(found.Items) != objects {
		t.Errorf("%d of %d objects are there: %v", len(found.Items), objects, err)
	}
	made := map[string]int{}
	for _, w := range audited(t, func(w write) bool { return w.Agent == name && w.Status.Code == http.StatusCreated }) {
		if made[w.Object.Resource+"/"+w.Object.Name]++; made[w.Object.Resource+"/"+w.Object.Name] > 1 {
			t.Errorf("made twice: %s", w)
		}
	}
	if again := mustRun(t, c, release); again.Report.Err != nil ||
		counts(again)[object.Unchanged] != len(release.Manifests) {
		t.Errorf("the second time: %v", counts(again))
	}
}

// A lock that can't be renewed may be another process's soon: its holder must end before.
func TestAPIServerStaysAwayForLongerThanTheLock(t *testing.T) {
	const name, objects = "server-away", 60
	release := load(t, name, "1.0.0", configMaps(objects))
	s := test.Sandbox(t)
	var writes atomic.Int64
	c := connectAs(t, name, func(request *http.Request) error {
		if isWrite(request) && writes.Add(1) == objects/2 {
			return s.Kill(sandbox.APIServer)
		}
		return nil
	})
	o := options()
	o.Lock.Duration = outageLock
	outcome := session.Run(t.Context(), c, release, o)
	if !errors.Is(outcome.Err, lock.ErrLost) || !strings.Contains(outcome.Err.Error(), "could not be renewed for 4s") {
		t.Errorf("while the server is away: %v", outcome.Err)
	}
	if err := s.Resume(t.Context(), sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	again := mustRun(t, c, release)
	if got := counts(again); again.Mode != graph.Install || got[object.Created]+got[object.Unchanged] != objects+1 ||
		got[object.Unchanged] == 0 {
		t.Errorf("the rerun, an %s: %v", again.Mode, got)
	}
}

// counts returns the number of objects for each action.
func counts(o *session.Outcome) map[object.Action]int {
	found := map[object.Action]int{}
	for _, change := range o.Report.Changes {
		found[change.Action]++
	}
	return found
}

// grant gives a service account of a namespace some rights on ConfigMaps and Leases there
// and returns how to take them away, which waits until the server knows it.
func grant(t *testing.T, namespace, name string, verbs ...string) (revoke func()) {
	t.Helper()
	client := test.Client(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, Verbs: verbs,
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "applier"}},
	}
	if _, err := client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRight(t, namespace, verbs[0], true)
	return func() {
		if err := client.RbacV1().RoleBindings(namespace).Delete(t.Context(), name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		awaitRight(t, namespace, verbs[0], false)
	}
}

// awaitRight waits until the server knows whether the service account has a right.
func awaitRight(t *testing.T, namespace, verb string, wanted bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			answer, err := test.Client(t).AuthorizationV1().SubjectAccessReviews().Create(ctx,
				&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + namespace + ":applier",
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace,
						Verb:      verb,
						Resource:  "configmaps",
					},
				}}, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed == wanted, err
		})
	if err != nil {
		t.Error("the server does not know the right:", err)
	}
}

func TestARightIsLostHalfWay(t *testing.T) {
	namespace := test.Namespace(t)
	if _, err := test.Client(t).CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "applier"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	grant(t, namespace, "read", "get", "list", "watch", "create", "update")
	revoke := grant(t, namespace, "patch", "patch")
	_, text, _ := strings.Cut(configMaps(20), "metadata: {name: NS}}\n") // the namespace exists
	release := load(t, namespace, "1.0.0", text)
	var patches atomic.Int64
	config := configOf(t, "half-way")
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":applier"
	c := sandboxtest.Connect(t, sandboxtest.Before(config, func(request *http.Request) error {
		if request.Method == http.MethodPatch && patches.Add(1) == 10 {
			revoke()
		}
		return nil
	}))
	o := options()
	o.Namespace, o.Apply.Workers = namespace, 1
	o.Apply.OnEvent = func(event apply.Event) {
		if event.Type == apply.Retrying {
			t.Errorf("the failed step is retried: %s", event.Message)
		}
	}
	outcome := session.Run(t.Context(), c, release, o)
	if outcome.Err == nil || outcome.Report == nil {
		t.Fatalf("without the right: %v", outcome.Err)
	}
	for _, named := range []string{"cannot patch resource \"configmaps\"", "in the namespace \"" + namespace + "\"",
		"(0000_20_part-", ".yaml:1, "} {
		if !strings.Contains(outcome.Err.Error(), named) {
			t.Errorf("the error does not name %s: %v", named, outcome.Err)
		}
	}
	if got := counts(outcome); got[object.Created] != 9 || got[object.Failed] == 0 {
		t.Errorf("nine objects were allowed: %v", got)
	}
	grant(t, namespace, "patch", "patch")
	outcome = session.Run(t.Context(), c, release, o)
	if got := counts(outcome); outcome.Err != nil || got[object.Created] != 11 || got[object.Unchanged] != 9 {
		t.Errorf("with the right again: %v, %v", got, outcome.Err)
	}
}
