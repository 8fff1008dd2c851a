package uninstall

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Stage contains the objects that are deleted at the same time. The next stage begins when all are deleted.
type Stage struct {
	Name    string
	Objects []objectmeta.LiveMetadata
}

// Counts returns how many objects of each kind the stage has.
func (s Stage) Counts() kinds.ObjectCounts { return countsOf(s.Objects) }

// stagesOf returns the stages in which objects are deleted.
func stagesOf(objects []objectmeta.LiveMetadata) []Stage {
	byStage := map[kinds.Stage][]objectmeta.LiveMetadata{}
	for _, head := range objects {
		stage := kinds.StageOf(head.ID.GroupKind())
		byStage[stage] = append(byStage[stage], head)
	}
	var stages []Stage
	for _, stage := range kinds.Stages() {
		if found := byStage[stage]; len(found) > 0 {
			stages = append(stages, Stage{Name: stage.String(), Objects: found})
		}
	}
	return stages
}

// kindsOf returns the kinds of objects, each once.
func kindsOf(objects []objectmeta.LiveMetadata) []schema.GroupKind {
	var found []schema.GroupKind
	for _, head := range objects {
		if kind := head.ID.GroupKind(); !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	return found
}
