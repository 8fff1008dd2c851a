package rehearse

import (
	"fmt"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// findings collects the observations of a rehearsal.
type findings struct {
	observations []lint.Observation
	manifests    map[kinds.ID]*payload.Manifest // manifests of the new release
}

// newObservation returns an observation of a rule in the new release.
func newObservation(rule, format string, args ...any) lint.Observation {
	return lint.Observation{Rule: rule, Message: fmt.Sprintf(format, args...)}
}

// add adds an observation. All observations of the previous release have one rule, since that release can't be changed.
func (f *findings) add(observation lint.Observation) {
	if observation.In == lint.InPrevious {
		observation.Rule = lint.RehearsalPrevious
	}
	f.observations = append(f.observations, observation)
}

// addForManifest adds an observation at a manifest.
func (f *findings) addForManifest(m *payload.Manifest, observation lint.Observation) {
	observation.Path, observation.Line, observation.Object = m.Path, m.Line, m.ID().String()
	f.add(observation)
}

// addForObject adds an observation about an object, at its manifest if the new release has one.
func (f *findings) addForObject(id kinds.ID, observation lint.Observation) {
	if m := f.manifests[id]; m != nil {
		f.addForManifest(m, observation)
		return
	}
	observation.Object = id.String()
	f.add(observation)
}

// addSkipped adds a difference between the rehearsal of a manifest and a real cluster. Differences of the previous
// release are left out.
func (f *findings) addSkipped(origin lint.Origin, m *payload.Manifest, difference string) {
	if origin == lint.InPayload {
		f.addForManifest(m, newObservation(lint.RehearsalNotTried, "%s", difference))
	}
}

// addRefusals adds the refusals of a manifest by the API server.
func (f *findings) addRefusals(origin lint.Origin, m *payload.Manifest, refusals []fields.Refusal) {
	for _, refusal := range refusals {
		observation := newObservation(lint.RehearsalRefused, "%s%s", fields.Refuses, refusal.Message)
		observation.In, observation.Field = origin, refusal.Path
		f.addForManifest(m, observation)
	}
}

// manifestsOf returns the manifests of a release; none if it is nil.
func manifestsOf(release *payload.Payload) []*payload.Manifest {
	if release == nil {
		return nil
	}
	return release.Manifests
}

// manifestsByID returns the manifests of a release by their objects.
func manifestsByID(release *payload.Payload) map[kinds.ID]*payload.Manifest {
	manifests := map[kinds.ID]*payload.Manifest{}
	for _, m := range manifestsOf(release) {
		manifests[m.ID()] = m
	}
	return manifests
}
