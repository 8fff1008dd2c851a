package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
