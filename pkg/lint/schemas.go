package lint

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/crd"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules hold objects against their schemas, with the API server's own code. That
// is slow, so it is done in parallel, and only once for what is alike.

// A judgement is what a schema says of manifests.
type judgement struct {
	manifests []*manifest
	about     question
	weight    int // how long it takes, more or less
	ask       func() []crd.Problem
	problems  []crd.Problem
}

// judgements are those of a payload.
type judgements struct {
	definitions, resources []*judgement
}

// judge asks for all judgements that rules want, in parallel. It begins with what takes
// longest, so that nobody is left alone with it in the end.
func (s *subject) judge() (*judgements, error) {
	if s.judged != nil {
		return s.judged, nil
	}
	found := &judgements{}
	if s.wants("definition") || s.wants("unknown-field") {
		found.definitions = s.definitionsToJudge()
	}
	if s.wants("custom-resource") || s.wants("unknown-field") {
		found.resources = s.resourcesToJudge()
	}
	all := slices.Concat(found.definitions, found.resources)
	slices.SortStableFunc(all, func(a, b *judgement) int { return b.weight - a.weight })
	group, inGroup := errgroup.WithContext(s.ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, j := range all {
		group.Go(func() error {
			if inGroup.Err() == nil {
				j.problems = s.memory.answer(s.ctx, j.about, j.ask)
			}
			return inGroup.Err()
		})
	}
	s.judged = found
	return found, group.Wait()
}

// wants says whether a rule is to look.
func (s *subject) wants(id string) bool {
	rule, _ := FindRule(id)
	return s.config.severity(rule) != Off
}

// Limits of what is judged, so that a payload can't take all time: OpenShift's have 2,700 rules, and a few
// hundred custom resources that cost next to nothing.
const (
	maxRules = 12_000     // CEL rules of definitions
	maxCosts = 20_000_000 // of the rules of all custom resources, in the API server's units; each has an equal part
)

// isBeyond reports whether a definition is one too many for maxRules.
func (s *subject) isBeyond(definition *manifest) bool {
	if s.beyond != nil {
		return s.beyond[definition]
	}
	s.beyond = map[*manifest]bool{}
	rules := 0
	for _, m := range s.byKind[kinds.CustomResourceDefinition] {
		if first := s.firstLike(m); first == m && !m.isTombstone {
			rules += crd.CountRules(m.Object().Object)
			s.beyond[m] = rules > maxRules
		}
	}
	return s.beyond[definition]
}

// definitionsToJudge leaves out what the previous payload has already in the same
// words.
func (s *subject) definitionsToJudge() []*judgement {
	var found []*judgement
	alike := map[*manifest]*judgement{}
	for _, m := range s.byKind[kinds.CustomResourceDefinition] {
		if m.isTombstone || s.isOld(m) || !s.isAskedFor(m) || m.kind.Version != "v1" { // removed-api tells of others
			continue
		}
		first := s.firstLike(m)
		isBeyond := s.isBeyond(first)
		if alike[first] == nil {
			alike[first] = &judgement{about: question{definition: first.Sum()}, weight: len(m.Text()), ask: func() []crd.Problem {
				if isBeyond {
					return []crd.Problem{{Message: fmt.Sprintf("its schema is not checked: definitions of the release have more than %d CEL rules", maxRules)}}
				}
				return crd.CheckDefinition(s.ctx, first.Object().Object)
			}}
			found = append(found, alike[first])
		}
		alike[first].manifests = append(alike[first].manifests, m)
	}
	return found
}

// isOld says whether the previous payload has the very same manifest.
func (s *subject) isOld(m *manifest) bool {
	return s.previous != nil && slices.ContainsFunc(s.previous.byID[m.id], func(old *manifest) bool { return m.SameTextAs(old.Manifest) })
}

// firstLike is the first manifest of an object that differs from another in nothing
// but for which clusters it is: half of a real release's CustomResourceDefinitions are
// copies of others.
func (s *subject) firstLike(m *manifest) *manifest {
	if first, known := s.alike[m]; known { // they are large, and asked for by each custom resource
		return first
	}
	s.alike[m] = m
	for _, other := range s.byID[m.id] {
		if other == m || !other.isTombstone && isLike(other, m) {
			s.alike[m] = other
			break
		}
	}
	return s.alike[m]
}

func isLike(a, b *manifest) bool {
	if a.kind != b.kind || !reflect.DeepEqual(a.get("spec"), b.get("spec")) || !reflect.DeepEqual(a.get("status"), b.get("status")) {
		return false
	}
	isForOthers := func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return strings.HasSuffix(domain, "openshift.io")
	}
	left, right := maps.Clone(a.annotations), maps.Clone(b.annotations)
	maps.DeleteFunc(left, isForOthers)
	maps.DeleteFunc(right, isForOthers)
	return maps.Equal(left, right)
}

