package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// A KwokMachineTemplate is what Cluster API's MachineSets make KwokMachines of.
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

// A KwokMachineTemplateSpec has what is copied. Machines that were made before a change would differ from those after it.
//
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",message="spec.template can't be changed: make another KwokMachineTemplate, and refer to that"
type KwokMachineTemplateSpec struct {
	Template KwokMachineTemplateResource `json:"template"`
}

// A KwokMachineTemplateResource is a KwokMachine to be.
type KwokMachineTemplateResource struct {
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="spec.template.spec.providerID is for one machine, and can't be in a template"
	Spec KwokMachineSpec `json:"spec"`
}

// An ExternalMachineTemplate is what Cluster API's MachineSets make ExternalMachines of.
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

// An ExternalMachineTemplateSpec has what is copied. Machines that were made before a change would differ from those after it.
//
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",message="spec.template can't be changed: make another ExternalMachineTemplate, and refer to that"
type ExternalMachineTemplateSpec struct {
	Template ExternalMachineTemplateResource `json:"template"`
}

// An ExternalMachineTemplateResource is an ExternalMachine to be.
type ExternalMachineTemplateResource struct {
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID) && !has(self.addresses)",message="spec.template.spec has a providerID or addresses, which are for one machine, and can't be in a template"
	Spec ExternalMachineSpec `json:"spec"`
}

// TemplateMeta is the metadata that is copied of a template.
type TemplateMeta struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
