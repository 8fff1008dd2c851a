package runtimehook_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// configs are the ExtensionConfigs of a cluster. Package extensionconfig tests them with an API server.
type configs []*runtimev1.ExtensionConfig

func (c configs) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return &meta.NoKindMatchError{}
}

func (c configs) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, config := range c {
		found := list.(*runtimev1.ExtensionConfigList)
		found.Items = append(found.Items, *config.DeepCopy())
	}
	return nil
}

// newHooks returns the hooks of ExtensionConfigs, whose cache does not lag.
func newHooks(all ...*runtimev1.ExtensionConfig) *runtimehook.InPlaceHooks {
	return runtimehook.NewInPlaceHooks(configs(all), configs(all))
}

// A scene is a discovered extension, and the hooks that find it.
type scene struct {
	*testing.T
	*runtimehooktest.Extension
	config *runtimev1.ExtensionConfig
	hooks  *runtimehook.InPlaceHooks
}

// newScene runs an extension whose certificate is for the names.
func newScene(t *testing.T, names ...string) *scene {
	t.Helper()
	s := &scene{T: t, Extension: runtimehooktest.New(t, names...)}
	s.config = newConfig("ext", s.ClientConfig())
	s.hooks = newHooks(s.config)
	return s
}

// newConfig returns an ExtensionConfig as a controller leaves it that has discovered all hooks.
func newConfig(name string, where runtimev1.ClientConfig) *runtimev1.ExtensionConfig {
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{
		Name:       name,
		UID:        types.UID("uid-" + name),
		Generation: 1,
	}}
	config.Spec.ClientConfig = where
	config.Status.Conditions = []metav1.Condition{{
		Type: runtimev1.ExtensionConfigDiscoveredCondition, Status: metav1.ConditionTrue, ObservedGeneration: 1,
	}}
	for _, hook := range []string{runtimehook.CanUpdateMachineSet, runtimehook.CanUpdateMachine,
		runtimehook.UpdateMachine} {
		config.Status.Handlers = append(config.Status.Handlers, runtimev1.ExtensionHandler{
			Name: map[string]string{
				"CanUpdateMachineSet": "can-update-machineset",
				"CanUpdateMachine":    "can-update-machine",
				"UpdateMachine":       "update-machine",
			}[hook] + "." + name,
			RequestHook:    runtimev1.GroupVersionHook{APIVersion: hooksv1.GroupVersion.String(), Hook: hook},
			TimeoutSeconds: 30, FailurePolicy: runtimev1.FailurePolicyFail,
		})
	}
	return config
}

// setPolicy sets the failure policy of all handlers.
func (s *scene) setPolicy(policy runtimev1.FailurePolicy) {
	for i := range s.config.Status.Handlers {
		s.config.Status.Handlers[i].FailurePolicy = policy
	}
}

// setTimeout sets the time-out of all handlers.
func (s *scene) setTimeout(seconds int32) {
	for i := range s.config.Status.Handlers {
		s.config.Status.Handlers[i].TimeoutSeconds = seconds
	}
}

// A recording is a call of Cluster API's own controllers, as it went over the wire.
type recording struct {
	Path     string          `json:"path"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

// readRecording reads a call that was recorded, and its request.
func readRecording(t *testing.T, name string, request any) recording {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(r.Request, request); err != nil {
		t.Fatal(err)
	}
	return r
}

// newSetRequest returns the request of a change of which only the size of the infrastructure differs.
func newSetRequest(t *testing.T) *hooksv1.CanUpdateMachineSetRequest {
	t.Helper()
	request := &hooksv1.CanUpdateMachineSetRequest{}
	readRecording(t, "canupdatemachineset", request)
	current := request.Current.MachineSet.Spec.Template.Spec
	request.Desired.MachineSet.Spec.Template.Spec.FailureDomain = current.FailureDomain
	return request
}

func newUpdateRequest(t *testing.T) *hooksv1.UpdateMachineRequest {
	t.Helper()
	request := &hooksv1.UpdateMachineRequest{}
	readRecording(t, "updatemachine", request)
	return request
}

// compareJSON compares two texts of JSON.
func compareJSON(t *testing.T, want, got string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(want), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got), &b); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
