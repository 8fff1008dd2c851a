package pages_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

func TestTheMachinesAndTheirHolders(t *testing.T) {
	r := newRelease(t)
	contains(t, render(t, r.site(), "/machines"), "The cluster serves no machines.")
	definition, err := os.ReadFile("../../../manifests/0000_30_machine-controller_01_machines.crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Apply(t, test.Connect(t), string(definition))
	var page string
	sandboxtest.Eventually(t, "machines are served", func(context.Context) bool {
		page = render(t, r.site(), "/machines")
		return strings.Contains(page, "The cluster has no machines.")
	})
	admin := test.Connect(t)
	sandboxtest.Apply(t, admin, `
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: web-4, namespace: `+r.namespace+`, finalizers: [machine.machine.openshift.io]}
spec: {lifecycleHooks: {preTerminate: [{name: MigrateDatabase, owner: "`+hostile+`"}]}}
`)
	resource, err := admin.FindKind(t.Context(), overview.Kind)
	if err != nil {
		t.Fatal(err)
	}
	machines := admin.In(resource, r.namespace)
	if _, err := machines.Patch(t.Context(), "web-4", types.MergePatchType, []byte(`{"status":{"conditions":[
		{"type":"Drained","status":"True","lastTransitionTime":"2026-11-23T11:55:00Z"}]}}`), metav1.PatchOptions{},
		"status"); err != nil {
		t.Fatal(err)
	}
	if err := machines.Delete(t.Context(), "web-4", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page = render(t, r.site(), "/machines")
	contains(t, page, "web-4", "Deleting", "MigrateDatabase", "&lt;script&gt;", "What helps", `class="command"`,
		"/object?kind=Machine.machine.openshift.io&amp;name=web-4")
	lacks(t, page, hostile)
	contains(t, render(t, r.site(), "/object?kind=Machine.machine.openshift.io&name=web-4&namespace="+r.namespace),
		"it is being deleted", "MigrateDatabase", "lifecycleHooks:")

	inCluster := r.site()
	inCluster.Allow = func(_ context.Context, right authorizationv1.ResourceAttributes) error {
		return fmt.Errorf("%w to %s %s.%s", pages.ErrForbidden, right.Verb, right.Resource, right.Group)
	}
	contains(t, render(t, inCluster, "/machines"), "not allowed to list machines.machine.openshift.io")
}
