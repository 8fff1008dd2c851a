package runtimehook

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// NewMachineSetObjects returns one side of a CanUpdateMachineSetRequest: a set and its templates, without the fields
// that are not sent to extensions. The bootstrap template may be nil.
func NewMachineSetObjects(set *clusterv1.MachineSet, infrastructure,
	bootstrap *unstructured.Unstructured) hooksv1.CanUpdateMachineSetRequestObjects {
	return hooksv1.CanUpdateMachineSetRequestObjects{
		MachineSet: clusterv1.MachineSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet"},
			ObjectMeta: seenMeta(&set.ObjectMeta), Spec: *set.Spec.DeepCopy(),
		},
		InfrastructureMachineTemplate: seenObject(infrastructure),
		BootstrapConfigTemplate:       seenObject(bootstrap),
	}
}

// NewMachineObjects returns one side of a CanUpdateMachineRequest: a Machine, its infrastructure, and its bootstrap
// config, if it has one.
func NewMachineObjects(machine *clusterv1.Machine, infrastructure,
	bootstrap *unstructured.Unstructured) hooksv1.CanUpdateMachineRequestObjects {
	return hooksv1.CanUpdateMachineRequestObjects{
		Machine: clusterv1.Machine{
			TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
			ObjectMeta: seenMeta(&machine.ObjectMeta), Spec: *machine.Spec.DeepCopy(),
		},
		InfrastructureMachine: seenObject(infrastructure),
		BootstrapConfig:       seenObject(bootstrap),
	}
}

func seenMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations}
}

func seenObject(object *unstructured.Unstructured) runtime.RawExtension {
	if object == nil {
		return runtime.RawExtension{}
	}
	seen := &unstructured.Unstructured{Object: map[string]any{}}
	seen.SetAPIVersion(object.GetAPIVersion())
	seen.SetKind(object.GetKind())
	seen.SetNamespace(object.GetNamespace())
	seen.SetName(object.GetName())
	seen.SetLabels(object.GetLabels())
	seen.SetAnnotations(object.GetAnnotations())
	if spec, hasSpec := object.Object["spec"]; hasSpec {
		seen.Object["spec"] = spec
	}
	return runtime.RawExtension{Object: seen}
}

// changesOfSet returns the changes between two sets. Only their machine templates are compared, not their replicas and
// labels.
func changesOfSet(r *hooksv1.CanUpdateMachineSetRequest, a *hooksv1.CanUpdateMachineSetResponse) []change {
	path := []string{"spec", "template", "spec"}
	return []change{
		{"machineSet", r.Current.MachineSet, r.Desired.MachineSet, a.MachineSetPatch, path, machineOfSet},
		{"bootstrapConfigTemplate", r.Current.BootstrapConfigTemplate, r.Desired.BootstrapConfigTemplate,
			a.BootstrapConfigTemplatePatch, path, nil},
		{
			"infrastructureMachineTemplate", r.Current.InfrastructureMachineTemplate,
			r.Desired.InfrastructureMachineTemplate,
			a.InfrastructureMachineTemplatePatch, path, nil,
		},
	}
}

func changesOfMachine(r *hooksv1.CanUpdateMachineRequest, a *hooksv1.CanUpdateMachineResponse) []change {
	path := []string{"spec"}
	return []change{
		{"machine", r.Current.Machine, r.Desired.Machine, a.MachinePatch, path, machineOf},
		{"bootstrapConfig", r.Current.BootstrapConfig, r.Desired.BootstrapConfig, a.BootstrapConfigPatch, path, nil},
		{"infrastructureMachine", r.Current.InfrastructureMachine, r.Desired.InfrastructureMachine,
			a.InfrastructureMachinePatch, path, nil},
	}
}

// A question identifies a request and the version of the ExtensionConfig: a changed one may name another extension.
type question struct {
	config     types.UID
	generation int64
	handler    string
	hash       [sha256.Size]byte // hash of the fields of the request that affect the answer
}

// questionOf returns the question of a request: the extension, the names of the sets, and the compared fields. The
// replicas of the sets, which change all the time, are not part of the question.
func questionOf(handler *Handler, r *hooksv1.CanUpdateMachineSetRequest) (question, error) {
	asked := []any{r.Current.MachineSet.Namespace, r.Current.MachineSet.Name, r.Desired.MachineSet.Name, r.Settings}
	for _, c := range changesOfSet(r, &hooksv1.CanUpdateMachineSetResponse{}) {
		current, desired, err := c.bytes()
		if err != nil {
			return question{}, err
		}
		for _, object := range [][]byte{current, desired} {
			compared, err := c.comparedFields(object)
			if err != nil {
				return question{}, fmt.Errorf("read %s: %w", c.field, err)
			}
			asked = append(asked, compared)
		}
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return question{}, fmt.Errorf("marshal the question to an extension: %w", err)
	}
	return question{handler.config.UID, handler.config.Generation, handler.Name, sha256.Sum256(text)}, nil
}
