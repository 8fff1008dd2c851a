package runtimehook_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// TestUpdateProgress reads the reports of an extension: an update is done only if the extension reports so.
func TestUpdateProgress(t *testing.T) {
	for text, want := range map[string]string{
		`{"status":"Success","retryAfterSeconds":-1}`: "extension update-machine.ext answered " +
			"retryAfterSeconds -1",
		`{"status":"Success"}`: "extension update-machine.ext sent no retryAfterSeconds",
		`{"kind":"Status","apiVersion":"v1","status":"Success"}`: "extension update-machine.ext sent no " +
			"retryAfterSeconds",
		`{"status":"Failure","retryAfterSeconds":5,"message":"lost"}`: "extension update-machine.ext answered " +
			"Failure (lost)",
	} {
		s := newScene(t)
		s.Answer("UpdateMachine", text)
		progress, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
		checkError(t, err, want)
		if progress.Done {
			t.Errorf("%s is done", text)
		}
	}
	s := newScene(t)
	s.Answer("UpdateMachine",
		`{"status":"Success","retryAfterSeconds":7,"message":"a\nb`+strings.Repeat("x", 5000)+`","unknown":{}}`)
	progress, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
	if err != nil || progress.Done || progress.RetryAfter != 7*time.Second ||
		!strings.HasPrefix(progress.Message, `a\nbxx`) || len(progress.Message) > 512 {
		t.Errorf("%+v %v", progress, err)
	}
}

func TestWithoutAnExtension(t *testing.T) {
	hooks := newHooks()
	decision, err := hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t))
	if err != nil || decision.CanUpdate ||
		decision.String() != "replaced, since no extension serves the hook CanUpdateMachineSet in this namespace" {
		t.Errorf("%s %v", decision, err)
	}
	if _, err := hooks.UpdateMachine(t.Context(), newUpdateRequest(t)); err == nil ||
		!strings.HasPrefix(err.Error(), "no extension serves the hook UpdateMachine") {
		t.Errorf("%v", err)
	}
}

func TestTwoExtensionsForOneHookAreRefused(t *testing.T) {
	a, b := runtimehooktest.New(t), runtimehooktest.New(t)
	hooks := newHooks(newConfig("b", b.ClientConfig()), newConfig("a", a.ClientConfig()))
	_, err := hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
	const want = "extensions update-machine.a, update-machine.b all serve the hook UpdateMachine, but only one may"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if _, err := hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t)); err == nil ||
		!strings.Contains(err.Error(), "can-update-machineset.a, can-update-machineset.b") {
		t.Errorf("%v", err)
	}
	if calls := len(a.Calls()) + len(b.Calls()); calls > 0 {
		t.Errorf("%d calls", calls)
	}
}

// TestRememberedAnswers counts the calls: an answer holds for a question, for a version of the ExtensionConfig, and for
// a while.
func TestRememberedAnswers(t *testing.T) {
	s := newScene(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s.hooks.SetClock(clock)
	covers := answerWithPatch("infrastructureMachineTemplatePatch", "JSONMergePatch",
		`{"spec":{"template":{"spec":{"size":2}}}}`)
	request := newSetRequest(t)
	ask := func(what string, calls int, canUpdate bool) {
		t.Helper()
		decision, err := s.hooks.CanUpdateMachineSet(t.Context(), request)
		if err != nil || decision.CanUpdate != canUpdate || len(s.Calls()) != calls {
			t.Fatalf("%s: %+v %v after %d calls, want %v after %d", what, decision, err, len(s.Calls()), canUpdate,
				calls)
		}
	}
	s.Answer("CanUpdateMachineSet", `{"status":"Success"}`)
	ask("the first time", 1, false)
	s.Answer("CanUpdateMachineSet", covers)
	replicas := int32(7)
	request.Current.MachineSet.Spec.Replicas = &replicas
	request.Current.MachineSet.Annotations = map[string]string{"a": "b"}
	ask("replicas and annotations do not count", 1, false)
	clock.Step(runtimehook.AnswerLifetime)
	ask("the extension was repaired", 2, true)
	s.Answer("CanUpdateMachineSet", `{"status":"Success"}`)
	ask("remembered", 2, true)
	s.config.Generation, s.config.Status.Conditions[0].ObservedGeneration = 2, 2
	ask("a changed ExtensionConfig", 3, false)
	s.config.UID = "another"
	ask("another ExtensionConfig of the name", 4, false)
	request.Desired.MachineSet.Spec.Template.Spec.Version = "v9"
	ask("another change", 5, false)
	request.Desired.MachineSet.Name = "md-other"
	ask("another set", 6, false)
	ask("remembered again", 6, false)
}

// Errors are not cached, nor are the decisions that failure policy Ignore derives from errors.
func TestFailuresAreNotRemembered(t *testing.T) {
	s := newScene(t)
	s.setPolicy(runtimev1.FailurePolicyIgnore)
	if decision, err := s.hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t)); err != nil || decision.CanUpdate {
		t.Fatal(decision, err)
	}
	s.Answer("CanUpdateMachineSet",
		answerWithPatch("infrastructureMachineTemplatePatch", "JSONMergePatch",
			`{"spec":{"template":{"spec":{"size":2}}}}`))
	if decision, err := s.hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t)); err != nil || !decision.CanUpdate {
		t.Error(decision, err)
	}
}

