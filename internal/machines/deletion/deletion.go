// Package deletion decides how the deletion of a machine goes on: which phase it is in, what is to be
// done next, what it waits for, and when to look again. It is pure: a Snapshot goes in, a DeletionStep comes
// out, and no clock, cluster or memory is asked.
//
// Two APIs have machines, and their deletions differ in the order of the phases. So a dialect is a
// list of phases (phases.go), and the adapter of an API translates: what it sees into a Snapshot, a
// DeletionStep into requests and conditions.
//
// Dialect.Next is the call to start from.
package deletion

import "time"

// A Snapshot is what was seen of a machine that is being deleted.
type Snapshot struct {
	PreDrain       []DeletionHook
	PreTerminate   []DeletionHook
	IsExcluded     bool // its node is not to be drained
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
	// IsControlPlane says that the node is drained only while no other one of the control plane is:
	// a disruption budget of the control plane's pods would have each of two wait for the other.
	IsControlPlane bool
	// OthersCordoned are the other nodes of the control plane that take no pods.
	OthersCordoned []string
}

// A Drain is how far the draining of the node is.
type Drain struct {
	IsDone bool // it was recorded as done: it is never repeated
	// HasLooked says that pods were evicted since the last step, so that Left and Problem are known.
	HasLooked bool
	Left      []string // what holds each pod that is still there, in words; the first ones are told
	Problem   string   // why the pods could not be listed or evicted
	IsStuck   bool     // a pod is refused, or held by finalizers, so that waiting alone does not help
	Looks     int      // how often pods were evicted since there were last more of them
}

// Evicted returns the drain after pods were evicted once more. What is left, and whether a pod of those is refused, is
// not known if there was a problem.
func (d Drain) Evicted(left []string, isStuck bool, problem string) Drain {
	after := Drain{IsDone: d.IsDone, HasLooked: true, Left: left, Problem: problem, IsStuck: isStuck, Looks: d.Looks + 1}
	if problem == "" && d.Problem == "" && len(left) < len(d.Left) {
		after.Looks = 1
	}
	return after
}

// An Infrastructure is what the machine runs on.
type Infrastructure struct {
	Exists     bool
	IsDeleting bool          // its deletion was asked for; it may be gone since
	Name       string        // what people are told of it: its kind, and its name where the dialect says it
	Finalizers []string      // what holds the object while it is being deleted
	Problem    string        // why it can't be deleted or looked at
	RetryAfter time.Duration // when it wants to be asked again; zero leaves that to others
}

// A DeletionStep is what is to be done next.
type DeletionStep struct {
	Stage   DeletionStage
	Action  DeletionAction
	Reason  string // in CamelCase
	Message string
	// After is when to look again if nothing tells of a change before; zero means never.
	After time.Duration
}

// A DeletionStage is a part of a deletion.
type DeletionStage string

// The stages of a deletion. Which comes after which is the dialect's.
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

// A DeletionAction is what an adapter does for a step. After each one but Wait and Release it asks for the next step.
type DeletionAction string

// The actions.
const (
	Wait                 DeletionAction = "wait"
	Cordon               DeletionAction = "cordon"
	Evict                DeletionAction = "evict"                 // once; what is left is in the next snapshot
	SkipDrain            DeletionAction = "skip drain"            // record it as done
	RecordDrained        DeletionAction = "record drained"        // record it as done
	DeleteInfrastructure DeletionAction = "delete infrastructure" // and wait until it is gone
	DeleteNode           DeletionAction = "delete node"
	Release              DeletionAction = "release" // remove the finalizer

	// These are Cluster API's.
	RecordStart     DeletionAction = "record start" // that the stage has begun; its time is in the next snapshot
	LookAtVolumes   DeletionAction = "look at volumes"
	RecordDetached  DeletionAction = "record detached" // for this pass
	DeleteBootstrap DeletionAction = "delete bootstrap"
)

// A Phase is one part of a deletion. It returns false if it is over, or does not concern the machine.
type Phase func(Snapshot) (DeletionStep, bool)

// A Dialect is the phases of a deletion in their order. The last one always has a step.
type Dialect []Phase

// Next returns what is to be done next.
func (d Dialect) Next(s Snapshot) DeletionStep {
	for _, phase := range d {
		if step, ok := phase(s); ok {
			return step
		}
	}
	return DeletionStep{Stage: Completed, Action: Release, Reason: "Deleted"}
}
