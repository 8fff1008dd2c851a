package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An ExternalMachine is infrastructure that a person or a script provides: who has started the machine sets
// spec.providerID, and who has ended it after the object was deleted sets spec.terminated.
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

// An ExternalMachineSpec is what a person or a script says of the machine.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || has(self.providerID) && self.providerID == oldSelf.providerID",message="spec.providerID can't be changed once it is set"
type ExternalMachineSpec struct {
	// providerID says that the machine runs, and which one it is. It has to be the spec.providerID of its Node.
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
	// failureDomain is where the machine stands, such as its rack.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
	// terminated says that the machine was ended, so that an object that is being deleted may go.
	//
	// +optional
	Terminated bool `json:"terminated,omitempty"`
	// description is for the person who provides the machine: what it is to be like.
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
