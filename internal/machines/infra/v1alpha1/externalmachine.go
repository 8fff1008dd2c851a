package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An ExternalMachine is infrastructure that a person or a script provides: set spec.providerID after the machine was
// started, and spec.terminated after it was terminated because the object is being deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=extm,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Terminated",type=boolean,JSONPath=`.spec.terminated`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ExternalMachineSpec `json:"spec,omitempty"`
	// +optional
	Status InfrastructureStatus `json:"status,omitempty"`
}

// An ExternalMachineSpec describes the machine that a person or a script provides.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || has(self.providerID) && self.providerID == oldSelf.providerID",message="spec.providerID can't be changed once it is set"
type ExternalMachineSpec struct {
	// providerID identifies the machine, and is set once it runs. It has to be the spec.providerID of its Node.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// addresses are those of the machine. A Node without a providerID is found by its InternalIP.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// failureDomain is the location of the machine, such as its rack.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
	// terminated is true after the machine was terminated, so that an object being deleted is removed.
	//
	// +optional
	Terminated bool `json:"terminated,omitempty"`
	// description describes the desired machine, for the person who provides it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// An ExternalMachineList is a list of ExternalMachines.
//
// +kubebuilder:object:root=true
type ExternalMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalMachine `json:"items"`
}
