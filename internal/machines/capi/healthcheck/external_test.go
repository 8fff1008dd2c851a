package healthcheck_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const others = clusterv1.MachineExternallyRemediatedCondition

// serve serves a kind, and its templates.
func (f *fixture) serve(kind, plural, template string) {
	f.Helper()
	const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %PLURAL.remedy.example.com},
		spec: {group: remedy.example.com, scope: Namespaced, names: {kind: %KIND, plural: %PLURAL}, versions: [{name: v1, served: true,
		storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	connected := stage.Connect(f)
	for kind, plural := range map[string]string{kind: plural, kind + "Template": template} {
		sandboxtest.Apply(f, connected, strings.NewReplacer("%KIND", kind, "%PLURAL", plural).Replace(definition))
	}
}

func newObject(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("remedy.example.com/v1")
	object.SetKind(kind)
	return object
}

// newTemplate returns the template "gently" of a kind.
func (f *fixture) newTemplate(kind string) *unstructured.Unstructured {
	template := newObject(kind + "Template")
	template.SetNamespace(f.Namespace)
	template.SetName("gently")
	template.Object["spec"] = map[string]any{"template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"pace": "slow"}}, "spec": map[string]any{"wait": "5m"},
	}}
	return template
}

func (f *fixture) checkWithTemplate(kind string) *clusterv1.MachineHealthCheck {
	check := f.newCheck()
	check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: "remedy.example.com/v1", Kind: kind + "Template", Name: "gently",
	}
	return check
}

// Another controller, instead of the owner, is requested to repair a machine. If the request fails, the machine reports
// the error. A healthy machine is not repaired, even while too many others are unhealthy.
func TestAnotherControllerRemediates(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.serve("Reboot", "reboots", "reboottemplates")
	a := w.addMachine("a")
	w.addMachine("b")
	w.addMachine("c")
	w.setBroken(w.nodeOf("a"), corev1.ConditionTrue)
	check := w.checkWithTemplate("Reboot")
	check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
	w.MustCreate(check)
	w.manage()
	problem := w.awaitCondition("a", others, clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason)
	if want := "Error retrieving remediation template RebootTemplate " + w.Namespace +
		"/gently"; problem.Message != want || problem.Status != metav1.ConditionFalse {
		t.Errorf("without a template: got %+v, want False: %s", problem, want)
	}
	w.MustCreate(w.newTemplate("Reboot"))
	w.awaitCondition("a", others, clusterv1.MachineExternallyRemediatedWaitingForRemediationReason)
	request := machinetest.Await(w, w, newObject("Reboot"), w.Key("a"), func(*unstructured.Unstructured) bool {
		return true
	})
	wait, _, _ := unstructured.NestedString(request.Object, "spec", "wait")
	if labels := request.GetLabels(); wait != "5m" || labels["pace"] != "slow" ||
		labels[clusterv1.ClusterNameLabel] != "c" ||
		request.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] != "gently" ||
		request.GetOwnerReferences()[0].UID != a.UID {
		t.Errorf("requested is %+v", request)
	}
	if owned := w.condition("a", ownerDoes); owned.Type != "" {
		t.Errorf("condition for the owner: got %+v, want none", owned)
	}
	w.setBroken(w.nodeOf("b"), corev1.ConditionTrue)
	w.setBroken(w.nodeOf("c"), corev1.ConditionTrue)
	w.awaitCondition("b", succeeded, clusterv1.MachineHealthCheckUnhealthyNodeReason)
	w.setBroken(w.nodeOf("a"), corev1.ConditionFalse)
	machinetest.AwaitGone(w, w, request, w.Key("a"))
	w.awaitCondition("a", succeeded, clusterv1.MachineHealthCheckSucceededReason)
	if requested := w.Get(t.Context(), w.Key("b"), newObject("Reboot")); client.IgnoreNotFound(requested) != nil ||
		requested == nil {
		t.Errorf("two of three machines are unhealthy, got requests %v, want one", requested)
	}
}

// The cache has a machine whose node is broken. On the API server it is healthy again: no repair is requested.
func TestStaleCache(t *testing.T) {
	w := newFixture(t)
	w.serve("Cycle", "cycles", "cycletemplates")
	for name, kind := range map[string]string{"owner": "", "another controller": "Cycle"} {
		t.Run(name, func(t *testing.T) { expectLeftAlone(t, kind) })
	}
}

func expectLeftAlone(t *testing.T, kind string) {
	t.Helper()
	w := newFixture(t)
	check := w.newCheck()
	if kind != "" {
		w.Eventually("the kind is served", func() bool { return w.Create(t.Context(), w.newTemplate(kind)) == nil })
		check = w.checkWithTemplate(kind)
	}
	w.addMachine("a")
	check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(0))
	w.MustCreate(check)
	gate, requests := machinetest.NewWatchGate("nodes"), atomic.Int32{}
	config := sandboxtest.Tap(stage.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/cycles") {
				requests.Add(1)
			}
			return send.RoundTrip(request)
		})
	stage.ManageIn(t, w.Namespace, gate.Config(config), func(m ctrl.Manager) error {
		return healthcheck.SetupWithManager(t.Context(), m)
	})
	t.Cleanup(gate.Open) // before the controller is stopped
	w.setBroken(w.nodeOf("a"), corev1.ConditionTrue)
	w.awaitHealthy(check, 0, 1)
	gate.Close()
	w.setBroken(w.nodeOf("a"), corev1.ConditionFalse)
	w.MustPatch(check, `{"spec":{"remediation":{"triggerIf":{"unhealthyLessThanOrEqualTo":1}}}}`)
	// as far as the cache knows
	w.awaitCheck(check, func(s clusterv1.MachineHealthCheckStatus) bool { return *s.CurrentHealthy == 0 })
	gate.Open()
	w.setBroken(w.nodeOf("a"), corev1.ConditionFalse)
	w.awaitHealthy(check, 1, 1)
	w.awaitCondition("a", succeeded, clusterv1.MachineHealthCheckSucceededReason)
	if owned := w.condition("a", ownerDoes); owned.Type != "" || requests.Load() > 0 {
		t.Errorf("a healthy machine is remediated: %+v, by %d requests", owned, requests.Load())
	}
}
