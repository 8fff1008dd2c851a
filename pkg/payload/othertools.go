package payload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file reads the annotations by which other tools order objects. The annotations only count in a release without
// numbered files, since such a release was written for another tool.

// The annotations of other tools on the order of objects.
const (
	HelmHookAnnotation    = "helm.sh/hook"
	HelmWeightAnnotation  = "helm.sh/hook-weight"
	HelmGroupAnnotation   = "helm.sh/resource-group"
	HelmDependsAnnotation = "helm.sh/depends-on/resource-groups" // a list in JSON
	ArgoHookAnnotation    = "argocd.argoproj.io/hook"
	ArgoWaveAnnotation    = "argocd.argoproj.io/sync-wave"
	KappGroupAnnotation   = "kapp.k14s.io/change-group" // may have a suffix that begins with a dot
	KappRuleAnnotation    = "kapp.k14s.io/change-rule"  // the same
)

// deletePolicies are the annotations with the time at which the Job of a hook is deleted. Runlevel recreates a Job that
// changes.
var deletePolicies = []string{"helm.sh/hook-delete-policy", "argocd.argoproj.io/hook-delete-policy"}

// A foreignPhase is the phase in which another tool applies an object.
type foreignPhase int

const (
	applied foreignPhase = iota
	before               // a hook that runs before everything else
	after                // one that runs after everything else
	never                // a hook of an uninstall, a rollback or a failure
)

// phases are the points of other tools at which hooks run, without the points of tests.
var phases = map[string]foreignPhase{
	"pre-install": before, "pre-upgrade": before, "post-install": after, "post-upgrade": after,
	"pre-delete": never, "post-delete": never, "pre-rollback": never, "post-rollback": never,
	"PreSync": before, "PostSync": after, "Skip": never, "SyncFail": never, "PreDelete": never, "PostDelete": never,
}

// A ForeignPlace is the place of an object in the order of another tool; nil if the file of the object has a number.
type ForeignPlace struct {
	phase   foreignPhase // phase of a Job; other kinds can only have never
	needed  string       // the annotation by which an object other than a Job comes before everything else
	stage   int          // those with a smaller one come before
	weight  int          // among the hooks of a phase
	mapped  []string     // the annotations that the place follows from
	reasons []string
}

// ownPlace returns the place of an object by its own annotations.
func (m *Manifest) ownPlace() ForeignPlace {
	var p ForeignPlace
	annotation := m.annotation
	if text := annotation(ArgoWaveAnnotation); text != "" {
		if wave, err := strconv.Atoi(text); err == nil {
			p.stage = wave
			p.add(ArgoWaveAnnotation, "sync-wave "+text)
		}
	}
	key := ArgoHookAnnotation
	if annotation(key) == "" {
		key = HelmHookAnnotation // Argo CD reads it if there is no hook of its own
	}
	events := annotation(key)
	phase, isOne := phaseOf(events)
	isJob := m.GroupVersionKind().GroupKind() == kinds.Job
	switch {
	case !isOne:
	case phase == never || isJob:
		p.phase = phase
		p.add(key, "hook "+events)
	case phase == before:
		p.needed = key
	}
	if !isOne || !isJob || phase == never {
		return p
	}
	for _, key := range deletePolicies {
		if annotation(key) != "" {
			p.mapped = append(p.mapped, key)
		}
	}
	p.weight = p.stage
	if text := annotation(HelmWeightAnnotation); text != "" {
		if weight, err := strconv.Atoi(text); err == nil {
			p.weight = weight
			p.add(HelmWeightAnnotation, "weight "+text)
		}
	}
	return p
}

func (p *ForeignPlace) add(annotation, reason string) {
	p.mapped, p.reasons = append(p.mapped, annotation), append(p.reasons, reason)
}

