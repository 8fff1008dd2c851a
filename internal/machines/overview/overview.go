// Package overview reports the state of the machines of a cluster and what holds each: which lifecycle hook of
// which owner, which pod and disruption budget, which infrastructure object, which finalizer. It reads only the APIs
// machine.openshift.io and cluster.x-k8s.io, so it is right about machines that other controllers manage, too.
//
// The stage of a deletion is read from the conditions that the controllers of both APIs write. What they leave out is
// read from the objects that a machine waits for: all pods of a drain, the infrastructure, the node. The package
// changes nothing. Objects that can't be read are reported as unknown.
//
// List is the call to start from; Explain returns details of one machine, and ExplainControlPlane those of what
// replaces the machines of a control plane.
package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// The kinds of machines.
var (
	Kind           = schema.GroupKind{Group: "machine.openshift.io", Kind: "Machine"}
	ClusterAPIKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
)

// A MachineOverview is the state of a machine.
type MachineOverview struct {
	APIGroup  string `json:"apiGroup"` // machine.openshift.io or cluster.x-k8s.io
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
	// Phase is the phase of the machine: Provisioning, Provisioned, Running, Deleting or Failed. It is Deleting as soon
	// as the machine has a deletion timestamp, even before its controller writes the phase.
	Phase string    `json:"phase"`
	Since time.Time `json:"since"` // when the phase began, or an earlier time if that is not recorded
	// Stage is the stage of the deletion.
	Stage deletion.Stage `json:"stage,omitempty"`
	// Holds is what the machine waits for, the most important first; Later are the hooks of later stages.
	Holds      []MachineHold `json:"holds,omitempty"`
	Later      []MachineHold `json:"later,omitempty"`
	ProviderID string        `json:"providerID,omitempty"`
	Unknown    []string      `json:"unknown,omitempty"` // failed reads
	// ControlPlane is what replaces the machine, if it is one of a control plane.
	ControlPlane *MachineMembership `json:"controlPlane,omitempty"`
	// Unlisted are the groups of the APIs whose machines could not be listed: machines may be missing in the list.
	Unlisted []string `json:"-"`
}

// IsDone reports whether the machine waits for nothing: it runs, and is not being deleted.
func (m *MachineOverview) IsDone() bool { return m.Phase == "Running" && len(m.Holds) == 0 }

// ID identifies the machine.
func (m *MachineOverview) ID() kinds.ID {
	return kinds.ID{Group: m.APIGroup, Kind: Kind.Kind, Namespace: m.Namespace, Name: m.Name}
}

// A MachineHold is one thing that a machine waits for.
type MachineHold struct {
	Type MachineHoldType `json:"type"`
	// Name is the name of the hook or the finalizer.
	Name  string `json:"name,omitempty"`
	Owner string `json:"owner,omitempty"` // of the hook
	// Object is the pod, node or infrastructure object.
	Object  *kinds.ID `json:"object,omitempty"`
	Budgets []string  `json:"podDisruptionBudgets,omitempty"` // of the pod, if they allow no disruption
	// of the pod, by which it is scheduled to a cordoned node
	Toleration string     `json:"toleration,omitempty"`
	Finalizers []string   `json:"finalizers,omitempty"` // of the object
	Message    string     `json:"message,omitempty"`    // details, in words
	Since      *time.Time `json:"since,omitempty"`
	key        string     // of the hook's annotation, or its index in the Machine's list
}

// A MachineHoldType is the kind of thing that a machine waits for.
type MachineHoldType string

// What machines wait for.
const (
	PreDrainHook     MachineHoldType = "PreDrainHook"
	PreTerminateHook MachineHoldType = "PreTerminateHook"
	Pod              MachineHoldType = "Pod"              // on the node
	ControlPlaneNode MachineHoldType = "ControlPlaneNode" // another node that is being drained
	Infrastructure   MachineHoldType = "Infrastructure"   // that is being created or deleted
	Node             MachineHoldType = "Node"             // that has to join
	NodeNotReady     MachineHoldType = "NodeNotReady"     // or gone, for which a running machine of a set is not ready
	Volume           MachineHoldType = "Volume"           // that is attached to the node
	Bootstrap        MachineHoldType = "Bootstrap"        // object that is being created or deleted
	Update           MachineHoldType = "Update"           // in place
	Remediation      MachineHoldType = "Remediation"      // of an unhealthy machine
	Finalizer        MachineHoldType = "Finalizer"        // of another controller
	Controller       MachineHoldType = "Controller"       // that has still to act
	Failure          MachineHoldType = "Failure"          // the machine has failed: only its deletion helps
)
