// Package clusterversion computes the status of a ClusterVersion: conditions, history and the version. The input is the
// previous status, and the state of the cluster and of the operator at one moment. The package is pure: it sends no
// requests, and it reads no clock.
//
// Risks returns the risks that block a minor update, Preflight has those of a preflight (preflight.go), Expose those of
// all offered updates (exposure.go), and Announce returns the events of a requested release. The types and reasons are
// those of OpenShift's cluster-version operator: oc and other clients can read them. Start with Next.
package clusterversion

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An Observation is the state of the cluster and of the operator at one moment.
type Observation struct {
	Now        time.Time
	Generation int64    // generation of the ClusterVersion whose spec was read
	Invalid    []string // the errors in its spec; a sentence each

	Overrides     []configv1.ComponentOverride // overrides of the spec
	AcceptedRisks []string                     // names of the risks that the spec accepts
	Gates         []precondition.AdminGate     // gates that no administrator has acknowledged
	Operators     []configv1.ClusterOperator   // all of the cluster

	// Acceptance is the state of the release that the spec requests.
	Acceptance Acceptance
	// Preflight is the state of a preflight; nil if the spec requests none.
	Preflight *Preflight
	// Applied is the current release. It is nil until a release is accepted.
	Applied *AppliedRelease
	// Retrieved is the last response of the update service. Nil leaves the updates of the previous status unchanged.
	Retrieved *Retrieved
	// Monitoring is the state of the Prometheus; nil without one.
	Monitoring *Monitoring
}

// An AppliedRelease is the current release and its progress: the operator applies it, or keeps it in place.
type AppliedRelease struct {
	Release      configv1.Release
	Hash         string // hash of the copy of its files on the cluster
	Forced       string // the risks that were accepted; empty if there were none
	Verified     bool   // its signature was verified
	Capabilities configv1.ClusterVersionCapabilitiesStatus
	// Implicit are capabilities that stay enabled because they were before, although the spec does not enable them.
	Implicit []configv1.ClusterVersionCapability

	Mode        graph.Mode // graph.Reconcile if it was complete once; empty until the record has the apply
	Done, Total int        // manifests
	IsKept      bool       // all objects that the operator can read were applied, and are ready
	IsComplete  bool       // all objects of the release were applied, and are ready
	// Problems are the waits and failures because of which the release is not complete, or not kept in place.
	Problems []ReleaseProblem
	// MissingOperators are the ClusterOperators of a kept release that do not exist. Their conditions are unknown:
	// they may have been deleted with their definition.
	MissingOperators []string
	Deletes          []precondition.Delete // the pending ones
}

// A ReleaseProblem is a failure, or an object that the operator waits for.
type ReleaseProblem struct {
	apply.Wait
	IsWait      bool // the operator waits for the object; otherwise there is a failure
	IsContested bool // another writer reverts repairs of the object again and again
}

// HasObject reports whether the problem is about an object.
func (p ReleaseProblem) HasObject() bool { return p.ID.Kind != "" }

// An AcceptancePhase is a state of the requested release.
type AcceptancePhase string

// The phases, in their order. Events are named after them.
const (
	Retrieving AcceptancePhase = "RetrievePayload"      // the operator verifies signatures, and pulls the image
	Loading    AcceptancePhase = "LoadPayload"          // it reads the manifests
	Verifying  AcceptancePhase = "VerifyPayloadVersion" // it compares the version with the requested one
	Judging    AcceptancePhase = "PreconditionChecks"   // it runs the gate
	Accepted   AcceptancePhase = "PayloadLoaded"        // the release is the current one
)

// An Acceptance is the state of the requested release, until it is the current one.
type Acceptance struct {
	Release      configv1.Release // requested release: its version or its image may be empty
	Architecture string
	FeatureSet   string // feature set of the cluster; empty or "Default" if none is set
	Phase        AcceptancePhase
	// Err refuses the release in this phase. It is nil while the phase runs, and once the release is accepted.
	Err       error
	Findings  []precondition.Finding // findings of the gate
	WasJudged bool                   // the gate ran
	// Unverified explains why no signature of the image was verified, if the current release requires none.
	Unverified string
	// Unread are the parts of the release that the operator does not know; a line each.
	Unread []string
	// AcceptedRisk explains why the image could not be verified, if the release was forced.
	AcceptedRisk string
}
