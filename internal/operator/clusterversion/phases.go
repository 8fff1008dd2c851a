package clusterversion

import (
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/phase"
)

// A PhasedUpdate is an update that opens for one cluster after the other. It may have no risks.
type PhasedUpdate struct {
	configv1.ConditionalUpdate
	Phase phase.Phase
}

// At returns the offer for a cluster at a time, in which phased updates are open, or have a sentence in NotOpen. It
// also returns when the next one opens; zero if no time is known.
func (o *Offer) At(c phase.Cluster, now time.Time) (*Offer, time.Time) {
	var opensAt time.Time
	open := *o
	open.Phased, open.Updates, open.Conditional = nil, slices.Clone(o.Updates), slices.Clone(o.Conditional)
	for _, update := range o.Phased {
		turn, isKnown := update.Phase.Turn(c, update.Release.Version)
		turn = turn.Add(o.Ahead) // on the clock of this cluster
		switch {
		case !isKnown || now.Before(turn):
			open.NotOpen = append(open.NotOpen, update.describeTurn(c))
			if isKnown && (opensAt.IsZero() || turn.Before(opensAt)) {
				opensAt = turn
			}
		case update.Risks == nil:
			open.Updates = append(open.Updates, update.Release)
		default:
			open.Conditional = append(open.Conditional, update.ConditionalUpdate)
		}
	}
	return &open, opensAt
}

// describeTurn returns when an update opens for a cluster. A ring without a ramp of its own may be a typing error.
func (p *PhasedUpdate) describeTurn(c phase.Cluster) string {
	text := ""
	switch turn, isKnown := p.Phase.Turn(c, p.Release.Version); {
	case p.Phase.Halt != "":
		return fmt.Sprintf("%s is halted: %s", p.Release.Version, p.Phase.Halt)
	case isKnown:
		text = fmt.Sprintf("%s opens for this cluster at %s", p.Release.Version, moment(turn))
	default:
		text = p.Release.Version + " does not open for this cluster: its ramp is paused, or has no start yet"
	}
	if _, hasRing := p.Phase.Rings[c.Ring]; c.Ring != "" && !hasRing && len(p.Phase.Rings) > 0 {
		text += fmt.Sprintf(" (by the ramp of clusters without a ring, because it has none for ring %q)",
			printable.Line(c.Ring))
	}
	return text
}

// phaseNotes returns the updates that are not open for this cluster yet, and an error in its settings.
func (r *Retrieved) phaseNotes() []string {
	var notes []string
	if r.Problem != "" {
		notes = append(notes, r.Problem)
	}
	if r.Offer != nil && len(r.Offer.NotOpen) > 0 {
		notes = append(notes, list("Updates that are not open yet", r.Offer.NotOpen))
	}
	return notes
}
