package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// A KwokConfig is the bootstrap config of a simulated machine: its controller creates a Secret with spec.data, as for
// the bootstrap data of a real machine. It is for Cluster API's Machines, whose spec.bootstrap.configRef names it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kwokc,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI+ClusterAPI"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.status.dataSecretName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KwokConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KwokConfigSpec `json:"spec,omitempty"`
	// +optional
	Status BootstrapStatus `json:"status,omitempty"`
}

// A KwokConfigSpec has the bootstrap data.
type KwokConfigSpec struct {
	// data is the bootstrap data. A simulated machine does not read it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Data string `json:"data,omitempty"`
}

// A BootstrapStatus has the fields by which a machine reads its bootstrap config.
type BootstrapStatus struct {
	// +optional
	Initialization BootstrapInitialization `json:"initialization,omitempty,omitzero"`
	// dataSecretName is the Secret that has the bootstrap data.
	//
	// +optional
	DataSecretName string `json:"dataSecretName,omitempty"`
	// conditions has Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// A BootstrapInitialization is the progress of the bootstrap data.
type BootstrapInitialization struct {
	// dataSecretCreated is true once the Secret was created.
	//
	// +optional
	DataSecretCreated bool `json:"dataSecretCreated,omitempty"`
}

// A KwokConfigList is a list of KwokConfigs.
//
// +kubebuilder:object:root=true
type KwokConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KwokConfig `json:"items"`
}

// A KwokConfigTemplate is a template from which Cluster API's MachineSets create KwokConfigs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=kwokct,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI+ClusterAPI"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KwokConfigTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KwokConfigTemplateSpec `json:"spec"`
}

// A KwokConfigTemplateSpec has the template that is copied.
//
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",message="spec.template can't be changed: make another KwokConfigTemplate, and refer to that"
type KwokConfigTemplateSpec struct {
	Template KwokConfigTemplateResource `json:"template"`
}

// A KwokConfigTemplateResource is the template of a KwokConfig.
type KwokConfigTemplateResource struct {
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec KwokConfigSpec `json:"spec,omitempty"`
}
