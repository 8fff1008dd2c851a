package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A KwokMachine is infrastructure without a machine behind it: its controller creates a Node, which kwok keeps alive
// if kwok runs. It is for tests, demonstrations and rehearsals, so its starts and ends can be slow and can fail.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kwokm,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[0].address`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KwokMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KwokMachineSpec `json:"spec,omitempty"`
	// +optional
	Status InfrastructureStatus `json:"status,omitempty"`
}

// A KwokMachineSpec is the behavior of the simulated machine.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || has(self.providerID) && self.providerID == oldSelf.providerID",message="spec.providerID can't be changed once it is set"
type KwokMachineSpec struct {
	// providerID is the identity of the machine, which its Node has as well. The controller sets it to
	// kwok://NAMESPACE/NAME.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// address is the internal IP of the Node. The controller chooses a free one from 127.0.1.1 on if it is empty.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self)",message="spec.address must be an IP address"
	Address string `json:"address,omitempty"`
	// startAfter is the duration of the start: there is no Node before, and the machine is not provisioned.
	//
	// +optional
	StartAfter metav1.Duration `json:"startAfter,omitempty"`
	// deleteAfter is the duration of the deletion: the object stays for that long after it was deleted.
	//
	// +optional
	DeleteAfter metav1.Duration `json:"deleteAfter,omitempty"`
	// vanishAfter is the time after which a running machine vanishes, like one that a cloud has lost: the object no
	// longer exists then, and the Node stays. If it is empty, the machine never vanishes.
	//
	// +optional
	VanishAfter *metav1.Duration `json:"vanishAfter,omitempty"`
	// startFailure makes the start fail.
	//
	// +optional
	StartFailure *StartFailure `json:"startFailure,omitempty"`
	// neverDeletes keeps an object being deleted until this is set to false.
	//
	// +optional
	NeverDeletes bool `json:"neverDeletes,omitempty"`
	// node describes the Node.
	//
	// +optional
	Node KwokNode `json:"node,omitempty"`
}

// A StartFailure makes the start of a simulated machine fail.
type StartFailure struct {
	// message is the message of the condition Ready.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// times is the number of failed starts before one succeeds. Zero means that none succeeds.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Times int32 `json:"times,omitempty"`
}

// A KwokNode describes the Node of a simulated machine.
type KwokNode struct {
	// labels are set on the Node, besides kubernetes.io/hostname.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// taints are set on the Node.
	//
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// kubeletVersion is the version of the kubelet that the Node reports.
	//
	// +optional
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// osImage is the operating system that the Node reports.
	//
	// +optional
	OSImage string `json:"osImage,omitempty"`
}

// A KwokMachineList is a list of KwokMachines.
//
// +kubebuilder:object:root=true
type KwokMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KwokMachine `json:"items"`
}
