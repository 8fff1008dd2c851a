// Package v1alpha1 has the kinds of infrastructure that come with Runlevel: KwokMachine, which is simulated, and
// ExternalMachine, which a person or a script provides. For Cluster API, there are templates of both, and KwokConfig, the
// bootstrap config of what is simulated. Their definitions in manifests are generated of it.
//
// Install is the call to start from.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.runlevel.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the one of the kinds.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.runlevel.dev", Version: "v1alpha1"}

// Install has a scheme know the kinds. Templates have no list type: they are read one by one, or as metadata.
func Install(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&KwokMachine{}, &KwokMachineList{}, &KwokMachineTemplate{},
		&ExternalMachine{}, &ExternalMachineList{}, &ExternalMachineTemplate{},
		&KwokConfig{}, &KwokConfigList{}, &KwokConfigTemplate{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
