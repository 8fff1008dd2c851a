package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A RunlevelControlPlane creates, replaces and updates the machines of the control plane of a Cluster, one after the
// other.
//
// +kubebuilder:validation:XValidation:rule="self.spec.version == oldSelf.spec.version || !has(oldSelf.status) || !has(oldSelf.status.version) || int(self.spec.version.split('.')[1]) - int(oldSelf.status.version.split('.')[1]) <= 1",message="spec.version is more than one minor version above status.version: wait until all machines have the one in between"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=rcp,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="include.release.openshift.io/self-managed-high-availability=true"
// +kubebuilder:metadata:annotations="capability.openshift.io/name=MachineAPI+ClusterAPIControlPlanes"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.upToDateReplicas`
// +kubebuilder:printcolumn:name="Initialized",type=boolean,JSONPath=`.status.initialization.controlPlaneInitialized`
// +kubebuilder:printcolumn:name="Paused",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Paused")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
type RunlevelControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RunlevelControlPlaneSpec `json:"spec"`
	// +optional
	Status RunlevelControlPlaneStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the status, as Cluster API's own kinds do.
func (p *RunlevelControlPlane) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions sets the conditions of the status.
func (p *RunlevelControlPlane) SetConditions(all []metav1.Condition) { p.Status.Conditions = all }

// A RunlevelControlPlaneSpec is the desired state of a control plane.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || !has(self.rollout.strategy) || !has(self.rollout.strategy.rollingUpdate) || !has(self.rollout.strategy.rollingUpdate.maxSurge) || self.rollout.strategy.rollingUpdate.maxSurge == 1 || self.replicas >= 3",message="spec.rollout.strategy.rollingUpdate.maxSurge is 0, which needs spec.replicas of 3 or more: the control plane would be down while its machine is replaced"
type RunlevelControlPlaneSpec struct {
	// replicas is the number of machines. It is odd: a member of etcd more than that would not survive more failures.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=7
	// +kubebuilder:validation:XValidation:rule="self % 2 == 1",message="spec.replicas must be odd: write 1, 3, 5 or 7"
	Replicas *int32 `json:"replicas,omitempty"`
	// version is the version of Kubernetes, such as v1.36.2.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="int(self.split('.')[1]) - int(oldSelf.split('.')[1]) <= 1",message="spec.version skips a minor version: update to the next one first"
	// +kubebuilder:validation:XValidation:rule="int(self.split('.')[1]) >= int(oldSelf.split('.')[1])",message="spec.version goes back to an older minor version, which Kubernetes does not support"
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+].*)?$`
	Version string `json:"version"`
	// machineTemplate describes the machines.
	MachineTemplate ControlPlaneMachineTemplate `json:"machineTemplate"`
	// machineNaming has a template of the machines' names, which reads .cluster.name, .controlPlane.name and .random.
	//
	// +optional
	MachineNaming ControlPlaneMachineNaming `json:"machineNaming,omitempty,omitzero"`
	// rollout configures the replacement and the update of machines.
	//
	// +optional
	Rollout ControlPlaneRollout `json:"rollout,omitempty,omitzero"`
	// remediation limits the replacement of machines that a MachineHealthCheck has marked.
	//
	// +optional
	Remediation ControlPlaneRemediation `json:"remediation,omitempty,omitzero"`
	// controlPlaneEndpoint is the address of the API servers for clients, if the Cluster does not have it from its
	// infrastructure.
	//
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// A ControlPlaneMachineTemplate describes the machines of a control plane.
type ControlPlaneMachineTemplate struct {
	// metadata has labels and annotations of the machines, and of their infrastructure and bootstrap configs. A change
	// of it needs no new machines.
	//
	// +optional
	ObjectMeta clusterv1.ObjectMeta            `json:"metadata,omitempty,omitzero"`
	Spec       ControlPlaneMachineTemplateSpec `json:"spec"`
}

// A ControlPlaneMachineTemplateSpec has the fields of a Machine that a control plane sets. Changes of the references
// update or replace machines, those of the other fields do not.
type ControlPlaneMachineTemplateSpec struct {
	// infrastructureRef names the template of the machines' infrastructure.
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef"`
	// bootstrap names the template of the machines' bootstrap configs, or a Secret with the data of all machines.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.configRef) || has(self.dataSecretName)",message="spec.machineTemplate.spec.bootstrap is empty: write configRef or dataSecretName"
	Bootstrap clusterv1.Bootstrap `json:"bootstrap"`
	// minReadySeconds is the time for which a machine has to be ready before it counts as available.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
	// readinessGates are further conditions of a ready machine.
	//
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MaxItems=32
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	// deletion has the timeouts of a machine's deletion.
	//
	// +optional
	Deletion clusterv1.MachineDeletionSpec `json:"deletion,omitempty,omitzero"`
	// taints are set on the nodes of the machines.
	//
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
}

