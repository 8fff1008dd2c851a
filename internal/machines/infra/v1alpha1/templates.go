package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A KwokMachineTemplate is a template from which Cluster API's MachineSets create KwokMachines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=kwokmt,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI+ClusterAPI"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KwokMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KwokMachineTemplateSpec `json:"spec"`
}

// A KwokMachineTemplateSpec has the template that is copied. It is immutable, so that all machines of a template are
// equal.
//
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",message="spec.template can't be changed: make another KwokMachineTemplate, and refer to that"
type KwokMachineTemplateSpec struct {
	Template KwokMachineTemplateResource `json:"template"`
}

// A KwokMachineTemplateResource is the template of a KwokMachine.
type KwokMachineTemplateResource struct {
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="spec.template.spec.providerID is for one machine, and can't be in a template"
	Spec KwokMachineSpec `json:"spec"`
}

// An ExternalMachineTemplate is a template from which Cluster API's MachineSets create ExternalMachines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=extmt,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI+ClusterAPI"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExternalMachineTemplateSpec `json:"spec"`
}

// An ExternalMachineTemplateSpec has the template that is copied. It is immutable, so that all machines of a template
// are equal.
//
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",message="spec.template can't be changed: make another ExternalMachineTemplate, and refer to that"
type ExternalMachineTemplateSpec struct {
	Template ExternalMachineTemplateResource `json:"template"`
}

// An ExternalMachineTemplateResource is the template of an ExternalMachine.
type ExternalMachineTemplateResource struct {
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID) && !has(self.addresses)",message="spec.template.spec has a providerID or addresses, which are for one machine, and can't be in a template"
	Spec ExternalMachineSpec `json:"spec"`
}

// TemplateMeta is the metadata that is copied from a template.
type TemplateMeta struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// An InfrastructureStatus has the fields by which a machine reads its infrastructure.
type InfrastructureStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// addresses are those of the machine.
	//
	// +optional
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// failureDomain is the location of the machine.
	//
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// startFailures counts the starts that have failed.
	//
	// +optional
	StartFailures int32 `json:"startFailures,omitempty"`
	// conditions has Ready, whose message is what the machine waits for while it is not True.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// An Initialization is the progress of the start of the machine.
type Initialization struct {
	// provisioned is true once the machine was started and spec.providerID is set.
	//
	// +optional
	Provisioned bool `json:"provisioned,omitempty"`
}