// While the handlers of an extension are unknown, no machine is updated or replaced.
func TestExtensionsThatAreNotDiscovered(t *testing.T) {
	s := newScene(t)
	s.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
	update := func() error {
		_, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
		return err
	}
	s.config.Generation = 2
	checkError(t, update(), "extension ext is not discovered yet: wait")
	s.config.Status.Conditions[0].ObservedGeneration = 2
	s.config.Status.Conditions[0].Status = "False"
	if err := update(); err != nil {
		t.Errorf("the handlers that were found before do not count: %v", err)
	}
	s.config.Status.Conditions[0].Message = "it is\ndown"
	s.config.Status.Handlers = nil
	checkError(t, update(), `extension ext is not discovered (it is\ndown): correct ExtensionConfig ext, or delete it`)
	s.config.Status.Conditions = nil
	checkError(t, update(), "extension ext is not discovered yet: wait")
	s.config.DeletionTimestamp = &s.config.CreationTimestamp
	if err := update(); err == nil || !strings.HasPrefix(err.Error(), "no extension serves") {
		t.Errorf("%v", err)
	}
}

// TestUpdatesContinueBesideUnknownExtensions checks that only updates that have not begun wait for unknown extensions.
func TestUpdatesContinueBesideUnknownExtensions(t *testing.T) {
	s := newScene(t)
	s.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
	other := newConfig("a", s.ClientConfig())
	other.Status = runtimev1.ExtensionConfigStatus{}
	s.hooks = newHooks(other, s.config)
	update := func() error {
		_, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
		return err
	}
	if err := update(); err != nil {
		t.Errorf("update beside an undiscovered extension: %v", err)
	}
	_, err := s.hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t))
	checkError(t, err, "extension a is not discovered yet")
	_, err = s.hooks.DrainsBeforeUpdate(t.Context(), "default")
	checkError(t, err, "extension a is not discovered yet")
	other.Spec.NamespaceSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
	}
	if err := update(); err != nil {
		t.Errorf("an extension whose selector can't be read stops the update: %v", err)
	}
	s.config.Generation = 2
	checkError(t, update(), "extension a has a namespaceSelector that can't be read")
	s.hooks = newHooks(newConfig("a", s.ClientConfig()), s.config)
	checkError(t, update(), "extension ext is not discovered yet") // which may have begun the update
}

// TestDecisionsAreLive: an extension that the cache does not have yet decides whether machines are replaced, and
// drained.
func TestDecisionsAreLive(t *testing.T) {
	s := newScene(t)
	s.config.Spec.Settings = map[string]string{"drain": "true"}
	s.hooks = runtimehook.NewInPlaceHooks(configs{}, configs{s.config})
	s.Answer("CanUpdateMachineSet",
		answerWithPatch("infrastructureMachineTemplatePatch", "JSONMergePatch",
			`{"spec":{"template":{"spec":{"size":2}}}}`))
	if decision, err := s.hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t)); err != nil || !decision.CanUpdate {
		t.Error(decision, err)
	}
	if drains, err := s.hooks.DrainsBeforeUpdate(t.Context(), "default"); err != nil || !drains {
		t.Errorf("drains: %t, %v", drains, err)
	}
}