// A ControlPlaneMachineNaming names the machines of a control plane.
type ControlPlaneMachineNaming struct {
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.contains('.random')",message="it must contain {{ .random }}: without it, a new machine could have the name of another one"
	Template string `json:"template,omitempty"`
}

// A ControlPlaneRollout configures the replacement and the update of machines.
type ControlPlaneRollout struct {
	// after is a time from which on machines that are older are replaced.
	//
	// +optional
	After metav1.Time `json:"after,omitempty,omitzero"`
	// +optional
	Strategy ControlPlaneRolloutStrategy `json:"strategy,omitempty,omitzero"`
}

// A ControlPlaneRolloutStrategy is the strategy of a rollout, of which there is one.
type ControlPlaneRolloutStrategy struct {
	// +optional
	// +kubebuilder:validation:Enum=RollingUpdate
	Type string `json:"type,omitempty"`
	// +optional
	RollingUpdate ControlPlaneRollingUpdate `json:"rollingUpdate,omitempty,omitzero"`
}

// A ControlPlaneRollingUpdate replaces or updates one machine after the other.
type ControlPlaneRollingUpdate struct {
	// maxSurge limits how many machines are created before an outdated one is updated or deleted: 1, the default, or 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	MaxSurge *int32 `json:"maxSurge,omitempty"`
}

// A ControlPlaneRemediation limits the replacement of unhealthy machines.
type ControlPlaneRemediation struct {
	// maxRetry limits how often a replacement that is unhealthy as well is replaced; without limit if it is not set.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRetry *int32 `json:"maxRetry,omitempty"`
	// retryPeriodSeconds is the pause between two remediations of the same machine and its replacements.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryPeriodSeconds *int32 `json:"retryPeriodSeconds,omitempty"`
	// minHealthyPeriodSeconds is the time for which a replacement has to be healthy so that its next remediation is
	// not a retry; 3600 if it is not set.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinHealthyPeriodSeconds *int32 `json:"minHealthyPeriodSeconds,omitempty"`
}

// A RunlevelControlPlaneStatus is the observed state of a control plane.
type RunlevelControlPlaneStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	Initialization ControlPlaneInitialization `json:"initialization,omitempty,omitzero"`
	// selector selects the machines, for the scale subresource.
	//
	// +optional
	Selector string `json:"selector,omitempty"`
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`
	// versions are the versions of Kubernetes of the machines, the lowest first.
	//
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`
	// version is the lowest of versions, for those who do not read these yet.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastRemediation is the last replacement of an unhealthy machine.
	//
	// +optional
	LastRemediation ControlPlaneLastRemediation `json:"lastRemediation,omitempty,omitzero"`
}

// A ControlPlaneInitialization has the progress of the first machine.
type ControlPlaneInitialization struct {
	// controlPlaneInitialized is true once the API server was reached through a machine's node.
	//
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// A ControlPlaneLastRemediation is the replacement of an unhealthy machine.
type ControlPlaneLastRemediation struct {
	Machine    string      `json:"machine"`
	Time       metav1.Time `json:"time"`
	RetryCount int32       `json:"retryCount"`
}

// A RunlevelControlPlaneList is a list of RunlevelControlPlanes.
//
// +kubebuilder:object:root=true
type RunlevelControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunlevelControlPlane `json:"items"`
}
