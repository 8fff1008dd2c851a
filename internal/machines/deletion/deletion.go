// Package deletion has what the deletions of machines have in common in both APIs: the stages, what a phase returns, which Node
// is a machine's own, and the stage that a Machine records. It is pure: it maps values to values, and
// uses no clock, cluster or memory.
//
// It has no phase. The APIs differ in phases and in their order, so each has a list of its own, beside what they do:
// internal/machines/openshift/phases.go and internal/machines/capi/phases.go.
//
// DeletionPhase is the type to start from.
package deletion

import (
	"context"
	"time"
)

// A DeletionPhase is one part of a deletion, in a pass P: it looks at what it needs, acts, and returns what it waits for. It
// returns nil if it is over, or does not concern the machine: then the next phase begins.
type DeletionPhase[P any] func(pass P, ctx context.Context) (*DeletionWait, error)

// A DeletionWait is what a phase of a deletion waits for. Phases after it are not begun.
type DeletionWait struct {
	Stage   DeletionStage
	Reason  string // in CamelCase
	Message string
	// After is when to check again if no change is observed before; zero means never.
	After time.Duration
}

// A DeletionStage is a part of a deletion, as it is shown.
type DeletionStage string

// The stages of a deletion.
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
