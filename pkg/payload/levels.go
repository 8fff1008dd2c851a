package payload

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file gives levels to releases whose files have none, such as manifests that another tool has rendered: an object
// comes before the objects that need it. One file that begins with 0000_ is enough for the names of files to decide.

// The levels of the Jobs of other tools' hooks.
const (
	beforeLevel kinds.Level = "45" // before custom resources and workloads
	afterLevel  kinds.Level = "90"
)

// orderByKind gives levels to the manifests of a release without numbered files, with their kinds as the components. It
// reports whether it has.
func orderByKind(files []*manifestFile) bool {
	own := map[schema.GroupKind]bool{}
	var all []*Manifest
	for _, file := range files {
		if strings.HasPrefix(path.Base(file.Path), "0000_") {
			return false
		}
		all = append(all, file.manifests...)
	}
	for _, m := range all {
		if m.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition {
			own[kinds.DefinedBy(m.object)] = true
		}
	}
	places := placesOf(all, own)
	stages := stagesOf(all, places, own)
	for _, m := range all {
		p := places[m]
		m.foreign = p
		if slices.Contains(p.mapped, HelmDependsAnnotation) {
			dropDepends(m.object)
		}
		stage, level := p.stage, levelOf(m.GroupVersionKind().GroupKind(), own)
		switch {
		case p.phase == before:
			stage, level = stages.ofWorkloads, beforeLevel
		case p.phase == after:
			stage, level = stages.numbers[len(stages.numbers)-1], afterLevel
		case p.phase == never:
			stage = stages.numbers[0]
		case p.needed != "" && level < beforeLevel:
			stage = stages.numbers[0]
			p.add(p.needed, "of a hook")
		}
		m.order = "0000_" + stages.prefix(stage) + string(level) + "_" + strings.ToLower(m.object.GetKind()) + "_"
	}
	// hooks have an order
	splitKinds(slices.DeleteFunc(all, func(m *Manifest) bool { return places[m].phase != applied }))
	return true
}

// dropDepends removes the annotation of Helm with two slashes, which API servers refuse.
func dropDepends(object *unstructured.Unstructured) {
	annotations := object.GetAnnotations()
	if delete(annotations, HelmDependsAnnotation); len(annotations) == 0 {
		annotations = nil // removes an empty mapping
	}
	object.SetAnnotations(annotations)
}

// maxOfKind limits the manifests of a kind in one component, since those are applied one after the other. The
// components of a larger kind have partOfKind manifests each.
const maxOfKind, partOfKind = 50, 12

// splitKinds gives the manifests of a large kind to several components of its level, which are applied side by side.
func splitKinds(all []*Manifest) {
	count, placed := map[string]int{}, map[string]int{}
	for _, m := range all {
		count[m.order]++
	}
	for _, m := range all {
		if order := m.order; count[order] > maxOfKind {
			m.order = fmt.Sprintf("%s-%d_", strings.TrimSuffix(order, "_"), placed[order]/partOfKind+1)
			placed[order]++
		}
	}
}

// stages are the stages of a release, in order. Each has all levels of kinds.
type stages struct {
	numbers     []int
	ofWorkloads int // the first that has more than what workloads need, or else the first of all
}

// stagesOf returns the stages of manifests, without hooks and what they need.
func stagesOf(all []*Manifest, places map[*Manifest]*ForeignPlace, own map[schema.GroupKind]bool) stages {
	var s stages
	var working []int
	for _, m := range all {
		p := places[m]
		if p.phase != applied || p.needed != "" {
			continue
		}
		s.numbers = append(s.numbers, p.stage)
		if levelOf(m.GroupVersionKind().GroupKind(), own) > beforeLevel {
			working = append(working, p.stage)
		}
	}
	if len(s.numbers) == 0 {
		s.numbers = []int{0}
	}
	slices.Sort(s.numbers)
	s.numbers = slices.Compact(s.numbers)
	if s.ofWorkloads = s.numbers[0]; len(working) > 0 {
		s.ofWorkloads = slices.Min(working)
	}
	return s
}

// prefix returns the prefix of the level of a kind in a stage: the place of the stage if there are several stages, ""
// otherwise.
func (s stages) prefix(stage int) string {
	if len(s.numbers) == 1 {
		return ""
	}
	position, _ := slices.BinarySearch(s.numbers, stage)
	return fmt.Sprintf("%0*d", len(strconv.Itoa(len(s.numbers))), position+1)
}

// levelOf returns the level of a kind, by the kinds that the release defines itself.
func levelOf(kind schema.GroupKind, own map[schema.GroupKind]bool) kinds.Level {
	level, isKnown := kinds.LevelOf(kind)
	switch {
	case isKnown:
		return level
	case own[kind]:
		return kinds.CustomLevel
	default:
		return kinds.ForeignLevel
	}
}
