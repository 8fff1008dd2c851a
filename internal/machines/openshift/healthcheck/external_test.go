package healthcheck_test

import (
	"context"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// definition is of a kind by which another controller is asked to repair machines, or of its templates.
func definition(kind, plural string) string {
	return `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural + `.remedy.example.com},
		spec: {group: remedy.example.com, scope: Namespaced, names: {kind: ` + kind + `, plural: ` + plural + `}, versions: [{name: v1, served: true,
		storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
}

// addTemplate makes the template "gently" of a kind whose definition has just been applied.
func addTemplate(t *testing.T, namespace, kind string) {
	t.Helper()
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"wait": "5m"}}}}}
	template.SetAPIVersion("remedy.example.com/v1")
	template.SetKind(kind)
	template.SetNamespace(namespace)
	template.SetName("gently")
	must(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		return stage.Client(t).Create(ctx, template) == nil, nil // it takes a moment until the kind is served
	}))
}

// templateRef names the template that addTemplate makes.
func templateRef(kind string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "remedy.example.com/v1", Kind: kind, Name: "gently"}
}

// Another controller is asked to repair a machine, which is not deleted. While it can't be asked, the health check says so.
func TestAnotherControllerRemediates(t *testing.T) {
	t.Parallel()
	namespace, c, connected := stage.Namespace(t), stage.Client(t), stage.Connect(t)
	owner := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	must(t, c.Create(t.Context(), owner))
	m := newMachine(t, namespace, "web-0", owner)
	setBroken(t, namespace+"-web-0", corev1.ConditionTrue)
	check := &machinev1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: machinev1beta1.MachineHealthCheckSpec{
			UnhealthyConditions: []machinev1beta1.UnhealthyCondition{{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}}},
			RemediationTemplate: templateRef("RebootTemplate"),
		},
	}
	must(t, c.Create(t.Context(), check))
	stage.ManageIn(t, namespace, stage.Sandbox(t).Config, func(mgr ctrl.Manager) error {
		return new(healthcheck.MachineHealthCheckReconciler).SetupWithManager(t.Context(), mgr)
	})
	awaitProblem := func(want machinev1beta1.ConditionType, reason string) {
		t.Helper()
		machinetest.Await(t, c, check, client.ObjectKeyFromObject(check), func(check *machinev1beta1.MachineHealthCheck) bool {
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
	awaitProblem(machinev1beta1.ExternalRemediationRequestAvailable, machinev1beta1.ExternalRemediationRequestCreationFailed)

	sandboxtest.Apply(t, connected, definition("Reboot", "reboots"))
	sandboxtest.Apply(t, connected, definition("RebootTemplate", "reboottemplates"))
	awaitProblem(machinev1beta1.ExternalRemediationTemplateAvailable, machinev1beta1.ExternalRemediationTemplateNotFound)
	addTemplate(t, namespace, "RebootTemplate")
	requested := &unstructured.Unstructured{}
	requested.SetAPIVersion("remedy.example.com/v1")
	requested.SetKind("Reboot")
	machinetest.Await(t, c, requested, client.ObjectKeyFromObject(m), func(*unstructured.Unstructured) bool { return true })
	if pause, _, _ := unstructured.NestedString(requested.Object, "spec", "wait"); pause != "5m" || requested.GetOwnerReferences()[0].UID != m.UID {
		t.Errorf("what is asked for is %+v", requested)
	}
	awaitProblem("", "")
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	if m.DeletionTimestamp != nil {
		t.Error("the machine is deleted, though another controller is to fix it")
	}
	setBroken(t, namespace+"-web-0", corev1.ConditionFalse)
	machinetest.AwaitGone(t, c, requested, client.ObjectKeyFromObject(m))
}

// A machine gets well while more machines are unhealthy than are remediated: its remediation ends all the same.
func TestRemediationEndsWhileOthersAreUnhealthy(t *testing.T) {
	t.Parallel()
	namespace, c, connected := stage.Namespace(t), stage.Client(t), stage.Connect(t)
	sandboxtest.Apply(t, connected, definition("Restart", "restarts"))
	sandboxtest.Apply(t, connected, definition("RestartTemplate", "restarttemplates"))
	addTemplate(t, namespace, "RestartTemplate")
	owner := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	must(t, c.Create(t.Context(), owner))
	m := newMachine(t, namespace, "web-0", owner)
	for _, name := range []string{"web-1", "web-2"} {
		newMachine(t, namespace, name, owner)
	}
	intOrString := intstr.FromInt32(1)
	must(t, c.Create(t.Context(), &machinev1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: machinev1beta1.MachineHealthCheckSpec{
			MaxUnhealthy:        &intOrString,
			UnhealthyConditions: []machinev1beta1.UnhealthyCondition{{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}}},
			RemediationTemplate: templateRef("RestartTemplate"),
		},
	}))
	stage.Manage(t, namespace, func(mgr ctrl.Manager) error {
		return new(healthcheck.MachineHealthCheckReconciler).SetupWithManager(t.Context(), mgr)
	})
	setBroken(t, namespace+"-web-0", corev1.ConditionTrue)
	requested := &unstructured.Unstructured{}
	requested.SetAPIVersion("remedy.example.com/v1")
	requested.SetKind("Restart")
	machinetest.Await(t, c, requested, client.ObjectKeyFromObject(m), func(*unstructured.Unstructured) bool { return true })
	setBroken(t, namespace+"-web-1", corev1.ConditionTrue)
	setBroken(t, namespace+"-web-2", corev1.ConditionTrue)
	setBroken(t, namespace+"-web-0", corev1.ConditionFalse)
	machinetest.AwaitGone(t, c, requested, client.ObjectKeyFromObject(m))
}
