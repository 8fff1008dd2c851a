package apply_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// warningsOn returns our events about an object.
func warningsOn(t *testing.T, namespace, name string) string {
	t.Helper()
	found, err := test.Client(t).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": name, "reportingComponent": "runlevel"}.String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, event := range found.Items {
		fmt.Fprintf(&text, "%s %s %s: %s\n", event.InvolvedObject.Kind, event.Type, event.Reason, event.Message)
	}
	return strings.ReplaceAll(text.String(), namespace, "NS")
}

// A manager that reverts fields of the release is overruled each time, and reported.
func TestOverruledManagersAreReported(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-edit")
	files := scaledFiles(scaledKinds["Deployment"].manifest, "3")
	key := namespace + "/web"
	scales(t, namespace, files, apply.Options{})
	a.merge("Deployment.apps", key,
		`{spec: {replicas: 1, paused: true}, metadata: {annotations: {is: mine, more: mine}}}`)
	did := scales(t, namespace, files, apply.Options{})
	want := []ownership.Conflict{{Manager: "kubectl-edit", Field: "metadata.annotations.is"},
		{Manager: "kubectl-edit", Field: "spec.replicas"}}
	if diff := cmp.Diff(want, did.Changes[0].Lost); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("overruled Deployment NS/web: metadata.annotations.is (kubectl-edit), spec.replicas "+
		"(kubectl-edit)\n", did.eventText(namespace, apply.Overruled)); diff != "" {
		t.Error(diff)
	}
	if have := a.field("Deployment.apps", key, "spec", "replicas") +
		a.field("Deployment.apps", key, "spec", "paused"); have != "3true" {
		t.Error("got replicas and paused", have)
	}
	wantEvent := "Deployment Warning FieldsOverruled: release NS has other values, and has set again: " +
		"metadata.annotations.is (kubectl-edit), spec.replicas (kubectl-edit)\n"
	if diff := cmp.Diff(wantEvent, warningsOn(t, namespace, "web")); diff != "" {
		t.Error(diff)
	}
	if did := scales(t, namespace, files, apply.Options{
		Options: object.Options{Full: true},
	}); did.eventText(namespace, apply.Overruled) != "" ||
		did.Changes[0].Action != object.Unchanged {
		t.Error("reported again:", did.actions())
	}
}

// If another manager has set a field to the value in the release, it loses nothing.
func TestManagerWithTheSameValueIsNotOverruled(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-edit")
	a.create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: ` + namespace +
		`}, data: {colour: blue}}`)
	did := run(t, t.Context(), load(t, namespace, namespace, settings), apply.Options{Options: updateMode})
	if got := did.eventText(namespace, apply.Overruled, apply.Adopted); got != "" || did.Err != nil {
		t.Errorf("got error %v, events %q", did.Err, got)
	}
}

// If an event can't be written, the apply does not fail.
func TestOverruledWithoutEvents(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-edit")
	release := load(t, namespace, namespace, settings)
	if did := run(t, t.Context(), release, apply.Options{}); did.Err != nil {
		t.Fatal(did.Err)
	}
	a.merge("ConfigMap", namespace+"/settings", `{data: {colour: red}}`)
	c := connectThrough(t, func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/events") {
			return errors.New("no events here")
		}
		return nil
	})
	did := runOn(t, t.Context(), c, release, apply.Options{})
	if got := did.eventText(namespace, apply.Overruled); got != "overruled ConfigMap NS/settings: data.colour "+
		"(kubectl-edit)\n" || did.Err != nil {
		t.Errorf("got error %v, events %q", did.Err, got)
	}
}

// A path may contain the value of a list item.
func TestOverwrittenFieldsOfSecretsAreMasked(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, "kubectl-edit")
	owner := a.create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, namespace: ` + namespace + `}}`)
	uid := string(owner.GetUID())
	release := load(t, namespace, namespace, `
-- 0000_10_web_secret.yaml --
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: NS, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: `+uid+
		`, blockOwnerDeletion: false}]}
data: {password: aHVudGVy}
`)
	if did := run(t, t.Context(), release, apply.Options{}); did.Err != nil {
		t.Fatal(did.Err)
	}
	a.merge("Secret", namespace+"/keys",
		`{data: {password: bWluZQ==}, metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: `+uid+`, blockOwnerDeletion: true}]}}`)
	did := run(t, t.Context(), release, apply.Options{Options: object.Options{Full: true}})
	if diff := cmp.Diff("overruled Secret NS/keys: data.password (kubectl-edit), metadata.ownerReferences[***] "+
		"(kubectl-edit)\n", did.eventText(namespace, apply.Overruled)); diff != "" || did.Err != nil {
		t.Error(did.Err, diff)
	}
	events, _ := json.Marshal(did.events)
	all := string(events) + warningsOn(t, namespace, "keys") + fmt.Sprint(did.Changes[0].Lost)
	for _, secret := range []string{uid, "bWluZQ", "aHVudGVy"} {
		if strings.Contains(all, secret) {
			t.Errorf("the output has %s: %s", secret, all)
		}
	}
}
