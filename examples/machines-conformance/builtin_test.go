package conformance_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(shared.Run(m))
}

// builtIn returns an object of a built-in provider.
func builtIn(kind, namespace string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "spec": map[string]any{},
	}}
	object.SetNamespace(namespace)
	return object
}

func TestKwokMachinesConform(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(kwok.SetupWithManager)
	check(t, provider{
		client:   f,
		object:   builtIn("KwokMachine", f.Namespace),
		patience: 2 * time.Minute,
		joins:    true,
	})
}

func TestExternalMachinesConform(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(external.SetupWithManager)
	go provide(t.Context(), f, f.Namespace)
	check(t, provider{
		client:   f,
		object:   builtIn("ExternalMachine", f.Namespace),
		patience: 2 * time.Minute,
	})
}

// provide fulfils the requests in the condition Ready of ExternalMachines, as a person or a script would.
func provide(ctx context.Context, c client.Client, namespace string) {
	_ = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		var machines v1alpha1.ExternalMachineList
		if err := c.List(ctx, &machines, client.InNamespace(namespace)); err != nil {
			return false, nil
		}
		for _, machine := range machines.Items {
			text := `{"spec": {"providerID": "rack://` + machine.Name +
				`", "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}}`
			if machine.DeletionTimestamp != nil {
				text = `{"spec": {"terminated": true}}`
			}
			if machine.Spec.ProviderID == "" || machine.DeletionTimestamp != nil {
				_ = c.Patch(ctx, &machine, client.RawPatch("application/merge-patch+json", []byte(text))) // tried again
			}
		}
		return false, nil
	})
}

func TestIncompleteObjects(t *testing.T) {
	for name, c := range map[string]struct{ object, want string }{
		"all is there": {
			`{"metadata": {"finalizers": ["example.com/machine"]}, "spec": {"providerID": "rack://7"},
			"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}}`, "",
		},
		"no addresses": {`{"metadata": {"finalizers": ["example.com/machine"]}, "spec": {"providerID": "rack://7"}}`,
			""},
		"no identity":  {`{"metadata": {"finalizers": ["example.com/machine"]}}`, "spec.providerID"},
		"no finalizer": {`{"spec": {"providerID": "rack://7"}}`, "no finalizer"},
		"an address without a type": {
			`{"metadata": {"finalizers": ["example.com/machine"]}, "spec": {"providerID": "rack://7"}, "status": {"addresses": [{"address": "10.0.0.7"}]}}`,
			"write the type",
		},
	} {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(c.object), &object.Object); err != nil {
			t.Fatal(err)
		}
		problems := problemsOf(object)
		if c.want == "" && len(problems) > 0 ||
			c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.want)) {
			t.Errorf("%s: %q", name, problems)
		}
	}
}
