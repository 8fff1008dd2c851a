// Package clusterversion computes what a ClusterVersion says of a release: conditions, history and the version, from what the
// operator has seen at one moment and from the status before. It is pure: it sends no requests, and time is that of what was
// seen.
//
// Next is the call to start from; Risks are what holds back a minor update, and Announce what is told of a release on
// its way to being applied. The types and reasons are those of OpenShift's cluster-version operator, so that oc and other
// clients can read them.
package clusterversion

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// Seen is what the operator knows at one moment.
type Seen struct {
	Now        time.Time
	Generation int64    // of the ClusterVersion whose spec was read
	Invalid    []string // what is wrong with its spec; a sentence each

	Overrides []configv1.ComponentOverride // of the spec
	Gates     []precondition.AdminGate     // that no administrator has acknowledged
	Operators []configv1.ClusterOperator   // all of the cluster

	// Acceptance is how far the release is that the spec asks for, from its retrieval until it is applied.
	Acceptance Acceptance
	// Applied is the release that is applied, or kept in place. It is nil until the first one is.
	Applied *AppliedRelease
	// Retrieved is what the update service has said of it. Nil leaves the updates of the previous status as they are.
	Retrieved *Retrieved
}

// An AppliedRelease is a release that is being applied, or is kept in place, and how far that is.
type AppliedRelease struct {
	Release      configv1.Release
	Hash         string // of its payload
	Forced       string // the risks that were accepted; empty if there were none
	Verified     bool   // its signature was verified
	Capabilities configv1.ClusterVersionCapabilitiesStatus
	// Implicit are the capabilities that are enabled though the spec does not ask for them, as they were before.
	Implicit []configv1.ClusterVersionCapability

	Mode        graph.Mode // graph.Reconcile says that it was complete once; empty until the record has the apply
	Done, Total int        // manifests
	IsComplete  bool       // all of it was applied, and is ready
	// Problems are what keeps it from being complete, or from being kept in place: what is waited for, and what fails.
	Problems []ReleaseProblem
	// MissingOperators are the ClusterOperators of a complete release that are not there. They may have been deleted
	// with their definition, and what they said is not known.
	MissingOperators []string
	// Deletes are those that were asked for, and are not done.
	Deletes []precondition.Delete
}

// A ReleaseProblem is an object that is not as the release wants it, or a failure that has no object.
type ReleaseProblem struct {
	Object  *kinds.ID
	Hook    string // the stage of the object's lifecycle hook, if it is that which waits or has failed
	File    string
	Message string
	Reason  string
	Effect  reason.Effect
	Since   time.Time // when it began, if that is known
	IsWait  bool      // it is waited for; otherwise it has failed
	IsRetry bool      // what has failed is tried again
}

// An AcceptancePhase is how far a release is on its way to being applied.
type AcceptancePhase string

// The phases, in their order. Events are named after them.
const (
	Retrieving AcceptancePhase = "RetrievePayload"      // its image is read
	Loading    AcceptancePhase = "LoadPayload"          // its manifests are read
	Verifying  AcceptancePhase = "VerifyPayloadVersion" // its version is compared with the one that was asked for
	Judging    AcceptancePhase = "PreconditionChecks"   // the gate is asked
	Accepted   AcceptancePhase = "PayloadLoaded"        // it is applied
)

// An Acceptance is how far the release that is asked for is on its way to being applied.
type Acceptance struct {
	Release      configv1.Release // as it was asked for: its version may be empty, and its image
	Architecture string
	FeatureSet   string // that the cluster has chosen; empty or "Default" if it has chosen none
	Phase        AcceptancePhase
	// Err is why it goes no further. It is tried again. Nil means that the phase runs, or that the release is accepted.
	Err error
	// Findings are those of the gate, of a release that was asked for.
	Findings  []precondition.CheckFinding
	WasJudged bool // the gate was asked: what an operator begins with, it does not judge
	// Unverified is why a release was accepted although nothing has verified its image. It is empty if the image was
	// verified, or nothing new is known.
	Unverified string
	// AcceptedRisk is why the image could not be verified, of a release that was forced.
	AcceptedRisk string
}
