package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// The API server may be killed while a run waits. The run continues, and observes changes that happened during the
// outage.
func TestServerIsKilledWhileARunWaits(t *testing.T) {
	t.Parallel()
	own := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	c, err := cluster.Connect(own.Config)
	must(t, err)
	const namespace = "default"
	release := load(t, "outage", namespace, last)
	isKilled := false
	observer := &eventObserver{onMessage: func(_, text string) {
		if strings.HasPrefix(text, "waiting") && !isKilled {
			isKilled = true
			must(t, own.Kill(sandbox.APIServer))
			must(t, own.Resume(t.Context(), sandbox.APIServer))
			merge(t, c, configMaps, "default/last", `{"data":{"state":"on"}}`)
		}
	}}
	did := runOn(t, t.Context(), c, release, apply.Options{ReportWaits: quickly, OnEvent: observer.observe(namespace)})
	if did.Err != nil || !isKilled {
		t.Errorf("got error %v; last messages: %s", did.Err, observer.last)
	}
}

// A restarted API server refuses all requests until it has read its roles, although the user has the rights. No object
// fails because of that.
func TestServerThatHasNotReadItsRoles(t *testing.T) {
	t.Parallel()
	own := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	var writes atomic.Int64
	var resumed sync.WaitGroup
	c := sandboxtest.Connect(t, sandboxtest.Before(asDeployer(t, own.Config), func(r *http.Request) error {
		if r.Method == http.MethodPatch && writes.Add(1) == 5 {
			must(t, own.Kill(sandbox.APIServer))
			resumed.Go(func() { must(t, own.Resume(context.Background(), sandbox.APIServer)) })
		}
		return nil
	}))
	var files strings.Builder
	for i := range 60 {
		fmt.Fprintf(&files, "-- 0000_10_n%d_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: n%d, "+
			"namespace: NS}}\n", i, i)
	}
	did := runOn(t, t.Context(), c, load(t, "roles", "default", files.String()), apply.Options{Options: installMode})
	resumed.Wait()
	if did.Err != nil {
		t.Error(did.Err)
	}
}

// asDeployer returns the configuration of a user whose rights come from a ClusterRole. Administrators of Kubernetes
// have theirs without a role.
func asDeployer(t *testing.T, admin *rest.Config) *rest.Config {
	t.Helper()
	c, err := cluster.Connect(admin)
	must(t, err)
	_, err = c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "deployer"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "deployer"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	must(t, err)
	config := rest.CopyConfig(admin)
	config.Impersonate.UserName = "deployer"
	sandboxtest.Eventually(t, "the role is known", func(ctx context.Context) bool {
		deployer, err := cluster.Connect(config)
		must(t, err)
		_, err = deployer.Client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err == nil
	})
	return config
}

// restricted connects as a user who may write the record, and has the rights of the rules in a namespace.
func restricted(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) *cluster.Cluster {
	t.Helper()
	client, name := test.Client(t).RbacV1(), "somebody-"+namespace
	record := []rbacv1.PolicyRule{may("", "configmaps", "create"), may("", "configmaps", "get", "update")}
	record[1].ResourceNames = []string{"runlevel-release-" + namespace}
	subject := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}}
	_, err := client.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: record}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = client.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = client.ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	_, err = client.Roles(namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	must(t, err)
	config := rest.CopyConfig(test.Sandbox(t).Config)
	config.Impersonate.UserName = name
	c, err := cluster.Connect(config)
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Rights in a namespace are enough to wait for its objects.
func TestWaitingTakesTheRightsOfANamespace(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	c := restricted(t, namespace, may("", "configmaps", "*"))
	owner := connect(t)
	release := load(t, namespace, namespace, last)
	observer := &eventObserver{onMessage: func(_, text string) {
		if text == "created" {
			merge(t, owner, configMaps, namespace+"/last", `{"data":{"state":"on"}}`)
		}
	}}
	did := runOn(t, t.Context(), c, release, apply.Options{ReportWaits: quickly, OnEvent: observer.observe(namespace)})
	if did.Err != nil {
		t.Errorf("got error %v; last messages: %s", did.Err, observer.last)
	}
}

// If the user may not watch, the run reports the missing right at once, and continues when the right is granted.
func TestWaitReportsTheMissingRight(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	c := restricted(t, namespace, may("", "configmaps", "get", "create", "patch", "update"))
	release := load(t, namespace, namespace, last)
	owner := test.Client(t).RbacV1().Roles(namespace)
	isGranted := false
	observer := &eventObserver{onMessage: func(_, text string) {
		if text != "waiting: the state of it is unknown, since it may not be watched: allow this user to list and "+
			"watch configmaps in namespace NS" || isGranted {
			return
		}
		isGranted = true
		role, err := owner.Get(t.Context(), "somebody-"+namespace, metav1.GetOptions{})
		if err == nil {
			role.Rules = []rbacv1.PolicyRule{may("", "configmaps", "*")}
			_, err = owner.Update(t.Context(), role, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
		merge(t, connect(t), configMaps, namespace+"/last", `{"data":{"state":"on"}}`)
	}}
	did := runOn(t, t.Context(), c, release,
		apply.Options{ReportWaits: time.Hour, OnEvent: observer.observe(namespace)})
	if did.Err != nil || !isGranted {
		t.Errorf("got error %v; last messages: %s", did.Err, observer.last)
	}
}
