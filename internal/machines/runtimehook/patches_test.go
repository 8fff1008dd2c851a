package runtimehook_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// answerWithPatch returns an answer with one patch.
func answerWithPatch(field, patchType, patch string) string {
	return fmt.Sprintf(`{"status":"Success","%s":{"patchType":%q,"patch":%q}}`, field, patchType,
		base64.StdEncoding.EncodeToString([]byte(patch)))
}

// sizeLeft is the reason if the size of the infrastructure, the only difference in these tests, is not covered.
const sizeLeft = "infrastructureMachineTemplate spec.template.spec.size is not covered by extension " +
	"can-update-machineset.ext"

// TestPatches checks the decision, or the error, for patches of one object whose size changes from 1 to 2.
func TestPatches(t *testing.T) {
	for name, test := range map[string]struct{ patchType, patch, want string }{
		"a merge patch": {"JSONMergePatch", `{"spec":{"template":{"spec":{"size":2}}}}`, ""},
		"a JSON patch": {"JSONPatch",
			`[{"op":"replace","path":"/spec/template/spec/size","value":2}]`, ""},
		"no operations":        {"JSONPatch", `[]`, sizeLeft},
		"an empty object":      {"JSONMergePatch", `{}`, sizeLeft},
		"an empty merge patch": {"JSONMergePatch", ``, sizeLeft},
		"an empty JSON patch":  {"JSONPatch", ``, "it is not a valid JSONPatch"},
		"no type":              {"", `{}`, "it has no patchType"},
		"another type":         {"Strategic", `{}`, `its patchType is "Strategic"`},
		"metadata": {"JSONMergePatch", `{"metadata":{"labels":{"size":"2"}},"kind":"Other"}`,
			sizeLeft},
		"status":        {"JSONPatch", `[{"op":"add","path":"/status","value":{"size":2}}]`, sizeLeft},
		"another spec":  {"JSONMergePatch", `{"spec":{"size":2}}`, sizeLeft},
		"another value": {"JSONMergePatch", `{"spec":{"template":{"spec":{"size":3}}}}`, sizeLeft},
		"a value of another type": {"JSONMergePatch", `{"spec":{"template":{"spec":{"size":"2"}}}}`,
			sizeLeft},
		"more than is wanted": {"JSONMergePatch", `{"spec":{"template":{"spec":{"size":2,"colour":"red"}}}}`,
			"spec.template.spec.colour is not covered"},
		"a field away": {"JSONPatch", `[{"op":"remove","path":"/spec/template/spec/size"}]`,
			sizeLeft},
		"everything away": {"JSONMergePatch", `{"spec":null}`,
			"infrastructureMachineTemplate spec.template.spec is not covered"},
		"the whole object": {"JSONPatch",
			`[{"op":"replace","path":"","value":{"spec":{"template":{"spec":{"size":2}}}}}]`, ""},
		"a list in place of the object": {"JSONPatch", `[{"op":"replace","path":"","value":[]}]`,
			"sent an invalid patch"},
		"a missing field": {"JSONPatch",
			`[{"op":"replace","path":"/spec/template/spec/colour","value":2}]`, "it can't be applied"},
		"a test that fails": {"JSONPatch", `[{"op":"test","path":"/spec/template/spec/size","value":7}]`,
			"it can't be applied"},
		"null":                   {"JSONMergePatch", `null`, "it is not a JSON object"},
		"a list":                 {"JSONMergePatch", `[]`, "it is not a JSON object"},
		"garbage":                {"JSONMergePatch", "\x00\x01", "it is not a JSON object"},
		"garbage for operations": {"JSONPatch", "\x00\x01", "it is not a valid JSONPatch"},
		"an unknown operation": {"JSONPatch", `[{"op":"explode","path":"/spec"}]`,
			"it is not a valid JSONPatch"},
		"an operation without a path": {"JSONPatch", `[{"op":"add","value":1}]`, "it is not a valid JSONPatch"},
		"an index far out": {"JSONPatch",
			`[{"op":"add","path":"/metadata/list","value":[]},{"op":"add","path":"/metadata/list/999999999","value":1}]`, "it can't be applied"},
		"more operations than are applied": {"JSONPatch",
			"[" + strings.Repeat(`{"op":"test","path":"/kind","value":"x"},`, 10_000) + `{"op":"remove","path":"/x"}]`,
			"it has 10001 operations"},
		"copies that double it, and double": {"JSONPatch", doubling, "it can't be applied"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Answer("CanUpdateMachineSet",
				answerWithPatch("infrastructureMachineTemplatePatch", test.patchType, test.patch))
			decision, err := s.hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t))
			reasons := strings.Join(decision.Reasons, "; ")
			if err != nil {
				reasons = err.Error()
			}
			if test.want == "" && (reasons != "" || !decision.CanUpdate) || !strings.Contains(reasons, test.want) ||
				test.want != "" && decision.CanUpdate {
				t.Errorf("reasons is %q, want %q", reasons, test.want)
			}
			if strings.Contains(reasons, "\n") || len(reasons) > 1000 {
				t.Errorf("got reasons %q, want one line of at most 1000 bytes", reasons)
			}
		})
	}
}

