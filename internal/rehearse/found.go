package rehearse

import (
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// findings are what a rehearsal has shown until now.
type findings struct{ seen []lint.RehearsalObservation }

// add adds an observation. Those of the previous release are of one rule: it can't be changed any more.
func (f *findings) add(seen lint.RehearsalObservation) {
	if seen.In == lint.InPrevious {
		seen.Rule = lint.RehearsalPrevious
	}
	f.seen = append(f.seen, seen)
}

// about adds an observation about a manifest.
func (f *findings) about(m *payload.Manifest, seen lint.RehearsalObservation) {
	seen.Path, seen.Line, seen.Object = m.Path, m.Line, m.ID().String()
	f.add(seen)
}

// notTried adds what is not as on a real cluster. Of the previous release, that is no observation.
func (f *findings) notTried(in lint.Origin, m *payload.Manifest, why string) {
	if in == lint.InPayload {
		f.about(m, lint.RehearsalObservation{Rule: lint.RehearsalNotTried, Message: why})
	}
}
