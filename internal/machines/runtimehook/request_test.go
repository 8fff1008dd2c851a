package runtimehook_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// The calls are those that Cluster API's own controllers made, to the byte of their JSON values.
func TestCallsAreThoseOfClusterAPI(t *testing.T) {
	t.Run("Discovery", func(t *testing.T) {
		s := newScene(t)
		r := s.play("discovery", &hooksv1.DiscoveryRequest{})
		handlers, err := (&runtimehook.Client{}).Discover(t.Context(), s.config)
		if err != nil || len(handlers) != 3 {
			t.Fatal(handlers, err)
		}
		for i, want := range []string{"can-update-machineset.ext", "update-machine.ext", "can-update-machine.ext"} {
			if got := handlers[i]; got.Name != want || got.TimeoutSeconds != 10 || got.FailurePolicy != "Fail" {
				t.Errorf("%+v", got)
			}
		}
		s.checkCall(r)
	})
	t.Run("CanUpdateMachineSet", func(t *testing.T) {
		s, request := newScene(t), &hooksv1.CanUpdateMachineSetRequest{}
		r := s.play("canupdatemachineset", request)
		decision, err := s.hooks.CanUpdateMachineSet(t.Context(), request)
		if err != nil || !decision.CanUpdate || decision.Extension != "can-update-machineset.ext" {
			t.Fatal(decision, err)
		}
		s.checkCall(r)
	})
	t.Run("CanUpdateMachine", func(t *testing.T) {
		s, request := newScene(t), &hooksv1.CanUpdateMachineRequest{}
		r := s.play("canupdatemachine", request)
		decision, err := s.hooks.CanUpdateMachine(t.Context(), request)
		if err != nil || !decision.CanUpdate || decision.Extension != "can-update-machine.ext" {
			t.Fatal(decision, err)
		}
		s.checkCall(r)
	})
	t.Run("UpdateMachine", func(t *testing.T) {
		s, request := newScene(t), &hooksv1.UpdateMachineRequest{}
		for name, want := range map[string]runtimehook.Progress{
			"updatemachine-progress": {RetryAfter: 3 * time.Second, Message: "step 1 of 3"},
			"updatemachine":          {Done: true, Message: "step 3 of 3"},
		} {
			r := s.play(name, request)
			if progress, err := s.hooks.UpdateMachine(t.Context(), request); err != nil || progress != want {
				t.Fatal(progress, err)
			}
			s.checkCall(r)
		}
	})
}

// play lets the extension answer with a recorded response.
func (s *scene) play(name string, request any) recording {
	s.Helper()
	s.setTimeout(10)
	r := readRecording(s.T, name, request)
	hook := map[string]string{
		"discovery":           "Discovery",
		"canupdatemachineset": "CanUpdateMachineSet",
		"canupdatemachine":    "CanUpdateMachine",
	}[name]
	if hook == "" {
		hook = "UpdateMachine"
	}
	s.Answer(hook, string(r.Response))
	return r
}

// checkCall compares the last call with one that was recorded.
func (s *scene) checkCall(r recording) {
	s.Helper()
	calls := s.Calls()
	last := calls[len(calls)-1]
	if want := r.Path + "?timeout=10s"; last.URL != want {
		s.Errorf("%s was called, want %s", last.URL, want)
	}
	compareJSON(s.T, string(r.Request), last.Body)
}

// If an extension covers only a part of the changes, the machines are replaced, as by Cluster API.
func TestUncoveredFieldsAreNamed(t *testing.T) {
	s, request := newScene(t), &hooksv1.CanUpdateMachineSetRequest{}
	r := readRecording(t, "canupdatemachineset-partial", request)
	s.Answer("CanUpdateMachineSet", string(r.Response))
	decision, err := s.hooks.CanUpdateMachineSet(t.Context(), request)
	if err != nil || decision.CanUpdate {
		t.Fatal(decision, err)
	}
	if want := []string{"machineSet spec.template.spec.failureDomain is not covered by extension " +
		"can-update-machineset.ext"}; !slices.Equal(decision.Reasons, want) {
		t.Errorf("%q", decision.Reasons)
	}
}

// Of a set, only the spec is sent, not the status.
func TestExtensionsSeeNoStatus(t *testing.T) {
	request := newSetRequest(t)
	set := request.Current.MachineSet
	set.UID, set.ResourceVersion, set.Finalizers, set.ManagedFields = "u", "7", []string{"f"},
		[]metav1.ManagedFieldsEntry{{}}
	set.Status.ObservedGeneration = 3
	template := &unstructured.Unstructured{}
	if err := template.UnmarshalJSON(request.Current.InfrastructureMachineTemplate.Raw); err != nil {
		t.Fatal(err)
	}
	template.SetUID("u")
	template.Object["status"] = map[string]any{"capacity": map[string]any{}}
	s := newScene(t)
	s.Answer("CanUpdateMachineSet", `{"status":"Success"}`)
	want := request.DeepCopy()
	request.Current = runtimehook.NewMachineSetObjects(&set, template, nil)
	for _, canUpdateMachineSetRequest := range []*hooksv1.CanUpdateMachineSetRequest{want, request} {
		canUpdateMachineSetRequest.Settings = map[string]string{"asked": "twice"}
		if _, err := s.hooks.CanUpdateMachineSet(t.Context(), canUpdateMachineSetRequest); err != nil {
			t.Fatal(err)
		}
		s.hooks = newHooks(s.config)
	}
	calls := s.Calls()
	compareJSON(t, calls[0].Body, calls[1].Body)
}

// The settings of an ExtensionConfig are sent with each call. Those of the request count for more.
func TestSettingsAreSent(t *testing.T) {
	s := newScene(t)
	s.config.Spec.Settings = map[string]string{"speed": "slow", "region": "eu"}
	s.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
	request := newUpdateRequest(t)
	request.Settings = map[string]string{"speed": "fast"}
	if _, err := s.hooks.UpdateMachine(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	want := request.DeepCopy()
	want.Settings = map[string]string{"speed": "fast", "region": "eu"}
	want.APIVersion, want.Kind = hooksv1.GroupVersion.String(), "UpdateMachineRequest"
	compareJSON(t, string(marshal(t, want)), s.Calls()[0].Body)
	if len(request.Settings) != 1 {
		t.Errorf("settings of the caller's request: got %v, want one", request.Settings)
	}
}
