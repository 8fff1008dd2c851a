package object

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/trouble"
)

// A Previewer says what an Applier would do, by dry runs on the server. What depends on what is not there yet is
// said not to be checked, or held against the definition that the payload itself brings.
type Previewer struct {
	*Applier
	payload *payload.Payload
	coming  map[schema.GroupKind]*comingDefinition // by the kinds that they define
	asker   trouble.Asker
}

// NewPreviewer returns one for the manifests of a payload.
func NewPreviewer(a *Applier, release *payload.Payload) *Previewer {
	p := &Previewer{Applier: a, payload: release, asker: trouble.Asker{Cluster: a.cluster}}
	p.coming = p.comingDefinitions()
	return p
}

// Preview says what would come of a manifest.
func (p *Previewer) Preview(m *payload.Manifest) (Change, error) {
	if m.IsTombstone() {
		return p.insist(func() (Change, error) { return p.tombstone(m) })
	}
	for _, definition := range p.coming {
		if definition.manifest == m {
			return definition.foresee() // which those that are held against it may have asked for before
		}
	}
	return p.insist(func() (Change, error) { return p.object(m) })
}

// insist tries again what has failed because too much is asked for at a time, or because
// nobody could be asked just then.
func (p *Previewer) insist(try func() (Change, error)) (Change, error) {
	const tries = 4
	pause := Backoff()
	for attempt := 1; ; attempt++ {
		change, err := try()
		if err == nil || attempt == tries || !IsNoAnswer(err) || !Pause(p.requests, max(pause.Step(), WantedPause(err))) {
			return change, err
		}
	}
}
