package cluster_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var testbed = sandboxtest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

var (
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	jobs        = batchv1.SchemeGroupVersion.WithResource("jobs")
	definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
)

func TestApplyReportsWhetherItCreatedTheObject(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	config := configMap(namespace, "config", map[string]any{"greeting": "grüß Gott ☃"})
	for _, wanted := range []bool{true, false} {
		applied := sandboxtest.ApplyObject(t, c, config)
		if applied.Created != wanted {
			t.Errorf("made by this: %t, want %t", applied.Created, wanted)
		}
		if got, _, _ := unstructured.NestedString(applied.Object.Object, "data", "greeting"); got != "grüß Gott ☃" {
			t.Errorf("the returned object has greeting %q", got)
		}
	}
	delete(config.Object, "data")
	applied := sandboxtest.ApplyObject(t, c, config)
	if _, exists, _ := unstructured.NestedMap(applied.Object.Object, "data"); exists {
		t.Errorf("a field that was removed from the manifest still exists: %v", applied.Object)
	}
}

func TestApplyTakesFieldsFromOthers(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"key": "theirs"}}
	if _, err := c.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), other,
		metav1.CreateOptions{FieldManager: "other-manager"}); err != nil {
		t.Fatal(err)
	}
	config := configMap(namespace, "config", map[string]any{"key": "ours"})
	applied := sandboxtest.ApplyObject(t, c, config)
	if got, _, _ := unstructured.NestedString(applied.Object.Object, "data", "key"); got != "ours" {
		t.Errorf("the field is %q", got)
	}
}

func TestCreateKeepsAnExistingObject(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	config := configMap(namespace, "config", map[string]any{"key": "first"})
	kind := find(t, c, config)
	if made, err := c.Create(t.Context(), kind, config, cluster.NoForce); err != nil || !made.Created {
		t.Errorf("created: %t, %v", made.Created, err)
	}
	if made, err := c.Create(t.Context(), kind, configMap(namespace, "config", nil),
		cluster.NoForce); !apierrors.IsAlreadyExists(err) || made.Created {
		t.Errorf("created again: %t, %v", made.Created, err)
	}
}

func TestWarningsOfTheServerComeWithTheirCall(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	establish(t, c, `
  group: warnings.example.com
  scope: Namespaced
  names: {kind: Gauge, plural: gauges}
  versions:
  - {name: v2, served: true, storage: true, schema: &any {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: false, deprecated: true, deprecationWarning: "write v2 of Gauge", schema: *any}
`)
	for version, wanted := range map[string]string{"v1": "write v2 of Gauge", "v2": ""} {
		gauge := sandboxtest.ParseObject(t,
			"apiVersion: warnings.example.com/"+version+"\nkind: Gauge\nmetadata: {name: g, namespace: "+namespace+"}")
		if got := strings.Join(sandboxtest.ApplyObject(t, c, gauge).Warnings, "; "); got != wanted {
			t.Errorf("%s: warnings %q, want %q", version, got, wanted)
		}
	}
}

func TestDeleteSparesAnotherObjectOfThatName(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	config := configMap(namespace, "config", nil)
	kind := find(t, c, config)
	applied := sandboxtest.ApplyObject(t, c, config)
	for _, uid := range []types.UID{"", "00000000-0000-0000-0000-000000000000"} {
		if err := c.Delete(t.Context(), kind, namespace, "config", uid); !apierrors.IsConflict(err) {
			t.Errorf("delete with UID %q: got error %v, want a conflict", uid, err)
		}
	}
	head, err := c.GetMetadata(t.Context(), kind, namespace, "config")
	if err != nil || head.UID != applied.Object.GetUID() || head.DeletionTimestamp != nil {
		t.Fatalf("the object has changed: %+v, error %v", head, err)
	}
	if err := c.Delete(t.Context(), kind, namespace, "config", head.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetMetadata(t.Context(), kind, namespace, "config"); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: got error %v", err)
	}
}

// A reader of an audit log without bodies must not take it for a delete.
func TestDryRunDeleteHasDryRunInItsURL(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	role := sandboxtest.ParseObject(t,
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+namespace+"}")
	for _, object := range []*unstructured.Unstructured{configMap(namespace, "a", nil), role} {
		kind, applied := find(t, c, object), sandboxtest.ApplyObject(t, c, object)
		asked := ""
		other := sandboxtest.Connect(t,
			sandboxtest.Before(testbed.Sandbox(t).Config, func(request *http.Request) error {
				asked = request.Method + " " + request.URL.RawQuery
				return nil
			}))
		err := other.DryRunDelete(t.Context(), kind, object.GetNamespace(), object.GetName(), applied.Object.GetUID())
		if err != nil || asked != "DELETE dryRun=All" {
			t.Errorf("request %s: got error %v", asked, err)
		}
		if err := other.DryRunDelete(t.Context(), kind, object.GetNamespace(), object.GetName(),
			"other"); !apierrors.IsConflict(err) {
			t.Errorf("for an object with another UID: got error %v, want a conflict", err)
		}
		if head, err := c.GetMetadata(t.Context(), kind, object.GetNamespace(), object.GetName()); err != nil ||
			head.DeletionTimestamp != nil {
			t.Errorf("the object has changed: %+v, error %v", head, err)
		}
	}
}

