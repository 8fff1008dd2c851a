// Package deletion decides how the deletion of a machine continues: which phase it is in, what to do
// next, what it waits for, and when to check again. It is pure: it maps a Snapshot to a DeletionStep, and
// uses no clock, cluster or memory.
//
// Two APIs have machines, and their deletions differ in the order of the phases. So a dialect is a
// list of phases (phases.go), and the adapter of an API translates the observed state into a Snapshot, and
// a DeletionStep into requests and conditions.
//
// Dialect.Next is the call to start from.
package deletion

import "time"

// A Snapshot is the observed state of a machine that is being deleted.
type Snapshot struct {
	PreDrain       []DeletionHook
	PreTerminate   []DeletionHook
	IsExcluded     bool // from draining
	Node           MachineNode
	Drain          Drain
	Infrastructure Infrastructure
	ClusterAPI     ClusterAPIFacts
}

// A DeletionHook holds a phase until its owner removes it.
type DeletionHook struct {
	Name  string
	Owner string
}

// A MachineNode is the node of the machine.
type MachineNode struct {
	Name       string // empty if the machine never had one
	IsGone     bool   // there is no Node of that name
	IsCordoned bool
	Problem    string // why it could not be deleted
	// IsControlPlane is true if the node is drained only while no other node of the control plane is:
	// a disruption budget of the control plane's pods would make each of two wait for the other.
	IsControlPlane bool
	// OthersCordoned are the other nodes of the control plane that are cordoned.
	OthersCordoned []string
}

// A Drain is the progress of draining the node.
type Drain struct {
	IsDone bool // recorded as done, and never repeated
	// HasLooked is true if pods were evicted since the last step, so that Left and Problem are known.
	HasLooked bool
	Left      []string // what holds each remaining pod, in words; the first ones are shown
	Problem   string   // why the pods could not be listed or evicted
	IsStuck   bool     // an eviction is refused, or finalizers hold a pod, so that waiting alone does not help
	Looks     int      // number of evictions since the number of pods last grew
}

// Evicted returns the drain after another eviction of pods. If there was a problem, left and isStuck are not
// known.
func (d Drain) Evicted(left []string, isStuck bool, problem string) Drain {
	after := Drain{IsDone: d.IsDone, HasLooked: true, Left: left, Problem: problem, IsStuck: isStuck, Looks: d.Looks + 1}
	if problem == "" && d.Problem == "" && len(left) < len(d.Left) {
		after.Looks = 1
	}
	return after
}

// An Infrastructure is the object that the machine runs on.
type Infrastructure struct {
	Exists     bool
	IsDeleting bool          // its deletion was requested; it may be gone since
	Name       string        // as it is shown: its kind, and its name if the dialect shows it
	Finalizers []string      // what holds the object while it is being deleted
	Problem    string        // why it can't be deleted or read
	RetryAfter time.Duration // the pause that the provider requests; zero means none
}

// A DeletionStep is the next step of a deletion.
type DeletionStep struct {
	Stage   DeletionStage
	Action  DeletionAction
	Reason  string // in CamelCase
	Message string
	// After is when to check again if no change is observed before; zero means never.
	After time.Duration
}

// A DeletionStage is a part of a deletion.
type DeletionStage string

// The stages of a deletion, whose order depends on the dialect.
const (
	BeforeDrain     DeletionStage = "BeforeDrain"
	Draining        DeletionStage = "Draining"
	BeforeTerminate DeletionStage = "BeforeTerminate"
	Terminating     DeletionStage = "Terminating"
	RemovingNode    DeletionStage = "RemovingNode"
	Completed       DeletionStage = "Completed"

	// These are Cluster API's.
	DetachingVolumes DeletionStage = "DetachingVolumes"
	RemovingConfig   DeletionStage = "RemovingConfig"
)

// A DeletionAction is what an adapter does for a step. After each action except for Wait and Release it requests the next step.
type DeletionAction string

// The actions.
const (
	Wait                 DeletionAction = "wait"
	Cordon               DeletionAction = "cordon"
	Evict                DeletionAction = "evict"                 // once; the remaining pods are in the next snapshot
	SkipDrain            DeletionAction = "skip drain"            // record it as done
	RecordDrained        DeletionAction = "record drained"        // record it as done
	DeleteInfrastructure DeletionAction = "delete infrastructure" // and wait until it is gone
	DeleteNode           DeletionAction = "delete node"
	Release              DeletionAction = "release" // remove the finalizer

	// These are Cluster API's.
	RecordStart     DeletionAction = "record start" // of the stage; its time is in the next snapshot
	LookAtVolumes   DeletionAction = "look at volumes"
	RecordDetached  DeletionAction = "record detached" // for this pass
	DeleteBootstrap DeletionAction = "delete bootstrap"
)

// A Phase is one part of a deletion. It returns false if it is over, or does not concern the machine.
type Phase func(Snapshot) (DeletionStep, bool)

// A Dialect is the phases of a deletion in their order. The last one always has a step.
type Dialect []Phase

// Next returns the next step.
func (d Dialect) Next(s Snapshot) DeletionStep {
	for _, phase := range d {
		if step, ok := phase(s); ok {
			return step
		}
	}
	return DeletionStep{Stage: Completed, Action: Release, Reason: "Deleted"}
}
