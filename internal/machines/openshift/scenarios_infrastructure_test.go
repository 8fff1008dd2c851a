package openshift_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestA10RetryIsHonoured has infrastructure report when it wants to be asked again: passes before then don't ask it.
func TestA10RetryIsHonoured(t *testing.T) {
	s := newScenario(t)
	s.start(openshift.Options{})
	m := s.addMachine("a", nil, machinev1beta1.LifecycleHooks{})
	const after = 7 * time.Second
	s.provider.configure(func() {
		s.provider.deletes = []error{&infra.RetryError{After: after, Err: errors.New("the cloud is busy")}}
	})
	s.MustDelete(m)
	m = s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue, "busy")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
		Reason: deletion.ErrorDeleting, Message: "Failed to delete the instance: the cloud is busy",
	})
	s.expectEvents("a", "FailedDelete", 1)
	for _, name := range []string{"One", "Two"} {
		s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":[{"name":"%sHook","owner":"test"}]}}}`, name)
		s.awaitCondition("a", machinev1beta1.MachineDrainable, corev1.ConditionFalse, name)
	}
	s.AwaitGone(m)
	calls := s.provider.callsOf("delete")
	if len(calls) != 2 || calls[1].at.Sub(calls[0].at) < after {
		t.Errorf("infrastructure was asked to go at %v, want twice, %s apart", calls, after)
	}
}

// TestA10WhatWasNeverMadeHoldsNothing deletes a machine whose infrastructure can't be made, and never was.
func TestA10WhatWasNeverMadeHoldsNothing(t *testing.T) {
	s := newScenario(t)
	s.provider.invalid = &infra.InvalidError{Message: "no such size"}
	s.start(quick)
	m := s.addMachine("a", nil, machinev1beta1.LifecycleHooks{})
	if ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseFailed ||
		ptr.Deref(m.Status.ErrorReason, "") != machinev1beta1.InvalidConfigurationMachineError {
		t.Errorf("status: got %+v, want Failed, with InvalidConfiguration", m.Status)
	}
	s.MustDelete(m)
	s.AwaitGone(m)
}

// TestAKindThatIsServedLater applies a machine before the definition of its infrastructure: it waits and reports so. If
// it is deleted meanwhile, the deletion completes.
func TestAKindThatIsServedLater(t *testing.T) {
	s := newScenario(t)
	s.startWith(openshift.Options{})
	crd := laterMachines(t)
	s.DeleteAfterwards(crd)
	for _, name := range []string{"a", "b"} {
		m := &machinev1beta1.Machine{ObjectMeta: s.Meta(name)}
		m.Spec.ProviderSpec.Value = &runtime.RawExtension{
			Raw: []byte(`{"apiVersion": "later.example.com/v1", "kind": "LaterMachine"}`),
		}
		s.MustCreate(m)
		m = s.awaitCondition(name, machinev1beta1.InstanceExistsCondition, corev1.ConditionUnknown,
			"serves no kind LaterMachine of later.example.com/v1")
		if phase := ptr.Deref(m.Status.Phase, ""); phase != machinev1beta1.PhaseProvisioning ||
			m.Status.ErrorReason != nil {
			t.Errorf("machine %s is %s: %v", name, phase, m.Status.ErrorReason)
		}
		if name == "b" {
			s.MustDelete(m)
			s.AwaitGone(m)
		}
	}
	s.MustCreate(crd)
	s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionFalse,
		"Instance has not been created")
}

