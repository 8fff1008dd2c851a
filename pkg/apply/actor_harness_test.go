package apply_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// An actor writes to the cluster as a tool or a controller would. Objects are called
// KIND[.GROUP] and [NAMESPACE/]NAME.
type actor struct {
	*cluster.Cluster
	t       testing.TB
	manager string
}

func act(t testing.TB, manager string) actor { return actor{connect(t), t, manager} }

// place returns the client for an object, and its name.
func (a actor) place(kind, key string) (dynamic.ResourceInterface, string) {
	a.t.Helper()
	resource, err := a.FindKind(a.t.Context(), schema.ParseGroupKind(kind))
	if err != nil {
		a.t.Fatal(err)
	}
	namespace, name, isNamespaced := strings.Cut(key, "/")
	if !isNamespaced {
		namespace, name = "", key
	}
	return a.In(resource, namespace), name
}

// create creates an object.
func (a actor) create(text string) *unstructured.Unstructured {
	a.t.Helper()
	object := sandboxtest.ParseObject(a.t, text)
	place, _ := a.place(object.GroupVersionKind().GroupKind().String(), object.GetNamespace()+"/"+object.GetName())
	made, err := place.Create(a.t.Context(), object, metav1.CreateOptions{FieldManager: a.manager})
	if err != nil {
		a.t.Fatal(err)
	}
	return made
}

// kubectlApply applies an object for the first time, by client-side apply.
func (a actor) kubectlApply(text string) {
	a.t.Helper()
	object := sandboxtest.ParseObject(a.t, text)
	last, err := json.Marshal(object.Object)
	if err != nil {
		a.t.Fatal(err)
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["kubectl.kubernetes.io/last-applied-configuration"] = string(last)
	object.SetAnnotations(annotations)
	all, _ := yaml.Marshal(object.Object)
	a.create(string(all))
}

// merge changes an object by a merge patch, as JSON or YAML.
func (a actor) merge(kind, key, patch string, subresource ...string) {
	a.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		a.t.Fatal(err)
	}
	place, name := a.place(kind, key)
	if _, err := place.Patch(a.t.Context(), name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: a.manager}, subresource...); err != nil {
		a.t.Error(err)
	}
}

// scale sets the number of replicas, as autoscalers do.
func (a actor) scale(kind, key string, replicas int) {
	a.t.Helper()
	a.merge(kind, key, fmt.Sprintf("{spec: {replicas: %d}}", replicas), "scale")
}

// live returns the present object.
func (a actor) live(kind, key string) *unstructured.Unstructured {
	a.t.Helper()
	place, name := a.place(kind, key)
	object, err := place.Get(a.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return object
}

// field returns a field of an object as JSON; null if the object does not have it.
func (a actor) field(kind, key string, path ...string) string {
	a.t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(a.live(kind, key).Object, path...)
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// owners returns the managers of a field, whose path is written as in managedFields.
func (a actor) owners(kind, key string, path ...string) string {
	a.t.Helper()
	var names []string
	for _, entry := range a.live(kind, key).GetManagedFields() {
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			a.t.Fatal(err)
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(fields, path...); found {
			names = append(names, entry.Manager)
		}
	}
	return strings.Join(names, ", ")
}

// eventText returns the events of some types, a line for each.
func (a applied) eventText(namespace string, eventTypes ...apply.EventType) string {
	var text strings.Builder
	for _, event := range a.events {
		for _, eventType := range eventTypes {
			if event.Type == eventType {
				line := fmt.Sprintf("%s %s: %s\n", event.Type, event.Object, event.Message)
				text.WriteString(strings.ReplaceAll(line, namespace, "NS"))
			}
		}
	}
	return text.String()
}

// connectBy returns a connection whose requests go to a handler, which may pass them on.
func connectBy(t testing.TB,
	tap func(request *http.Request, send http.RoundTripper) (*http.Response, error)) *cluster.Cluster {
	t.Helper()
	return sandboxtest.Connect(t, sandboxtest.Tap(test.Sandbox(t).Config, tap))
}

// answered returns the response of a server that refuses a request.
func answered(request *http.Request, status *apierrors.StatusError) *http.Response {
	status.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, _ := json.Marshal(status.ErrStatus)
	return &http.Response{
		StatusCode: int(status.ErrStatus.Code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}
}

// patch changes an object by a JSON patch, as JSON or YAML.
func (a actor) patch(kind, key, patch string) {
	a.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		a.t.Fatal(err)
	}
	place, name := a.place(kind, key)
	if _, err := place.Patch(a.t.Context(), name, types.JSONPatchType, body,
		metav1.PatchOptions{FieldManager: a.manager}); err != nil {
		a.t.Error(err)
	}
}
