// Package phase decides when a cluster may take an update offered in phases. It is pure: the graph has the
// phases, and each cluster computes its own turn, so an update service keeps no state and may be a static file.
//
// A ramp opens an update for a growing share of the clusters, as Fedora CoreOS does. Each cluster draws a number from
// its ID and the version, so that no cluster is always among the first. The package neither counts failures nor writes
// halts: package halt does.
//
// Start with Phase.Turn.
package phase

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Phase offers edges of a graph in phases. The update graph lists them in the field phasedEdges, which
// clients that do not know it ignore.
type Phase struct {
	Edges []Edge          `json:"edges"`
	Risks json.RawMessage `json:"risks,omitempty"` // as those of conditionalEdges; none for edges without risks
	// First are IDs of clusters that do not wait for the ramp.
	First []string        `json:"first,omitempty"`
	Ramp  Ramp            `json:"ramp"`
	Rings map[string]Ramp `json:"rings,omitempty"` // instead of Ramp, for the clusters of a ring
	Halt  string          `json:"halt,omitempty"`  // why no cluster may take the edges; empty if they are not halted
}

// An Edge is an update from a version to another.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// A Ramp opens an update for a share of the clusters. The share is Percentage at the start, and grows linearly to all
// clusters until the duration has passed. Without a duration it stays: the ramp is paused. Without a start, it is
// closed.
type Ramp struct {
	Start      metav1.Time     `json:"start,omitzero"`
	Percentage float64         `json:"percentage,omitempty"` // 0 to 100
	Duration   metav1.Duration `json:"duration,omitzero"`
}

// A Cluster is the client of a graph.
type Cluster struct {
	ID       string
	Ring     string
	Wariness *float64 // replaces the drawn number: 0 takes updates as one of the first, 1 as the last
}

// Turn returns when the update to a version opens for a cluster; false if that time is not known, because the phase is
// halted, or its ramp paused or not started.
func (p *Phase) Turn(c Cluster, version string) (time.Time, bool) {
	ramp, hasRing := p.Rings[c.Ring]
	if !hasRing {
		ramp = p.Ramp
	}
	switch {
	case p.Halt != "":
		return time.Time{}, false
	case c.ID != "" && slices.Contains(p.First, c.ID):
		return time.Time{}, true
	}
	return ramp.reaches(c.number(version))
}

// IsOpenForAll returns whether no cluster has to wait any more, those of any ring included.
func (p *Phase) IsOpenForAll(now time.Time) bool {
	isComplete := func(r Ramp) bool {
		end, isKnown := r.reaches(1)
		return isKnown && !now.Before(end)
	}
	for _, ramp := range p.Rings {
		if !isComplete(ramp) {
			return false
		}
	}
	return p.Halt == "" && isComplete(p.Ramp)
}

// number returns the share of the clusters that take a version before this one.
func (c Cluster) number(version string) float64 {
	if c.Wariness != nil {
		return *c.Wariness
	}
	sum := sha256.Sum256([]byte(c.ID + "\n" + version))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53)
}

// reaches returns when the ramp reaches the number of a cluster; false if it does not.
func (r Ramp) reaches(number float64) (time.Time, bool) {
	share := r.Percentage / 100
	switch {
	case r.Start.IsZero():
		return time.Time{}, false
	case number < share || share >= 1:
		return r.Start.Time, true
	case r.Duration.Duration == 0:
		return time.Time{}, false
	}
	wait := (number - share) / (1 - share) * float64(r.Duration.Duration)
	return r.Start.Add(time.Duration(wait)), true
}

// Share returns the share of clusters for which the ramp is open.
func (r Ramp) Share(now time.Time) float64 {
	passed := now.Sub(r.Start.Time)
	switch share := r.Percentage / 100; {
	case r.Start.IsZero() || passed < 0:
		return 0
	case r.Duration.Duration == 0:
		return share
	default:
		return min(share+(1-share)*float64(passed)/float64(r.Duration.Duration), 1)
	}
}

// Validate returns the first problem of a ramp.
func (r Ramp) Validate() error {
	switch {
	case r.Percentage < 0 || r.Percentage > 100:
		return fmt.Errorf("percentage %v is not between 0 and 100", r.Percentage)
	case r.Duration.Duration < 0:
		return fmt.Errorf("duration %s is negative", r.Duration.Duration)
	case r.Start.IsZero() && r.Percentage+float64(r.Duration.Duration) > 0:
		return errors.New("a ramp with a percentage or a duration needs a start, such as 2026-12-01T08:00:00Z")
	}
	return nil
}
