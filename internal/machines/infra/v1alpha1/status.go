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
	// failureDomain is where the machine stands.
	//
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// startFailures counts the starts that have failed.
	//
	// +optional
	StartFailures int32 `json:"startFailures,omitempty"`
	// conditions has Ready, which says what is awaited as long as it is not True.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// An Initialization says how far the machine came to be.
type Initialization struct {
	// provisioned says that the machine was started and that spec.providerID is set. It stays so.
	//
	// +optional
	Provisioned bool `json:"provisioned,omitempty"`
}
