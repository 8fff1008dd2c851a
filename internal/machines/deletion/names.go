package deletion

// Names that the controllers of machine.openshift.io use, and the API's own package has no constant for.
const (
	// ExcludeNodeDraining is the annotation of a Machine whose node must not be drained.
	ExcludeNodeDraining = "machine.openshift.io/exclude-node-draining"
	// InstanceTerminating is the reason of InstanceExists=True once the deletion of the infrastructure was requested.
	InstanceTerminating = "InstanceTerminating"
	// ErrorDeleting is the reason of InstanceExists=True while the infrastructure can't be deleted.
	ErrorDeleting = "ErrorDeleting"
)

// HookStatusAnnotation is the annotation in which the controller of a hook reports its status.
func HookStatusAnnotation(stage DeletionStage, name string) string {
	if stage == BeforeDrain {
		return "pre-drain." + HookStatusDomain + "/" + name
	}
	return "pre-terminate." + HookStatusDomain + "/" + name
}

// HookStatusDomain is the end of the prefix of each HookStatusAnnotation.
const HookStatusDomain = "hook.machine.runlevel.dev"
