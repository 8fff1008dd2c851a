package healthcheck_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// definition returns the definition of a kind of external remediation requests, or of their templates.
func definition(kind, plural string) string {
	return `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural +
		`.remedy.example.com},
		spec: {group: remedy.example.com, scope: Namespaced, names: {kind: ` + kind + `, plural: ` + plural +
		`}, versions: [{name: v1, served: true,
		storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
}

// addTemplate makes the template "gently" of a kind whose definition has just been applied.
func addTemplate(f *machinetest.Fixture, kind string) {
	f.Helper()
	template := &unstructured.Unstructured{
		Object: map[string]any{"spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"wait": "5m"}},
		}},
	}
	template.SetAPIVersion("remedy.example.com/v1")
	template.SetKind(kind)
	template.SetNamespace(f.Namespace)
	template.SetName("gently")
	f.Eventually("the kind "+kind+" is served", func() bool { return f.Create(f.Context(), template) == nil })
}

// templateRef names the template that addTemplate makes.
func templateRef(kind string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "remedy.example.com/v1", Kind: kind, Name: "gently"}
}

// Another controller is asked to repair a machine, which is not deleted. While it can't be asked, the health check
// reports so.
func TestAnotherControllerRemediates(t *testing.T) {
	t.Parallel()
	f, connected := shared.NewFixture(t), shared.Connect(t)
	owner := addOwner(f)
	m := addMachine(f, "web-0", owner)
	setBroken(f, f.Namespace+"-web-0", corev1.ConditionTrue)
	check := newCheck(f)
	check.Spec.RemediationTemplate = templateRef("RebootTemplate")
	f.MustCreate(check)
	manage(f, f.Config())
	awaitProblem := func(want machinev1beta1.ConditionType, reason string) {
		t.Helper()
		machinetest.Await(f, f, check, client.ObjectKeyFromObject(check),
			func(check *machinev1beta1.MachineHealthCheck) bool {
				isAllowed, problem := false, machinev1beta1.Condition{}
				for _, condition := range check.Status.Conditions {
					isAllowed = isAllowed || condition.Type == machinev1beta1.RemediationAllowedCondition
					if condition.Type != machinev1beta1.RemediationAllowedCondition {
						problem = condition
					}
				}
				return isAllowed && problem.Type == want && problem.Reason == reason
			})
	}
	awaitProblem(machinev1beta1.ExternalRemediationRequestAvailable,
		machinev1beta1.ExternalRemediationRequestCreationFailed)

	sandboxtest.Apply(t, connected, definition("Reboot", "reboots"))
	sandboxtest.Apply(t, connected, definition("RebootTemplate", "reboottemplates"))
	awaitProblem(machinev1beta1.ExternalRemediationTemplateAvailable,
		machinev1beta1.ExternalRemediationTemplateNotFound)
	addTemplate(f, "RebootTemplate")
	requested := &unstructured.Unstructured{}
	requested.SetAPIVersion("remedy.example.com/v1")
	requested.SetKind("Reboot")
	machinetest.Await(f, f, requested, client.ObjectKeyFromObject(m), func(*unstructured.Unstructured) bool {
		return true
	})
	if pause, _, _ := unstructured.NestedString(requested.Object, "spec", "wait"); pause != "5m" ||
		requested.GetOwnerReferences()[0].UID != m.UID {
		t.Errorf("got remediation request %+v, want spec.wait 5m and Machine %s as owner", requested, m.Name)
	}
	awaitProblem("", "")
	f.MustGet(m)
	if m.DeletionTimestamp != nil {
		t.Error("the machine is deleted, though another controller is to fix it")
	}
	setBroken(f, f.Namespace+"-web-0", corev1.ConditionFalse)
	machinetest.AwaitGone(f, f, requested, client.ObjectKeyFromObject(m))
}

// A machine gets well while more machines are unhealthy than are remediated: its remediation ends all the same.
func TestRemediationEndsWhileOthersAreUnhealthy(t *testing.T) {
	t.Parallel()
	f, connected := shared.NewFixture(t), shared.Connect(t)
	sandboxtest.Apply(t, connected, definition("Restart", "restarts"))
	sandboxtest.Apply(t, connected, definition("RestartTemplate", "restarttemplates"))
	addTemplate(f, "RestartTemplate")
	owner := addOwner(f)
	m := addMachine(f, "web-0", owner)
	for _, name := range []string{"web-1", "web-2"} {
		addMachine(f, name, owner)
	}
	intOrString := intstr.FromInt32(1)
	check := newCheck(f)
	check.Spec.MaxUnhealthy = &intOrString
	check.Spec.RemediationTemplate = templateRef("RestartTemplate")
	f.MustCreate(check)
	manage(f, f.Config())
	setBroken(f, f.Namespace+"-web-0", corev1.ConditionTrue)
	requested := &unstructured.Unstructured{}
	requested.SetAPIVersion("remedy.example.com/v1")
	requested.SetKind("Restart")
	machinetest.Await(f, f, requested, client.ObjectKeyFromObject(m), func(*unstructured.Unstructured) bool {
		return true
	})
	setBroken(f, f.Namespace+"-web-1", corev1.ConditionTrue)
	setBroken(f, f.Namespace+"-web-2", corev1.ConditionTrue)
	setBroken(f, f.Namespace+"-web-0", corev1.ConditionFalse)
	machinetest.AwaitGone(f, f, requested, client.ObjectKeyFromObject(m))
}
