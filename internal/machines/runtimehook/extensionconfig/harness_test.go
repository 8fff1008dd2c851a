package extensionconfig_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/machines/runtimehook/extensionconfig"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

var shared = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// handlers is the discovery response of an extension with all hooks of updates in place.
const handlers = `{"status":"Success","handlers":[
	{"name":"can-update-machineset","timeoutSeconds":10,"failurePolicy":"Fail","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"CanUpdateMachineSet"}},
	{"name":"update-machine","timeoutSeconds":10,"failurePolicy":"Fail","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"}},
	{"name":"can-update-machine","timeoutSeconds":10,"failurePolicy":"Fail","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"CanUpdateMachine"}}]}`

// A fixture contains a controller of ExtensionConfigs, on a cluster that has none but those of the test.
type fixture struct {
	*machinetest.Fixture
	hooks *runtimehook.InPlaceHooks
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureAs(t, shared.Sandbox(t).Config)
}

// newFixtureAs makes the controller reach the API server by a config.
func newFixtureAs(t *testing.T, config *rest.Config) *fixture {
	t.Helper()
	s := &fixture{Fixture: shared.NewFixture(t)}
	s.hooks = runtimehook.NewInPlaceHooks(s.Client, s.Client)
	shared.ManageAs(t, config, func(m ctrl.Manager) error {
		return extensionconfig.SetupWithManager(m, extensionconfig.Options{Interval: 200 * time.Millisecond})
	})
	return s
}

// newExtension runs an extension that answers Discovery with a text.
func (f *fixture) newExtension(text string) *runtimehooktest.Extension {
	f.Helper()
	e := runtimehooktest.New(f)
	e.Answer("Discovery", text)
	return e
}

// create creates an ExtensionConfig, and deletes it when the test ends.
func (f *fixture) create(name string, where runtimev1.ClientConfig,
	change ...func(*runtimev1.ExtensionConfig)) *runtimev1.ExtensionConfig {
	f.Helper()
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	config.Spec.ClientConfig = where
	for _, c := range change {
		c(config)
	}
	f.MustCreate(config)
	f.Cleanup(func() {
		if err := f.Delete(context.Background(), config); client.IgnoreNotFound(err) != nil {
			f.Error(err)
		}
	})
	return config
}

// await waits until an ExtensionConfig has a condition of its newest generation, with a message that has a text.
func (f *fixture) await(name, kind string, status metav1.ConditionStatus, text string) *runtimev1.ExtensionConfig {
	f.Helper()
	return f.awaitConfig(name, func(config *runtimev1.ExtensionConfig) bool {
		found := meta.FindStatusCondition(config.Status.Conditions, kind)
		return found != nil && found.Status == status && found.ObservedGeneration == config.Generation &&
			strings.Contains(found.Message, text)
	})
}

func (f *fixture) awaitConfig(name string, isWanted func(*runtimev1.ExtensionConfig) bool) *runtimev1.ExtensionConfig {
	f.Helper()
	return machinetest.Await(f, f, &runtimev1.ExtensionConfig{}, client.ObjectKey{Name: name}, isWanted)
}

// find returns the handler of a hook for the test's namespace, by its name, or the error.
func (f *fixture) find(hook string) string {
	f.Helper()
	found, err := f.hooks.Registry.Find(f.Context(), hook, f.Namespace)
	switch {
	case err != nil:
		return err.Error()
	case found == nil:
		return "none"
	}
	return found.Name
}

func namesOf(config *runtimev1.ExtensionConfig) []string {
	var names []string
	for _, h := range config.Status.Handlers {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return names
}
