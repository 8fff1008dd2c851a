// Package v1alpha1 defines RunlevelControlPlane, a control plane of Cluster API whose machines any provider of
// infrastructure and bootstrap configs makes. It keeps Cluster API's contract of control planes. Its definition in
// manifests is generated from this package.
//
// The package has no behavior: the controller is in the package above.
//
// Start with Install.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.runlevel.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the kind.
var GroupVersion = schema.GroupVersion{Group: "controlplane.runlevel.dev", Version: "v1alpha1"}

// Install adds the kind to a scheme.
func Install(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &RunlevelControlPlane{}, &RunlevelControlPlaneList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
