// Package overview says of the machines of a cluster how they stand and what holds each: which lifecycle hook of
// which owner, which pod and disruption budget, which infrastructure object, which finalizer. It reads the APIs
// of machine.openshift.io and cluster.x-k8s.io only, so it is right about machines that other controllers manage, too.
//
// What a machine of OpenShift's API waits for follows from the phases of its deletion (package deletion), so that an overview
// and the machine controller can't differ; one of Cluster API's tells it. It changes nothing. What can't be read is told as unknown, and the rest is told
// all the same.
//
// List is the call to start from; Explain says more about one machine.
package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// The kinds of machines that are looked at.
var (
	Kind           = schema.GroupKind{Group: "machine.openshift.io", Kind: "Machine"}
	ClusterAPIKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
)

// A MachineOverview is how a machine stands.
type MachineOverview struct {
	APIGroup  string `json:"apiGroup"` // machine.openshift.io or cluster.x-k8s.io
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
	// Phase is the machine's own: Provisioning, Provisioned, Running, Deleting or Failed. It is Deleting as soon as
	// the machine is deleted, whether its controller has noticed or not.
	Phase string    `json:"phase"`
	Since time.Time `json:"since"` // when the phase began, or an earlier moment if that is not told anywhere
	// Stage is the part of the deletion.
	Stage deletion.DeletionStage `json:"stage,omitempty"`
	// Holds is what the machine waits for, the most telling first; Later are the hooks whose turn has not come.
	Holds      []MachineHold `json:"holds,omitempty"`
	Later      []MachineHold `json:"later,omitempty"`
	ProviderID string        `json:"providerID,omitempty"`
	Unknown    []string      `json:"unknown,omitempty"` // what could not be found out
	// Unlisted are the groups of the APIs whose machines could not be listed: those that are not in the list need not be gone.
	Unlisted []string `json:"-"`
}

// IsDone returns whether the machine waits for nothing: it runs, and is not deleted.
func (m *MachineOverview) IsDone() bool { return m.Phase == "Running" && len(m.Holds) == 0 }

// ID names the machine.
func (m *MachineOverview) ID() kinds.ID {
	return kinds.ID{Group: m.APIGroup, Kind: Kind.Kind, Namespace: m.Namespace, Name: m.Name}
}

// A MachineHold is one thing that a machine waits for.
type MachineHold struct {
	Type MachineHoldType `json:"type"`
	// Name is that of the hook or the finalizer.
	Name  string `json:"name,omitempty"`
	Owner string `json:"owner,omitempty"` // of the hook
	// Object is the pod, node or infrastructure object.
	Object     *kinds.ID  `json:"object,omitempty"`
	Budgets    []string   `json:"podDisruptionBudgets,omitempty"` // of the pod: those that allow no disruption
	Toleration string     `json:"toleration,omitempty"`           // of the pod: that by which such pods come to a cordoned node
	Finalizers []string   `json:"finalizers,omitempty"`           // of the object
	Message    string     `json:"message,omitempty"`              // what is known beyond that, in words
	Since      *time.Time `json:"since,omitempty"`
	key        string     // of the hook's annotation, or its place in the Machine's list
}

// A MachineHoldType is what kind of thing a machine waits for.
type MachineHoldType string

// What machines wait for.
const (
	PreDrainHook     MachineHoldType = "PreDrainHook"
	PreTerminateHook MachineHoldType = "PreTerminateHook"
	Pod              MachineHoldType = "Pod"              // that is to leave the node
	ControlPlaneNode MachineHoldType = "ControlPlaneNode" // another one, which is drained
	Infrastructure   MachineHoldType = "Infrastructure"   // that is made, or goes
	Node             MachineHoldType = "Node"             // that is to join
	Volume           MachineHoldType = "Volume"           // that is to be detached from the node
	Bootstrap        MachineHoldType = "Bootstrap"        // its object that is made, or goes
	Update           MachineHoldType = "Update"           // in place, which goes on
	Finalizer        MachineHoldType = "Finalizer"        // of another controller
	Controller       MachineHoldType = "Controller"       // it has something to do, and has not done it
	Failure          MachineHoldType = "Failure"          // the machine has failed: only its deletion helps
)
