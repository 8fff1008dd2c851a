package deletion

// What the controllers of machine.openshift.io go by, and the API's own package has no constant for.
const (
	// ExcludeNodeDraining is the annotation of a Machine whose node is not to be drained.
	ExcludeNodeDraining = "machine.openshift.io/exclude-node-draining"
	// InstanceTerminating is the reason of InstanceExists=True once the infrastructure was asked to go.
	InstanceTerminating = "InstanceTerminating"
	// ErrorDeleting is the reason of InstanceExists=True while the infrastructure could not be asked to go.
	ErrorDeleting = "ErrorDeleting"
)

// HookStatusAnnotation is the annotation in which the controller of a hook says how the hook stands.
func HookStatusAnnotation(stage DeletionStage, name string) string {
	if stage == BeforeDrain {
		return "pre-drain." + HookStatusDomain + "/" + name
	}
	return "pre-terminate." + HookStatusDomain + "/" + name
}

// HookStatusDomain ends the part before the slash of each HookStatusAnnotation.
const HookStatusDomain = "hook.machine.runlevel.dev"
