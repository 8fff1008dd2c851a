// Package clusterversion computes the status of a ClusterVersion: conditions, history and the version, from the state
// that the operator has observed at one moment and from the previous status. It is pure: it sends no requests, and the
// time is that of the observation.
//
// Next is the call to start from; Risks are what blocks a minor update, and Announce returns the events of a release
// that is being accepted. The types and reasons are those of OpenShift's cluster-version operator, so that oc and other
// clients can read them.
package clusterversion

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// Seen is the state that the operator has observed at one moment.
type Seen struct {
	Now        time.Time
	Generation int64    // of the ClusterVersion whose spec was read
	Invalid    []string // the errors in its spec; a sentence each

	Overrides []configv1.ComponentOverride // of the spec
	Gates     []precondition.AdminGate     // that no administrator has acknowledged
	Operators []configv1.ClusterOperator   // all of the cluster

	// Acceptance is the phase of the release that the spec requests, from its retrieval until it is applied.
	Acceptance Acceptance
	// Applied is the release that is applied, or kept in place. It is nil until the first one is.
	Applied *AppliedRelease
	// Retrieved is the last answer of the update service. Nil leaves the updates of the previous status as they are.
	Retrieved *Retrieved
}

// An AppliedRelease is a release that is being applied, or is kept in place, and its progress.
type AppliedRelease struct {
	Release      configv1.Release
	Hash         string // of its files, as they are kept on the cluster
	Forced       string // the risks that were accepted; empty if there were none
	Verified     bool   // its signature was verified
	Capabilities configv1.ClusterVersionCapabilitiesStatus
	// Implicit are the capabilities that are enabled though the spec does not enable them, as they were before.
	Implicit []configv1.ClusterVersionCapability

	Mode        graph.Mode // graph.Reconcile if it was complete once; empty until the record has the apply
	Done, Total int        // manifests
	IsComplete  bool       // all of it was applied, and is ready
	// Problems are the waits and failures that keep it from being complete, or from being kept in place.
	Problems []ReleaseProblem
	// MissingOperators are the ClusterOperators of a complete release that do not exist. They may have been deleted
	// with their definition, and their conditions are not known.
	MissingOperators []string
	// Deletes are the pending ones.
	Deletes []precondition.Delete
}

// A ReleaseProblem is an object that does not match the release, and what it waits for or why it has failed, or a
// failure without an object.
type ReleaseProblem struct {
	apply.Wait
	IsWait bool // it is waited for; otherwise it has failed
}

// HasObject reports whether the problem is one of an object.
func (p ReleaseProblem) HasObject() bool { return p.ID.Kind != "" }

// An AcceptancePhase is a phase of a release before it is applied.
type AcceptancePhase string

// The phases, in their order. Events are named after them.
const (
	Retrieving AcceptancePhase = "RetrievePayload"      // its image is read
	Loading    AcceptancePhase = "LoadPayload"          // its manifests are read
	Verifying  AcceptancePhase = "VerifyPayloadVersion" // its version is compared with the requested one
	Judging    AcceptancePhase = "PreconditionChecks"   // the gate runs
	Accepted   AcceptancePhase = "PayloadLoaded"        // it is applied
)

// An Acceptance is the state of the requested release before it is applied.
type Acceptance struct {
	Release      configv1.Release // as requested: its version may be empty, and its image
	Architecture string
	FeatureSet   string // that the cluster has chosen; empty or "Default" if it has chosen none
	Phase        AcceptancePhase
	// Err is why it is not accepted. It is tried again. Nil means that the phase runs, or that the release is accepted.
	Err error
	// Findings are those of the gate, of a requested release.
	Findings  []precondition.CheckFinding
	WasJudged bool // the gate ran: it does not judge the release that an operator starts with
	// Unverified is why a release was accepted although nothing has verified its image. It is empty if the image was
	// verified, or nothing new is known.
	Unverified string
	// AcceptedRisk is why the image could not be verified, of a release that was forced.
	AcceptedRisk string
}
