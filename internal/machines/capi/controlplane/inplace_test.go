package controlplane

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/contract"
)

// storedObject returns an object of a request as the API server has it, with fields that are not sent to extensions.
func storedObject(t *testing.T, raw runtime.RawExtension, annotations map[string]string) *contract.Object {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw.Raw); err != nil {
		t.Fatal(err)
	}
	object.SetUID("u")
	object.SetResourceVersion("7")
	object.SetFinalizers([]string{"f"})
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
	object.SetAnnotations(annotations)
	object.Object["status"] = map[string]any{"ready": true}
	if object.GetKind() == "KubeadmConfig" {
		token := map[string]any{"token": "abcdef.0123456789abcdef"}
		if err := unstructured.SetNestedField(object.Object, token, "spec", "joinConfiguration", "discovery",
			"bootstrapToken"); err != nil {
			t.Fatal(err)
		}
	}
	return &contract.Object{Unstructured: object}
}

// TestCanUpdateMachineRequest makes the request that a KubeadmControlPlane of Cluster API sent, from the
// objects that it had: without status and token, and with the labels and annotations of the wanted state in the current
// one.
func TestCanUpdateMachineRequest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../runtimehook/testdata/canupdatemachine.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Request hooksv1.CanUpdateMachineRequest
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	current, desired := recorded.Request.Current, recorded.Request.Desired
	m := current.Machine.DeepCopy()
	m.UID, m.ResourceVersion, m.Finalizers, m.Status.Phase = "u", "7", []string{clusterv1.MachineFinalizer}, "Running"
	m.OwnerReferences = []metav1.OwnerReference{{Name: "plane"}}
	cloned := map[string]string{
		clusterv1.TemplateClonedFromGroupKindAnnotation: "KwokMachineTemplate.infrastructure.runlevel.dev",
	}
	objects := MachineObjects{
		Infrastructure: storedObject(t, current.InfrastructureMachine,
			map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "small"}),
		Bootstrap: storedObject(t, current.BootstrapConfig,
			map[string]string{clusterv1.MachineCertificatesExpiryDateAnnotation: "2036-01-01T00:00:00Z"}),
	}
	cloned[clusterv1.TemplateClonedFromNameAnnotation] = "large"
	plane := &v1alpha1.RunlevelControlPlane{}
	plane.Spec.Version = desired.Machine.Spec.Version
	s := newSnapshot(plane, time.Time{})
	s.cluster = &clusterv1.Cluster{}
	s.SetObjects(m, objects)
	request := s.Request(m, storedObject(t, desired.InfrastructureMachine, cloned).Unstructured,
		storedObject(t, desired.BootstrapConfig, nil).Unstructured)
	request.TypeMeta = recorded.Request.TypeMeta
	read := func(request *hooksv1.CanUpdateMachineRequest) (fields map[string]any) {
		text, err := json.Marshal(request)
		if err == nil {
			err = json.Unmarshal(text, &fields)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fields
	}
	if diff := cmp.Diff(read(&recorded.Request), read(request)); diff != "" {
		t.Errorf("(-upstream +ours)\n%s", diff)
	}
	if _, hasToken, _ := unstructured.NestedMap(objects.Bootstrap.Object, "spec", "joinConfiguration",
		"discovery"); !hasToken {
		t.Error("the bootstrap config itself was changed")
	}
}
