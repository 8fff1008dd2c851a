// Package annotation lists the annotations of Runlevel on Machines, their infrastructure and their Nodes, for both APIs
// of machines. Each row has the key, who sets the annotation, and who reads it.
//
// The package has names only: the packages that set an annotation define its value. The annotations of OpenShift and of
// Cluster API are not listed here. A label of the same domain, machine.runlevel.dev/aggregate-to-machine-controller, is
// only used in manifests: it selects ClusterRoles for the machine controller.
//
// Start with MachineUID, which is on the infrastructure object of each Machine of OpenShift's API.
package annotation

// The annotations, by the object that has them.
const (
	// MachineUID is on an infrastructure object, and has the UID of its Machine of machine.openshift.io. Package infra
	// sets it when it creates the object; infra, kwok and the providers of others read it. An owner reference can't be
	// used: the garbage collector would follow it, and delete infrastructure that a hook still holds.
	MachineUID = "machine.runlevel.dev/machine-uid"

	// ControlPlaneIndex is on a Machine of a ControlPlaneMachineSet whose name does not end with its index, and has the
	// index. Package openshift/controlplane sets it when it adopts the Machine, and reads it.
	ControlPlaneIndex = "machine.runlevel.dev/control-plane-index"

	// AppliedDeployment is on a MachineSet of a MachineDeployment of Cluster API, and has a hash of the metadata that
	// was last applied. Package capi/machinedeployment sets and reads it: metadata that the deployment no longer has is
	// removed by an apply without it.
	AppliedDeployment = "machine.runlevel.dev/applied-deployment"

	// AppliedTemplate is on a Machine of Cluster API, and has a hash of the fields that were last applied to the
	// Machine and its objects. Package capi/machinetemplate sets and reads it: fields that the template no longer has
	// are removed by an apply without them.
	AppliedTemplate = "machine.runlevel.dev/applied-template"

	// ReplacedBecause is set on a Machine of a RunlevelControlPlane when it is deleted although extensions exist. Its
	// value is the reason why the Machine is not updated in place. Package capi/controlplane sets it; capi/controlplane
	// and overview read it.
	ReplacedBecause = "machine.runlevel.dev/replaced-because"

	// UpdateRequested is on a Machine of Cluster API, and has the time at which a control plane requested the
	// permission for an update in place. Package capi/rolloutrules sets it for the control plane; the etcd quorum guard
	// reads it.
	UpdateRequested = "machine.runlevel.dev/update-requested"
	// UpdateAllowed is on a Machine of Cluster API, and has the value of UpdateRequested once the update may begin. The
	// etcd quorum guard sets it; the controllers of the Machine and of its control plane read it.
	UpdateAllowed = "machine.runlevel.dev/update-allowed"
	// UpdateHeld is on a Machine of Cluster API, and has the reason why the update may not begin yet. The etcd quorum
	// guard sets it; the controllers of the Machine and of its control plane report it.
	UpdateHeld = "machine.runlevel.dev/update-held"

	// UpdateBegun is on a Machine of Cluster API whose extension may have been called for an update in place: its node
	// was drained, and the quorum guard has permitted the call, where either is required. Package capi sets and reads
	// it.
	UpdateBegun = "machine.runlevel.dev/in-place-update-begun"

	// CordonedForUpdate is on a Node, and has the name of the Machine for whose update in place the Node was cordoned.
	// Package capi sets and reads it: Nodes that were cordoned before stay cordoned after the update.
	CordonedForUpdate = "machine.runlevel.dev/cordoned-for-update"
)

// The annotations with which the controllers of hooks report their status on a Machine of either API: one of these
// prefixes, and the name of the hook. Package machinehook sets them; package overview, the control planes and users
// read them.
const (
	PreDrainHookStatusPrefix     = "pre-drain." + HookStatusDomain + "/"
	PreTerminateHookStatusPrefix = "pre-terminate." + HookStatusDomain + "/"
	// HookStatusDomain is the suffix of both domains.
	HookStatusDomain = "hook.machine.runlevel.dev"
)
