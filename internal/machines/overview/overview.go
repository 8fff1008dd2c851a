// Package overview reports the state of the machines of a cluster and what holds each: which lifecycle hook of which
// owner, which pod and disruption budget, which infrastructure object, which finalizer. It reads only the APIs
// machine.openshift.io and cluster.x-k8s.io, so it is right about machines that other controllers manage, too.
//
// The stage of a deletion is read from the conditions that the controllers of both APIs write. Facts that the
// conditions omit are read from the objects that a machine waits for: all pods of a drain, the infrastructure, the
// node. The package changes nothing. Objects that can't be read are reported as unknown.
//
// Start with List. Explain returns details of one machine or one control plane, and Explainers returns Explain for the
// verb why.
package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// The kinds of machines.
var (
	Kind           = schema.GroupKind{Group: "machine.openshift.io", Kind: "Machine"}
	ClusterAPIKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
)

// The kinds of objects that replace the machines of a control plane.
var (
	ControlPlaneMachineSetKind = schema.GroupKind{Group: Kind.Group, Kind: "ControlPlaneMachineSet"}
	RunlevelControlPlaneKind   = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "RunlevelControlPlane"}
)

// Explainers returns the explainers of machines and control planes.
func Explainers() []diagnosis.Explainer {
	return []diagnosis.Explainer{{
		Kinds: []schema.GroupKind{Kind, ClusterAPIKind}, Subject: "what holds the machine", Explain: Explain,
	}, {
		Kinds:   []schema.GroupKind{ControlPlaneMachineSetKind, RunlevelControlPlaneKind},
		Subject: "what it waits for", Explain: Explain,
	}}
}

// A Machine is the state of a machine.
type Machine struct {
	APIGroup  string `json:"apiGroup"` // machine.openshift.io or cluster.x-k8s.io
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
	// Phase is the phase of the machine: Provisioning, Provisioned, Running, Deleting or Failed. It is Deleting as soon
	// as the machine has a deletion timestamp, even before its controller writes the phase.
	Phase string    `json:"phase"`
	Since time.Time `json:"since"` // the start of the phase, or an earlier time if that is not recorded
	// Stage is the stage of the deletion.
	Stage deletion.Stage `json:"stage,omitempty"`
	// Holds are the reasons why the machine waits, the most important first; Later are the hooks of later stages.
	Holds      []Hold   `json:"holds,omitempty"`
	Later      []Hold   `json:"later,omitempty"`
	ProviderID string   `json:"providerID,omitempty"`
	Unknown    []string `json:"unknown,omitempty"` // failed reads
	// ControlPlane is the control plane that has the machine; nil if none has it.
	ControlPlane *Membership `json:"controlPlane,omitempty"`
	// Unlisted are the groups of the APIs whose machines could not be listed: machines may be missing in the list.
	Unlisted []string `json:"-"`
}

// IsDone reports whether the machine waits for nothing: it runs, and is not being deleted.
func (m *Machine) IsDone() bool { return m.Phase == "Running" && len(m.Holds) == 0 }

// ID identifies the machine.
func (m *Machine) ID() kinds.ID {
	return kinds.ID{Group: m.APIGroup, Kind: Kind.Kind, Namespace: m.Namespace, Name: m.Name}
}

// A Hold is one thing that a machine waits for.
type Hold struct {
	Type  HoldType `json:"type"`
	Name  string   `json:"name,omitempty"`  // name of the hook or the finalizer
	Owner string   `json:"owner,omitempty"` // owner of the hook
	// Object is the pod, node or infrastructure object.
	Object  *kinds.ID `json:"object,omitempty"`
	Budgets []string  `json:"podDisruptionBudgets,omitempty"` // the pod's disruption budgets that allow no disruption
	// of the pod, by which it is scheduled to a cordoned node
	Toleration string     `json:"toleration,omitempty"`
	Finalizers []string   `json:"finalizers,omitempty"`
	Message    string     `json:"message,omitempty"` // details, in words
	Since      *time.Time `json:"since,omitempty"`

	key    string   // name of the hook's annotation, or its path in the Machine
	remedy []string // advice for an administrator; a command comes last, on a line of its own
}

// A HoldType is the kind of thing that a machine waits for.
type HoldType string

// The types of holds.
const (
	PreDrainHook     HoldType = "PreDrainHook"
	PreTerminateHook HoldType = "PreTerminateHook"
	Pod              HoldType = "Pod"              // a pod on the node
	ControlPlaneNode HoldType = "ControlPlaneNode" // another node being drained
	Infrastructure   HoldType = "Infrastructure"   // being created or deleted
	Node             HoldType = "Node"             // a node that has not joined yet
	NodeNotReady     HoldType = "NodeNotReady"     // or missing, so that a running machine of a set is not ready
	Volume           HoldType = "Volume"           // attached to the node
	Bootstrap        HoldType = "Bootstrap"        // object being created or deleted
	Update           HoldType = "Update"           // an update in place
	Remediation      HoldType = "Remediation"      // the remediation of an unhealthy machine
	Finalizer        HoldType = "Finalizer"        // a finalizer of another controller
	Controller       HoldType = "Controller"       // a controller that has not acted yet
	Failure          HoldType = "Failure"          // the machine has failed and must be deleted
)

// A ControlPlane is the state of an object that replaces the machines of a control plane.
type ControlPlane struct {
	APIGroup  string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	State     string `json:"state,omitempty"` // Active; or Inactive or Paused: it changes nothing
	Strategy  string `json:"strategy"`
	Desired   int    `json:"desired"`
	Updated   int    `json:"updated"`
	Ready     int    `json:"ready"` // available replicas for a RunlevelControlPlane
	// Degraded is the reason why it does nothing; empty if nothing stops it.
	Degraded string `json:"degraded,omitempty"`
	Waits    string `json:"waits,omitempty"` // the reason why the control plane waits, or is stopped

	members []member // the members in the order of their indexes
	remedy  []string // advice for an administrator about Waits
}

// ID identifies the control plane.
func (c *ControlPlane) ID() kinds.ID {
	return kinds.ID{Group: c.APIGroup, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// A Membership is the position of a machine in a control plane.
type Membership struct {
	Set   *ControlPlane `json:"set"`
	Index *int          `json:"index,omitempty"`
	// IsUpToDate reports whether the machine matches the template; nil if only another controller knows.
	IsUpToDate *bool `json:"isUpToDate,omitempty"`
}

// A member is a machine of a control plane.
type member struct {
	id kinds.ID
	Membership
	text string // its position, its failure domain and whether it is up to date
}

// Members returns the machines of a list that belong to the control plane, in the order of their indexes.
func (c *ControlPlane) Members(list []Machine) []Machine {
	byID := map[kinds.ID]Machine{}
	for _, m := range list {
		byID[m.ID()] = m
	}
	var members []Machine
	for _, member := range c.members {
		if m, ok := byID[member.id]; ok {
			members = append(members, m)
		}
	}
	return members
}
