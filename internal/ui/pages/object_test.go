package pages_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

const shop = `
-- 0000_10_config_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS}
data: {colour: blue}
-- 0000_10_config_key.yaml --
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: NS}
stringData: {password: hunter2hunter2}
-- 0000_20_web_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: registry.example/web, envFrom: [{configMapRef: {name: settings}}]}
`

func TestTheObjectPageShowsDriftWithItsManager(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	contains(t, r.object(site, "ConfigMap", "settings"), "Nothing would change: the cluster matches the release.")
	r.paint()
	if err := cluster.RecordEvent(t.Context(), test.Connect(t), cluster.ObjectEvent{
		ID: kinds.NewID(kinds.ConfigMap, r.namespace, "settings"), Reason: "Painted", IsWarning: true,
		Message: hostile + "\x1b[31m " + strings.Repeat("red", 1000),
	}); err != nil {
		t.Fatal(err)
	}
	page := r.object(site, "ConfigMap", "settings")
	contains(t, page, "Painted", "&lt;script&gt;")
	lacks(t, page, hostile, "\x1b")
	contains(t, page, "data.colour", "red", "blue", "overwrites painter",
		"changed since it was applied")
}

// paint makes another manager change the settings.
func (r *release) paint() {
	r.Helper()
	_, err := test.Client(r).CoreV1().ConfigMaps(r.namespace).Patch(r.Context(), "settings", types.MergePatchType,
		[]byte(`{"data":{"colour":"red"}}`), metav1.PatchOptions{FieldManager: "painter"})
	if err != nil {
		r.Fatal(err)
	}
}

func TestNoPageHasTheValueOfASecret(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	const value, encoded = "hunter2hunter2", "aHVudGVyMmh1bnRlcjI="
	_, err := test.Client(r).CoreV1().Secrets(r.namespace).Patch(t.Context(), "key", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+corev1.LastAppliedConfigAnnotation+`":"`+value+`"}},
			"data":{"password":"bW9yZW1vcmVtb3Jl"}}`), metav1.PatchOptions{FieldManager: "painter"})
	if err != nil {
		t.Fatal(err)
	}
	page := r.object(site, "Secret", "key")
	contains(t, page, "data.password", "***")
	for _, page := range []string{page, r.page(site, "objects")} {
		lacks(t, page, value, encoded, "bW9yZW1vcmVtb3Jl", "moremoremore")
	}
}

func TestTheObjectPageLinksToReferencesInBothDirections(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	contains(t, r.object(site, "Deployment.apps", "web"), "kind=ConfigMap&amp;name=settings",
		"spec.template.spec.containers[0].envFrom[0].configMapRef.name")
	contains(t, r.object(site, "ConfigMap", "settings"), "kind=Deployment.apps&amp;name=web",
		"0000_10_config_settings.yaml:1")
}

// hostile is text that must appear as text.
const hostile = "<script>alert(1)</script>"

func TestTheObjectPageHasTheLogOfACrashingContainer(t *testing.T) {
	r := newRelease(t)
	err := r.apply("1.0.0", `
-- 0000_20_web_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example/web
        env:
        - {name: SANDBOX_POD, value: crash}
        - {name: SANDBOX_LOG, value: "reading settings\n`+hostile+`\n\x1b[31mno such table \u202eevil"}
`, noWait)
	if err != nil {
		t.Fatal(err)
	}
	site, page := r.site(), ""
	sandboxtest.Eventually(t, "the log of the crashed container", func(context.Context) bool {
		page = r.object(site, "Deployment.apps", "web")
		return strings.Contains(page, "reading settings\n")
	})
	lacks(t, page, "  | reading settings")
	sandboxtest.Eventually(t, "the log on the page of the release", func(context.Context) bool {
		return strings.Contains(r.page(site, ""), "  | reading settings")
	})
	contains(t, page, "Container web of pod web-", "before it was restarted",
		`&lt;script&gt;alert(1)&lt;/script&gt;`, `\x1b[31mno such table \u202eevil`, "ScalingReplicaSet")
	lacks(t, page, hostile, "\x1b", "\u202e")

	site.Allow = func(_ context.Context, right authorizationv1.ResourceAttributes) error {
		if right.Subresource == "log" {
			return fmt.Errorf("%w to get pods/log", pages.ErrForbidden)
		}
		return nil
	}
	sandboxtest.Eventually(t, "the missing right", func(context.Context) bool {
		page = r.object(site, "Deployment.apps", "web")
		return strings.Contains(page, "not allowed to get pods/log")
	})
	for _, page := range []string{page, r.page(site, "")} {
		lacks(t, page, "  | reading settings", ">reading settings")
	}
}