// A definition is a CustomResourceDefinition that checks custom resources, made ready
// when the first of them asks.
type definition struct {
	manifest *manifest
	prepare  func() *crd.Definition // nil for a bad one, which is told by itself
}

// definitionsOf are the CustomResourceDefinitions that clusters have beside a custom
// resource, if they serve its version.
func (s *subject) definitionsOf(m *manifest) []*definition {
	var found []*definition
	for _, d := range s.defines[m.groupKind()] {
		if d.isTombstone || !slices.Contains(servedVersions(d), m.kind.Version) || !s.areTogether(d, m) {
			continue
		}
		first := s.firstLike(d)
		isBeyond := s.isBeyond(first)
		if s.prepared[first] == nil {
			s.prepared[first] = &definition{first, sync.OnceValue(func() *crd.Definition {
				made, err := crd.NewDefinition(first.Object().Object)
				if err != nil || isBeyond {
					return nil
				}
				made.Limit(int64(maxCosts / max(1, s.customResources)))
				return made
			})}
		}
		if !slices.Contains(found, s.prepared[first]) {
			found = append(found, s.prepared[first])
		}
	}
	return found
}

// constraintsKind is the one custom resource whose missing fields OpenShift's API server
// fills in before it looks at them.
var constraintsKind = schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}

func (s *subject) resourcesToJudge() []*judgement {
	var found []*judgement
	for _, m := range s.normal {
		for _, d := range s.definitionsOf(m) {
			if !s.isAskedFor(m) && !s.isAskedFor(d.manifest) {
				continue
			}
			found = append(found, &judgement{
				manifests: []*manifest{m}, about: question{d.manifest.Sum(), m.Sum()}, weight: len(d.manifest.Text()),
				ask: func() []crd.Problem { return s.check(d, m) },
			})
		}
	}
	s.customResources = len(found)
	return found
}

func (s *subject) check(d *definition, m *manifest) []crd.Problem {
	definition := d.prepare()
	if definition == nil {
		return nil
	}
	problems := definition.Check(s.ctx, m.Object().Object)
	if m.groupKind() == constraintsKind {
		problems = slices.DeleteFunc(problems, func(p crd.Problem) bool { return p.Missing })
	}
	return problems
}

func checkDefinition(s *subject, r *reporter) error {
	judged, err := s.judge()
	if err == nil {
		r.judgements(judged.definitions, func(p crd.Problem) bool { return !p.Unknown })
	}
	return err
}

func checkCustomResource(s *subject, r *reporter) error {
	judged, err := s.judge()
	if err == nil {
		r.judgements(judged.resources, func(p crd.Problem) bool { return !p.Unknown })
	}
	return err
}

func checkUnknownField(s *subject, r *reporter) error {
	if err := problemsOf(payload.UnknownField)(s, r); err != nil {
		return err
	}
	judged, err := s.judge()
	if err == nil {
		r.judgements(slices.Concat(judged.definitions, judged.resources), func(p crd.Problem) bool { return p.Unknown })
	}
	return err
}

// judgements reports what was judged. Variants of a definition that say the same of a
// manifest do so once.
func (r *reporter) judgements(judged []*judgement, isMeant func(crd.Problem) bool) {
	type said struct {
		manifest *manifest
		message  string
	}
	seen := map[said]bool{}
	for _, j := range judged {
		for _, problem := range j.problems {
			for _, m := range j.manifests {
				if what := (said{m, problem.Message}); isMeant(problem) && !seen[what] {
					seen[what] = true
					r.field(m, problem.Path, "%s", problem.Message)
				}
			}
		}
	}
}

// reportTransitions reports what the rules of a CustomResourceDefinition forbid to
// change.
func (s *subject) reportTransitions(r *reporter, old, m *manifest) {
	if old.kind.Version != m.kind.Version {
		return
	}
	for _, d := range s.definitionsOf(m) {
		definition := d.prepare()
		if definition == nil {
			continue
		}
		known := definition.Check(s.ctx, m.Object().Object)
		for _, problem := range definition.CheckUpdate(s.ctx, old.Object().Object, m.Object().Object) {
			isNew := !slices.ContainsFunc(known, func(p crd.Problem) bool { return p.Message == problem.Message })
			if isNew && !problem.Unknown {
				r.field(m, problem.Path, "%s (it was otherwise in %s:%d): take the change back", problem.Message, old.where(), old.Line)
			}
		}
	}
}
