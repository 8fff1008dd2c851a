package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A user deletes a create-only object after the run has found it, and before the run reaches it.
func TestCreateOnlyObjectDeletedDuringTheRunIsRecreated(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, `
-- 0000_10_web_10_first.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: NS}}
-- 0000_10_web_20_once.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: once, namespace: NS, annotations: {release.openshift.io/create-only: "true"}}}
`)
	if did := run(t, t.Context(), release, apply.Options{}); did.Err != nil {
		t.Fatal(did.Err)
	}
	full := object.Options{Full: true}
	did := run(t, t.Context(), release, apply.Options{Options: full, OnEvent: func(event apply.Event) {
		if event.Type != apply.Applied || event.Object.Name != "first" {
			return
		}
		if err := test.Client(t).CoreV1().ConfigMaps(namespace).Delete(t.Context(), "once",
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}})
	want := "unchanged ConfigMap " + namespace + "/first\ncreated ConfigMap " + namespace + "/once\n"
	if diff := cmp.Diff(want, did.actions()); diff != "" || did.Err != nil {
		t.Error(did.Err, diff)
	}
}