func TestTheObjectPageExplainsAHeldDelete(t *testing.T) {
	r := newRelease(t)
	const settings = `
-- 0000_10_config_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, finalizers: [example.com/hold]%s}
`
	r.must("1.0.0", strings.ReplaceAll(settings, "%s", ""))
	t.Cleanup(func() {
		_, _ = test.Client(t).CoreV1().ConfigMaps(r.namespace).Patch(context.Background(), "settings",
			types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	deletes := `, annotations: {release.openshift.io/delete: "true"}`
	if err := r.apply("1.0.1", strings.ReplaceAll(settings, "%s", deletes), noWait); err != nil {
		t.Fatal(err)
	}
	page := r.object(r.site(), "ConfigMap", "settings")
	contains(t, page, "being deleted", "example.com/hold", "pending")
	lacks(t, page, "Nothing would change", "An apply would do this")
}

func TestAnObjectThatDoesNotExistHasAPage(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	err := test.Client(t).CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	site := r.site()
	contains(t, r.object(site, "ConfigMap", "settings"), "missing", "The cluster does not have it.",
		"data:\n  colour: blue")
	page := r.object(site, "Widget.example.com", "w")
	contains(t, page, "The release does not have it.")
	lacks(t, page, "References", "Log of a failing container")
	// Names of RBAC may have the characters of a selector.
	contains(t, r.object(site, "Role.rbac.authorization.k8s.io", "a=b,c"), "There are no events.")
}

// The server lists events by their names, and a namespace may have thousands.
func TestTheObjectPageHasTheEventsOfItsPodsAmongMany(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	pods, err := test.Client(t).CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal("pods of the Deployment:", len(pods.Items), err)
	}
	group, client := errgroup.Group{}, test.Client(t).CoreV1().Events(r.namespace)
	group.SetLimit(20)
	for i := range 550 {
		name, pod, reason := fmt.Sprintf("a-%d", i), "other", "OfAnotherPod"
		if i == 0 {
			name, pod, reason = "z", pods.Items[0].Name, "Newest"
		}
		group.Go(func() error {
			_, err := client.Create(t.Context(), &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: name},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: r.namespace, Name: pod},
				Reason:         reason, Type: corev1.EventTypeWarning, LastTimestamp: metav1.Now(),
			}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	events := section(r.object(r.site(), "Deployment.apps", "web"), "events")
	contains(t, events, "Warning: Newest", "Pod "+pods.Items[0].Name+": ")
	lacks(t, events, "OfAnotherPod")
}

func TestTheObjectPageNamesMissingRights(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	r.paint()
	reads := rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"", "coordination.k8s.io"},
		Resources: []string{"configmaps", "leases"}}
	site := r.site(test.Account(t, r.namespace, "reader", reads))
	var page string
	sandboxtest.Eventually(t, "the rights of the user", func(context.Context) bool {
		page = r.object(site, "ConfigMap", "settings")
		return strings.Contains(page, "colour: red")
	})
	contains(t, page, "this user may not patch configmaps settings: a dry run needs this right",
		"this user may not list events in namespace "+r.namespace)
	contains(t, r.object(site, "Secret", "key"), "this user may not get Secret "+r.namespace+"/key")
	contains(t, r.object(site, "Deployment.apps", "web"), "this user may not get Deployment")

	inCluster := r.site()
	inCluster.Allow = func(_ context.Context, right authorizationv1.ResourceAttributes) error {
		if right.Resource == "namespaces" && right.Namespace == "" {
			return fmt.Errorf("%w to %s namespaces", pages.ErrForbidden, right.Verb)
		}
		if right.Resource == "deployments" || right.Resource == "events" {
			return fmt.Errorf("%w to %s %s.%s", pages.ErrForbidden, right.Verb, right.Resource, right.Group)
		}
		return nil
	}
	page = r.object(inCluster, "Deployment.apps", "web")
	contains(t, page, "not allowed to get deployments.apps")
	lacks(t, page, "registry.example")
	page = r.object(inCluster, "Namespace", r.namespace) // the query has a namespace, too
	contains(t, page, "not allowed to get namespaces")
	lacks(t, page, "kubernetes.io/metadata.name")
	page = r.object(inCluster, "ConfigMap", "settings")
	contains(t, page, "colour: red", "not allowed to list events.")
}

func TestASlowDryRunDoesNotHoldThePage(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	r.paint()
	slow := sandboxtest.Before(test.Sandbox(t).Config, func(request *http.Request) error {
		if request.Method == http.MethodPatch {
			<-request.Context().Done()
		}
		return request.Context().Err()
	})
	began := time.Now()
	contains(t, r.object(r.site(slow), "ConfigMap", "settings"), "has not answered the dry run within 3s",
		"colour: red")
	if took := time.Since(began); took > 10*time.Second {
		t.Error("the page took", took)
	}
}

func TestAnExportHasLinksToFilesAndNoForms(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	site.Find = func(address string) string {
		if strings.Contains(address, "Secret") {
			return "" // it is not in the export
		}
		return "files" + address
	}
	contains(t, r.object(site, "Deployment.apps", "web"), `href="files/releases/`+r.namespace)
	page := r.page(site, "objects")
	contains(t, page, ">key</td>", ">settings</a></td>")
	lacks(t, page, "<form")
	lacks(t, r.page(site, "history"), "<form")
}