// phaseOf returns the one phase of all points at which a hook runs, and whether there is one. Points that an apply does
// not have only count if there are no others.
func phaseOf(events string) (foreignPhase, bool) {
	if events == "" {
		return applied, false
	}
	var found []foreignPhase
	for event := range strings.SplitSeq(events, ",") {
		phase, isKnown := phases[strings.TrimSpace(event)]
		if !isKnown {
			return applied, false
		}
		if !slices.Contains(found, phase) {
			found = append(found, phase)
		}
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(phase foreignPhase) bool { return phase == never })
	}
	return found[0], len(found) == 1
}

// placesOf returns the places of objects in the order of other tools, by the kinds that the release defines itself.
func placesOf(all []*Manifest, own map[schema.GroupKind]bool) map[*Manifest]*ForeignPlace {
	places := make(map[*Manifest]*ForeignPlace, len(all))
	hasWaves := false
	for _, m := range all {
		p := m.ownPlace()
		places[m] = &p
		hasWaves = hasWaves || slices.Contains(p.mapped, ArgoWaveAnnotation)
	}
	if !hasWaves {
		placeByRules(all, places)
		placeByGroups(all, places, own)
	}
	return places
}

// An edge puts what comes second into a later stage: an object, or a group of Helm by its name.
type edge struct{ first, second any }

// stagesBy returns the stages of all that edges have, and whether there are any: not if edges are a circle.
func stagesBy(edges []edge) (stages map[any]int, areStages bool) {
	stages = map[any]int{}
	for _, e := range edges {
		stages[e.first], stages[e.second] = 0, 0
	}
	for round := 0; round <= len(edges)+1; round++ {
		isStable := true
		for _, e := range edges {
			if stages[e.second] <= stages[e.first] {
				stages[e.second], isStable = stages[e.first]+1, false
			}
		}
		if isStable {
			return stages, true
		}
	}
	return nil, false
}

// placeByRules sets the stages of objects by the rules of kapp that put them after or before groups of others. Rules
// that contradict each other set none.
func placeByRules(all []*Manifest, places map[*Manifest]*ForeignPlace) {
	groups := map[string][]*Manifest{}
	for _, m := range all {
		for _, group := range m.annotationsOf(KappGroupAnnotation) {
			groups[group.value] = append(groups[group.value], m)
		}
	}
	var edges []edge
	for _, m := range all {
		for _, rule := range m.annotationsOf(KappRuleAnnotation) {
			group, isAfter, isSimple := simpleRule(rule.value)
			for _, other := range groups[group] {
				switch {
				case !isSimple:
				case isAfter:
					edges = append(edges, edge{other, m})
				default:
					edges = append(edges, edge{m, other})
				}
			}
		}
	}
	stages, areStages := stagesBy(edges)
	if !areStages {
		return
	}
	for _, m := range all {
		place := places[m]
		place.stage = stages[m]
		for _, group := range m.annotationsOf(KappGroupAnnotation) {
			place.mapped = append(place.mapped, group.key)
		}
		for _, rule := range m.annotationsOf(KappRuleAnnotation) {
			if _, _, isSimple := simpleRule(rule.value); isSimple {
				place.add(rule.key, rule.value)
			}
		}
	}
}

