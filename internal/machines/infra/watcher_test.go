package infra_test

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// recorder is a controller that sends its requests to a channel.
type recorder chan types.NamespacedName

func (r recorder) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case r <- request.NamespacedName:
	case <-ctx.Done():
	}
	return reconcile.Result{}, nil
}

// await waits until a machine is reconciled.
func (r recorder) await(t *testing.T, key types.NamespacedName) {
	t.Helper()
	for {
		select {
		case got := <-r:
			if got == key {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("%s is not reconciled", key)
		}
	}
}

// start runs the recorder with the Watcher of the provider that it returns.
func (r recorder) start(t *testing.T) *infra.Objects {
	t.Helper()
	var objects *infra.Objects
	shared.NewFixture(t).Manage(func(mgr ctrl.Manager) error {
		var err error
		if objects, err = infra.NewObjects(mgr); err != nil {
			return err
		}
		recording, err := controller.New("recorder", mgr, controller.Options{Reconciler: r})
		if err != nil {
			return err
		}
		objects.Watcher.Controller = recording
		return nil
	})
	return objects
}

func TestChangesOfInfrastructureWakeTheMachine(t *testing.T) {
	t.Parallel()
	crd := serve(t, "Tray", "trays")
	requests := make(recorder)
	objects := requests.start(t)
	m := machineOf(t, shared.Namespace(t), "m", `{"apiVersion": "infra.example.com/v1", "kind": "Tray", "spec": {}}`)
	mustCreate(t, objects, m)
	requests.await(t, m.NamespacedName)

	edit(t, m, func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"failureDomain": "a"} })
	requests.await(t, m.NamespacedName)

	if _, err := objects.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	requests.await(t, m.NamespacedName)

	// Its definition is deleted, and comes back.
	if err := admin(t).Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	machinetest.AwaitGone(t, admin(t), crd, client.ObjectKeyFromObject(crd))
	crd.ObjectMeta = metav1.ObjectMeta{Name: crd.Name}
	if err := admin(t).Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	machinetest.Await(t, admin(t), &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKeyFromObject(crd),
		isServed(t, "Tray"))
	mustCreate(t, objects, m)
	requests.await(t, m.NamespacedName)
}