// laterMachines returns the definition of a kind that the API server does not serve at first.
func laterMachines(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	crd := &unstructured.Unstructured{}
	text := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: latermachines.later.example.com},
		spec: {group: later.example.com, scope: Namespaced, names: {kind: LaterMachine, plural: latermachines}, versions: [
			{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	if err := yaml.Unmarshal([]byte(text), &crd.Object); err != nil {
		t.Fatal(err)
	}
	return crd
}

// TestA10WhatRanHolds deletes machines whose infrastructure was created, and can no longer be read. One machine never
// had an address.
func TestA10WhatRanHolds(t *testing.T) {
	for name, addresses := range map[string][]corev1.NodeAddress{
		"with an address": {{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}, "without addresses": nil,
	} {
		t.Run(name, func(t *testing.T) { expectHeld(t, addresses) })
	}
}

func expectHeld(t *testing.T, addresses []corev1.NodeAddress) {
	t.Helper()
	s := newScenario(t)
	s.provider.addresses = addresses
	s.start(quick)
	m := s.addMachine("a", nil, machinev1beta1.LifecycleHooks{})
	if !slices.Equal(m.Status.Addresses, addresses) {
		t.Fatalf("the machine has addresses %v, want %v", m.Status.Addresses, addresses)
	}
	s.provider.configure(func() { s.provider.invalid = &infra.InvalidError{Message: "no such size"} })
	s.MustDelete(m)
	m = s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionUnknown, "Failed to check")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionUnknown,
		Reason: machinev1beta1.ErrorCheckingProviderReason, Message: "Failed to check if machine exists: no such size",
	})
	if !slices.Contains(m.Finalizers, machinev1beta1.MachineFinalizer) {
		t.Errorf("finalizers: got %v while the infrastructure exists, want %s", m.Finalizers,
			machinev1beta1.MachineFinalizer)
	}
	s.provider.configure(func() { s.provider.invalid = nil })
	s.AwaitGone(m)
	if calls := s.provider.callsOf("delete"); len(calls) != 1 {
		t.Errorf("infrastructure was asked to go at %v, want once", calls)
	}
}

// TestInfrastructureGoesAfterABadEdit deletes machines after edits that would prevent the creation of their existing
// infrastructure. It must be deleted with the machines.
func TestInfrastructureGoesAfterABadEdit(t *testing.T) {
	s := newScenario(t)
	s.startWith(quick)
	for name, edit := range map[string]string{
		"field":   `{"spec":{"providerSpec":{"value":{"size":3}}}}`,
		"status":  `{"spec":{"providerSpec":{"value":{"status":{}}}}}`,
		"version": `{"spec":{"providerSpec":{"value":{"apiVersion":"infrastructure.runlevel.dev/v9"}}}}`,
	} {
		m := s.addMachine(name, nil, machinev1beta1.LifecycleHooks{})
		instance := &v1alpha1.ExternalMachine{ObjectMeta: s.Meta(name)}
		s.MustGet(instance)
		s.MustPatch(m, "%s", edit)
		s.MustDelete(m)
		s.AwaitGone(m)
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(instance), instance); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the machine was deleted, but its infrastructure exists: %v", name, err)
		}
	}
}

// TestOthersFinalizers has others hold the infrastructure and the Machine: the first are named, the second left.
func TestOthersFinalizers(t *testing.T) {
	s := newScenario(t)
	s.startWith(quick)
	m := s.addMachine("a", nil, machinev1beta1.LifecycleHooks{})
	instance := &v1alpha1.ExternalMachine{ObjectMeta: s.Meta("a")}
	machinetest.Await(s, s, instance, client.ObjectKeyFromObject(instance), func(*v1alpha1.ExternalMachine) bool {
		return true
	})
	s.MustPatch(instance, `{"metadata":{"finalizers":["example.org/keep"]}}`)
	s.MustGet(m)
	s.MustPatch(m, `{"metadata":{"finalizers":["`+machinev1beta1.MachineFinalizer+`","example.org/audit"]}}`)
	s.MustDelete(m)
	m = s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue, "finalizers")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
		Reason: deletion.InstanceTerminating,
		Message: "waiting for ExternalMachine " + s.Namespace +
			"/a to be deleted, which these finalizers hold: example.org/keep",
	})
	s.MustPatch(instance, `{"metadata":{"finalizers":null}}`)
	m = s.awaitMachine("a", func(m *machinev1beta1.Machine) bool {
		return slices.Equal(m.Finalizers, []string{"example.org/audit"})
	})
	s.MustPatch(m, `{"metadata":{"finalizers":null}}`)
	s.AwaitGone(m)
}
