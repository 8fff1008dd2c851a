package machinedeployment_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// The answers of an extension to UpdateMachine.
const (
	inProgress = `{"status":"Success","retryAfterSeconds":1,"message":"half way"}`
	done       = `{"status":"Success","retryAfterSeconds":0}`
)

// extend installs an extension for the namespace. It can change all fields of infrastructure in place, and, if
// coversMachines is true, all fields of a Machine. Updates are done at once.
func (f *fixture) extend(coversMachines bool, policy runtimev1.FailurePolicy) *runtimehooktest.Extension {
	f.Helper()
	extension := newExtension(f, coversMachines)
	runtimehooktest.Discover(f, f, extension.Register(f, f, f.Namespace), policy, runtimehook.CanUpdateMachineSet,
		runtimehook.UpdateMachine)
	return extension
}

func newExtension(t testing.TB, coversMachines bool) *runtimehooktest.Extension {
	t.Helper()
	extension := runtimehooktest.New(t)
	extension.Serve(runtimehook.CanUpdateMachineSet, func(w http.ResponseWriter, r *http.Request) {
		cover(w, r, coversMachines)
	})
	extension.Answer(runtimehook.UpdateMachine, done)
	return extension
}

// cover answers CanUpdateMachineSet with merge patches that make the current objects the desired ones.
func cover(w http.ResponseWriter, r *http.Request, coversMachines bool) {
	var request hooksv1.CanUpdateMachineSetRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	patch := func(wanted any) hooksv1.Patch {
		text, _ := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": wanted}}})
		return hooksv1.Patch{PatchType: hooksv1.JSONMergePatchType, Patch: text}
	}
	current, desired := templateOf(request.Current), templateOf(request.Desired)
	for key := range current.Node.Labels {
		if _, stays := desired.Node.Labels[key]; !stays {
			desired.Node.Labels[key] = nil
		}
	}
	response := hooksv1.CanUpdateMachineSetResponse{InfrastructureMachineTemplatePatch: patch(desired)}
	response.Status = hooksv1.ResponseStatusSuccess
	if coversMachines {
		response.MachineSetPatch = patch(
			map[string]any{"failureDomain": request.Desired.MachineSet.Spec.Template.Spec.FailureDomain},
		)
	}
	_ = json.NewEncoder(w).Encode(response)
}

// labelTemplate contains the fields of a KwokMachineTemplate that these tests change.
type labelTemplate struct {
	Node struct {
		Labels map[string]any `json:"labels"`
	} `json:"node"`
}

func templateOf(side hooksv1.CanUpdateMachineSetRequestObjects) labelTemplate {
	var template struct {
		Spec struct {
			Template struct {
				Spec labelTemplate `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(side.InfrastructureMachineTemplate.Raw, &template)
	return template.Spec.Template.Spec
}

// callsOf returns how often an extension was asked a hook.
func callsOf(extension *runtimehooktest.Extension, hook string) int {
	count := 0
	for _, call := range extension.Calls() {
		if strings.Contains(call.URL, "/"+strings.ToLower(hook)+"/") {
			count++
		}
	}
	return count
}

// identities returns the UIDs of machines, by name.
func identities(machines map[string]*clusterv1.Machine) map[string]types.UID {
	found := map[string]types.UID{}
	for name, machine := range machines {
		found[name] = machine.UID
	}
	return found
}

// awaitUpdating waits until a machine is being updated in place, and returns it.
func (f *fixture) awaitUpdating() *clusterv1.Machine {
	f.Helper()
	var found *clusterv1.Machine
	f.Eventually("a machine is updated in place", func() bool {
		for _, machine := range f.machines() {
			if _, isPending := machine.Annotations[runtimev1.PendingHooksAnnotation]; isPending {
				found = machine
			}
		}
		return found != nil
	})
	return found
}

// checkUpdated checks machines that were updated in place to a template, and their objects.
func (f *fixture) checkUpdated(template string, names map[string]types.UID) {
	f.Helper()
	machines := f.machines()
	for name, uid := range names {
		machine := machines[name]
		if machine == nil || machine.UID != uid {
			f.Errorf("%s is another machine: %v", name, machine)
			continue
		}
		infrastructure := &v1alpha1.KwokMachine{}
		if err := f.Get(f.Context(), client.ObjectKeyFromObject(machine), infrastructure); err != nil {
			f.Error(err)
		}
		labels := infrastructure.Spec.Node.Labels
		if len(labels) != 2 || labels["size"] != template || infrastructure.Spec.ProviderID == "" ||
			infrastructure.Annotations[clusterv1.TemplateClonedFromNameAnnotation] != template ||
			!metav1.IsControlledBy(infrastructure, machine) {
			f.Errorf("infrastructure of %s: got %+v, want one of template %s and of the machine", name, infrastructure,
				template)
		}
		config := &v1alpha1.KwokConfig{}
		if err := f.Get(f.Context(), client.ObjectKeyFromObject(machine), config); err != nil {
			f.Error(err)
		}
		for _, object := range []client.Object{machine, infrastructure, config} {
			for key := range object.GetAnnotations() {
				if strings.HasPrefix(key, "in-place-updates.internal") || key == runtimev1.PendingHooksAnnotation {
					f.Errorf("%T %s still has %s", object, name, key)
				}
			}
		}
	}
}
