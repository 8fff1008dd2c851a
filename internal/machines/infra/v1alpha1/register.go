// Package v1alpha1 defines the kinds of infrastructure that come with Runlevel: KwokMachine, which is simulated, and
// ExternalMachine, which a person or a script provides. For Cluster API, there are templates of both, and KwokConfig,
// the bootstrap config of a simulated machine. Their definitions in manifests are generated from this package.
//
// Start with Install.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.runlevel.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the kinds.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.runlevel.dev", Version: "v1alpha1"}

// Install adds the kinds to a scheme. Templates have no list type: they are read one by one, or as metadata.
func Install(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&KwokMachine{}, &KwokMachineList{}, &KwokMachineTemplate{},
		&ExternalMachine{}, &ExternalMachineList{}, &ExternalMachineTemplate{},
		&KwokConfig{}, &KwokConfigList{}, &KwokConfigTemplate{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