// placeByGroups sets the stages of objects by the resource groups of Helm. An object that no dependency is about comes
// last, as in Helm, unless others may need it: by its kind, it comes before workloads. Groups that form a cycle set no
// stages.
func placeByGroups(all []*Manifest, places map[*Manifest]*ForeignPlace, own map[schema.GroupKind]bool) {
	members := map[any]bool{}
	for _, m := range all {
		if group := m.annotation(HelmGroupAnnotation); group != "" && places[m].phase == applied {
			members[group] = true
		}
	}
	var edges []edge
	groupOf, dependsOn := map[*Manifest]any{}, map[*Manifest][]string{}
	for _, m := range all {
		if groupOf[m] = m; m.annotation(HelmGroupAnnotation) != "" {
			groupOf[m] = m.annotation(HelmGroupAnnotation)
		}
		var groups []string
		_ = json.Unmarshal([]byte(m.annotation(HelmDependsAnnotation)), &groups)
		if places[m].phase != applied ||
			slices.ContainsFunc(groups, func(group string) bool { return !members[group] }) {
			continue
		}
		dependsOn[m] = groups
		for _, group := range groups {
			edges = append(edges, edge{group, groupOf[m]})
		}
	}
	stages, areStages := stagesBy(edges)
	if len(edges) == 0 || !areStages {
		return
	}
	last := slices.Max(slices.Collect(maps.Values(stages))) + 1
	for _, m := range all {
		stage, isOrdered := stages[groupOf[m]]
		p := places[m]
		switch group := m.annotation(HelmGroupAnnotation); {
		case p.phase != applied:
			continue
		case isOrdered && group != "":
			p.add(HelmGroupAnnotation, "resource-group "+group)
		case group != "":
			p.mapped = append(p.mapped, HelmGroupAnnotation)
		}
		if len(dependsOn[m]) > 0 {
			p.add(HelmDependsAnnotation, "depends on "+strings.Join(dependsOn[m], ", "))
		}
		if p.stage = max(p.stage, stage); !isOrdered && levelOf(m.GroupVersionKind().GroupKind(), own) > beforeLevel {
			p.stage = last
		}
	}
}

// simpleRule reads a rule of kapp that only orders the objects that are applied.
func simpleRule(rule string) (group string, isAfter, isSimple bool) {
	words := strings.Fields(rule)
	if len(words) != 4 || words[0] != "upsert" || words[2] != "upserting" ||
		words[1] != "after" && words[1] != "before" {
		return "", false, false
	}
	return words[3], words[1] == "after", true
}

// An annotation is an annotation of an object.
type annotation struct{ key, value string }

// annotationsOf returns the annotations of a key, and of the key with a dot and more behind it, sorted.
func (m *Manifest) annotationsOf(key string) []annotation {
	var found []annotation
	for name, value := range m.annotations() {
		if name == key || strings.HasPrefix(name, key+".") {
			text, _ := value.(string)
			found = append(found, annotation{name, text})
		}
	}
	slices.SortFunc(found, func(a, b annotation) int { return strings.Compare(a.key, b.key) })
	return found
}

// leftOut returns the exclusion of a manifest that another tool does not apply either; nil if it does.
func (p *ForeignPlace) leftOut(m *Manifest) *Exclusion {
	if p == nil || p.phase != never {
		return nil
	}
	return &Exclusion{
		Manifest: m,
		Filter:   ByHook,
		Reason:   fmt.Sprintf("%s is of an uninstall, a rollback or a failure: it is not run by an apply", p.Reason()),
	}
}

// weightOf returns the weight of another tool's hook.
func (p *ForeignPlace) weightOf() int {
	if p == nil {
		return 0
	}
	return p.weight
}

// Reason returns the annotations of another tool that determine the place, in words: "sync-wave 2".
func (p *ForeignPlace) Reason() string {
	if p == nil {
		return ""
	}
	return strings.Join(p.reasons, ", ")
}

// Mapped returns the annotations of another tool that determine the place.
func (p *ForeignPlace) Mapped() []string {
	if p == nil {
		return nil
	}
	return p.mapped
}

// IsHookJob reports whether the object is the Job of another tool's hook, which that tool runs anew each time.
func (p *ForeignPlace) IsHookJob() bool { return p != nil && (p.phase == before || p.phase == after) }

// Foreign returns the place of the object in the order of another tool.
func (m *Manifest) Foreign() *ForeignPlace { return m.foreign }

// RecreateAnnotation allows to delete an object and create it again, if a field has to change that can't be changed.
const RecreateAnnotation = "runlevel.dev/recreate"

// IsRecreated reports whether the object may be deleted and created again, if a field has to change that can't be
// changed.
func (m *Manifest) IsRecreated() bool {
	return m.annotation(RecreateAnnotation) == "true" || m.foreign.IsHookJob()
}