// The API's own default for Jobs would leave the pods behind.
func TestDeleteOfAJobDeletesItsPods(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	job := sandboxtest.ParseObject(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: work, namespace: `+namespace+`}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: work, image: registry.example/work}]}}}`)
	kind, applied := find(t, c, job), sandboxtest.ApplyObject(t, c, job)
	sandboxtest.Await(t, testbed, jobs, namespace+"/work", func(j *batchv1.Job) bool {
		return j != nil && j.Status.Active == 1
	})
	list, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pods, %v", len(list.Items), err)
	}
	if err := c.Delete(t.Context(), kind, namespace, "work", applied.Object.GetUID()); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, testbed, pods, namespace+"/"+list.Items[0].Name, func(p *corev1.Pod) bool { return p == nil })
}

// Answers are dated with whole seconds, and by the server's clock.
func TestNowFollowsTheServersClock(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := dated(t, func() time.Time { return time.Now().Add(wrong) })
			ask(c, t.Context())
			if off := c.Now().Sub(time.Now().Add(wrong)).Abs(); off > time.Minute {
				t.Errorf("the clock is off by %s", off)
			}
		})
	}
	t.Run("back and forth", func(t *testing.T) {
		var wrong time.Duration
		c := dated(t, func() time.Time { return time.Now().Add(wrong) })
		for _, wrong = range []time.Duration{time.Hour, 0, -time.Hour, 0} {
			ask(c, t.Context())
		}
		if off := time.Until(c.Now()).Abs(); off > time.Minute {
			t.Errorf("the clock is off by %s", off)
		}
	})
	for name, jitter := range map[string]time.Duration{"a second old": -time.Second, "just now": 0} {
		t.Run(name, func(t *testing.T) {
			c := dated(t, func() time.Time { return time.Now().Add(jitter) })
			ask(c, t.Context())
			if before, now, after := time.Now(), c.Now(), time.Now(); now.Before(before) || now.After(after) {
				t.Errorf("%s is not between %s and %s", now, before, after)
			}
		})
	}
}

// dated connects to a server of the given time, which has nothing.
func dated(t *testing.T, now func() time.Time) *cluster.Cluster {
	t.Helper()
	return sandboxtest.Connect(t,
		&rest.Config{Host: "http://cluster.example",
			Transport: sandboxtest.RoundTripper(func(request *http.Request) (*http.Response, error) {
				header := http.Header{"Date": {now().UTC().Format(http.TimeFormat)}}
				return &http.Response{
						StatusCode: http.StatusNotFound,
						Header:     header,
						Body:       http.NoBody,
						Request:    request,
					},
					nil
			})})
}

func ask(c *cluster.Cluster, ctx context.Context) {
	_, _ = c.GetMetadata(ctx, cluster.Resource{GroupVersionResource: pods}, "", "any") // it is not there
}

func find(t *testing.T, c *cluster.Cluster, object *unstructured.Unstructured) cluster.Resource {
	t.Helper()
	kind, err := c.Find(t.Context(), object.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

func configMap(namespace, name string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"data":     data,
	}}
}

// establish makes a definition with this spec, has the cluster learn it, and has it
// deleted after the test.
func establish(t *testing.T, c *cluster.Cluster, spec string) *unstructured.Unstructured {
	t.Helper()
	defined := define(t, c, spec)
	sandboxtest.Await(t, testbed, definitions, defined.GetName(),
		hasCondition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue))
	c.Learn(defined)
	return defined
}

func define(t *testing.T, c *cluster.Cluster, spec string) *unstructured.Unstructured {
	t.Helper()
	definition := sandboxtest.ParseObject(t,
		"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:"+spec)
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	definition.SetName(plural + "." + group)
	applied := sandboxtest.ApplyObject(t, c, definition)
	t.Cleanup(func() { // the test's own context has ended by now
		_ = c.Objects.Resource(definitions).Delete(context.Background(), definition.GetName(), metav1.DeleteOptions{})
	})
	return applied.Object
}

func hasCondition(name apiextensionsv1.CustomResourceDefinitionConditionType,
	status apiextensionsv1.ConditionStatus) func(*apiextensionsv1.CustomResourceDefinition) bool {
	return func(definition *apiextensionsv1.CustomResourceDefinition) bool {
		if definition == nil {
			return false
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == name && condition.Status == status {
				return true
			}
		}
		return false
	}
}

// A caller must know how long to wait, and be free to do something else meanwhile.
func TestRequestsWithRetryAfterAreNotRetried(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	}))
	defer server.Close()
	c, err := cluster.Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	kind := cluster.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Kind:                 "ConfigMap",
		Namespaced:           true,
	}
	config := configMap("default", "config", nil)
	_, applyError := c.Apply(t.Context(), kind, config, cluster.Force)
	_, createError := c.Create(t.Context(), kind, config, cluster.NoForce)
	_, tryError := c.DryRunPatch(t.Context(), kind, "default", "config", []byte("[]"))
	_, amendError := c.Patch(t.Context(), kind, "default", "config", []byte("[]"))
	for call, err := range map[string]error{
		"apply": applyError, "create": createError, "delete": c.Delete(t.Context(), kind, "default", "config", "uid"),
		"amend": amendError, "try to amend": tryError,
		"try to delete": c.DryRunDelete(t.Context(), kind, "default", "config", "uid"),
	} {
		if seconds, hasDelay := apierrors.SuggestsClientDelay(err); !hasDelay || seconds != 3600 ||
			!apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: got error %v, with a delay of %d s: %t", call, err, seconds, hasDelay)
		}
	}
	if asked != 6 {
		t.Errorf("six calls were %d requests", asked)
	}
}