// doubling is a patch of a few hundred bytes that makes gigabytes.
var doubling = `[{"op":"add","path":"/a","value":{"x":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}` +
	strings.Repeat(`,{"op":"copy","from":"/a","path":"/b"},{"op":"move","from":"/b","path":"/a/y"},{"op":"copy","from":"/a","path":"/a/z"}`, 30) + `]`

// TestChangesThatReplaceMachines checks which changes require new machines, and which are propagated to existing ones.
func TestChangesThatReplaceMachines(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*clusterv1.MachineSpec)
		want   string
	}{
		"the version": {func(s *clusterv1.MachineSpec) {
			s.Version = "v2"
		}, "machineSet spec.template.spec.version "},
		"the failure domain": {func(s *clusterv1.MachineSpec) {
			s.FailureDomain = "z"
		}, "machineSet spec.template.spec.failureDomain "},
		"data that a user names": {func(s *clusterv1.MachineSpec) { s.Bootstrap.DataSecretName = ptr.To("other") },
			"machineSet spec.template.spec.bootstrap.dataSecretName is not covered by extension " +
				"can-update-machineset.ext"},
		"the template's name": {func(s *clusterv1.MachineSpec) { s.InfrastructureRef.Name = "other" }, ""},
		"a time-out": {func(s *clusterv1.MachineSpec) {
			s.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](7)
		}, ""},
		"taints": {func(s *clusterv1.MachineSpec) { s.Taints = []clusterv1.MachineTaint{{Key: "a"}} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, request := newScene(t), newSetRequest(t)
			s.Answer("CanUpdateMachineSet", `{"status":"Success"}`)
			request.Desired.InfrastructureMachineTemplate = request.Current.InfrastructureMachineTemplate
			test.change(&request.Desired.MachineSet.Spec.Template.Spec)
			decision, err := s.hooks.CanUpdateMachineSet(t.Context(), request)
			reasons := strings.Join(decision.Reasons, "; ")
			if err != nil || decision.CanUpdate != (test.want == "") || !strings.Contains(reasons, test.want) {
				t.Errorf("%+v %v", decision, err)
			}
		})
	}
}

// A bootstrap config that only one side has can't be compared: the machines are replaced.
func TestBootstrapConfigOfOneSide(t *testing.T) {
	s, request := newScene(t), newSetRequest(t)
	request.Desired.BootstrapConfigTemplate = runtime.RawExtension{
		Raw: []byte(`{"kind":"T","spec":{"template":{"spec":{"a":1}}}}`),
	}
	s.Answer("CanUpdateMachineSet",
		answerWithPatch("infrastructureMachineTemplatePatch", "JSONMergePatch",
			`{"spec":{"template":{"spec":{"size":2}}}}`))
	decision, err := s.hooks.CanUpdateMachineSet(t.Context(), request)
	if err != nil || decision.CanUpdate || len(decision.Reasons) != 1 ||
		!strings.HasPrefix(decision.Reasons[0], "bootstrapConfigTemplate is not covered") {
		t.Errorf("%+v %v", decision, err)
	}
}

// Of a Machine the whole specs of its objects are compared. Owners of control-plane Machines ask this, and none is
// here.
func TestCanUpdateMachine(t *testing.T) {
	var update hooksv1.UpdateMachineRequest
	readRecording(t, "updatemachine", &update)
	request := &hooksv1.CanUpdateMachineRequest{Desired: hooksv1.CanUpdateMachineRequestObjects(update.Desired)}
	request.Current = *request.Desired.DeepCopy()
	request.Current.Machine.Spec.Version = "v1"
	request.Current.InfrastructureMachine.Raw = []byte(
		strings.ReplaceAll(string(request.Current.InfrastructureMachine.Raw), `"size": 2`, `"size": 1`),
	)
	for patch, want := range map[string]string{
		`{"spec":{"size":2}}`: "machine spec.version is not covered by extension can-update-machine.ext",
		`{"status":{"size":2}}`: "machine spec.version is not covered by extension can-update-machine.ext; " +
			"infrastructureMachine spec.size is not covered by extension can-update-machine.ext",
	} {
		s := newScene(t)
		s.Answer("CanUpdateMachine", answerWithPatch("infrastructureMachinePatch", "JSONMergePatch", patch))
		decision, err := s.hooks.CanUpdateMachine(t.Context(), request)
		if reasons := strings.Join(decision.Reasons, "; "); err != nil || decision.CanUpdate || reasons != want {
			t.Errorf("%s: %+v %v", patch, decision, err)
		}
		if call := s.Calls()[0]; call.URL != "/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachine/can-update-machine?timeout=30s" || !strings.Contains(call.Body, `"kind":"CanUpdateMachineRequest"`) {
			t.Errorf("%+v", call)
		}
	}
}
