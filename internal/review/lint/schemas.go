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

	"github.com/runlevel/runlevel/internal/objects/crd"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules validate objects against their schemas, with the API server's own code. That
// is slow, so it is done in parallel, and only once for definitions that are alike.

// A schemaCheck is one validation, and the manifests for which its problems are reported.
type schemaCheck struct {
	manifests []*manifest
	run       func() []crd.Problem
	problems  []crd.Problem
}

// schemaChecker validates a payload's CustomResourceDefinitions and custom resources. All
// rules share its results.
type schemaChecker struct {
	*subject
	definitions, resources []*schemaCheck

	equivalents map[*manifest]*manifest        // see firstEquivalent
	validators  map[*manifest]*schemaValidator // see validatorsOf
	check       func()                         // runs all checks, once
	overLimit   func() map[*manifest]bool      // definitions beyond maxRules
	resourceSum int                            // custom resources that are validated
}

func newSchemaChecker(s *subject) *schemaChecker {
	c := &schemaChecker{
		subject:     s,
		equivalents: map[*manifest]*manifest{},
		validators:  map[*manifest]*schemaValidator{},
	}
	c.check, c.overLimit = sync.OnceFunc(c.checkAll), sync.OnceValue(c.findOverLimit)
	return c
}

// checkAll runs all checks that enabled rules need.
func (c *schemaChecker) checkAll() {
	if c.isEnabled("definition") || c.isEnabled("unknown-field") {
		c.definitions = c.definitionChecks()
	}
	if c.isEnabled("custom-resource") || c.isEnabled("unknown-field") {
		c.resources = c.resourceChecks()
	}
	group, ctx := errgroup.WithContext(c.ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, check := range slices.Concat(c.definitions, c.resources) {
		group.Go(func() error {
			if ctx.Err() == nil {
				check.problems = check.run()
			}
			return ctx.Err()
		})
	}
	_ = group.Wait() // Run returns the error of the context
}

func (c *schemaChecker) isEnabled(id string) bool {
	rule, _ := FindRule(id)
	return c.config.severity(rule) != Off
}

// Limits of validation, so that a payload can't take unlimited time: OpenShift's have 2,700 rules, and a few
// hundred custom resources that cost next to nothing.
const (
	maxRules = 12_000     // CEL rules of definitions
	maxCosts = 20_000_000 // cost of the rules of all custom resources, in the API server's units, shared equally
)

// findOverLimit returns the definitions whose rules come after the first maxRules.
func (c *schemaChecker) findOverLimit() map[*manifest]bool {
	found := map[*manifest]bool{}
	rules := 0
	for _, m := range c.byKind[kinds.CustomResourceDefinition] {
		if c.firstEquivalent(m) == m && !m.isTombstone {
			rules += crd.CountRules(m.Object().Object)
			found[m] = rules > maxRules
		}
	}
	return found
}

// definitionChecks leaves out definitions that the previous payload has with the same text.
func (c *schemaChecker) definitionChecks() []*schemaCheck {
	var found []*schemaCheck
	byFirst := map[*manifest]*schemaCheck{}
	for _, m := range c.byKind[kinds.CustomResourceDefinition] {
		// removed-api reports other versions
		if m.isTombstone || c.isUnchanged(m) || !c.change.concerns(m) || m.kind.Version != "v1" {
			continue
		}
		first := c.firstEquivalent(m)
		if byFirst[first] == nil {
			isOverLimit := c.overLimit()[first]
			byFirst[first] = &schemaCheck{run: func() []crd.Problem {
				if isOverLimit {
					return []crd.Problem{{Message: fmt.Sprintf(
						"its schema is not checked: definitions of the release have more than %d CEL rules", maxRules,
					)}}
				}
				return crd.CheckDefinition(c.ctx, first.Object().Object)
			}}
			found = append(found, byFirst[first])
		}
		byFirst[first].manifests = append(byFirst[first].manifests, m)
	}
	return found
}

// isUnchanged reports whether the previous payload has a manifest with the same text.
func (c *schemaChecker) isUnchanged(m *manifest) bool {
	return c.previous != nil &&
		slices.ContainsFunc(c.previous.byID[m.id], func(old *manifest) bool { return m.SameTextAs(old.Manifest) })
}

// firstEquivalent returns the first manifest of the same object that differs only in its clusters. Half of the
// CustomResourceDefinitions of a real release are such copies.
func (c *schemaChecker) firstEquivalent(m *manifest) *manifest {
	if first, known := c.equivalents[m]; known { // the comparison is slow, and each custom resource needs it
		return first
	}
	c.equivalents[m] = m
	for _, other := range c.byID[m.id] {
		if other == m || !other.isTombstone && isEquivalent(other, m) {
			c.equivalents[m] = other
			break
		}
	}
	return c.equivalents[m]
}

func isEquivalent(a, b *manifest) bool {
	if a.kind != b.kind || !reflect.DeepEqual(a.get("spec"), b.get("spec")) ||
		!reflect.DeepEqual(a.get("status"), b.get("status")) {
		return false
	}
	choosesClusters := func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return strings.HasSuffix(domain, "openshift.io")
	}
	first, second := maps.Clone(a.annotations), maps.Clone(b.annotations)
	maps.DeleteFunc(first, choosesClusters)
	maps.DeleteFunc(second, choosesClusters)
	return maps.Equal(first, second)
}

// A schemaValidator is a CustomResourceDefinition that validates custom resources. It is compiled for the
// first custom resource.
type schemaValidator struct {
	manifest *manifest
	compiled func() *crd.Definition // returns nil for an invalid definition, which the rule definition reports
}

// validatorsOf returns the CustomResourceDefinitions that serve the version of a custom resource on
// the clusters that have it.
func (c *schemaChecker) validatorsOf(m *manifest) []*schemaValidator {
	var found []*schemaValidator
	for _, d := range c.defines[m.groupKind()] {
		if d.isTombstone || !slices.Contains(d.servedVersions(), m.kind.Version) || !c.shareCluster(d, m) {
			continue
		}
		first := c.firstEquivalent(d)
		if c.validators[first] == nil {
			isOverLimit := c.overLimit()[first]
			c.validators[first] = &schemaValidator{first, sync.OnceValue(func() *crd.Definition {
				compiled, err := crd.NewDefinition(first.Object().Object)
				if err != nil || isOverLimit {
					return nil
				}
				compiled.Limit(int64(maxCosts / max(1, c.resourceSum)))
				return compiled
			})}
		}
		if !slices.Contains(found, c.validators[first]) {
			found = append(found, c.validators[first])
		}
	}
	return found
}

func (c *schemaChecker) resourceChecks() []*schemaCheck {
	var found []*schemaCheck
	for _, m := range c.normal {
		for _, v := range c.validatorsOf(m) {
			if c.change.concerns(m) || c.change.concerns(v.manifest) {
				found = append(found, &schemaCheck{
					manifests: []*manifest{m},
					run:       func() []crd.Problem { return c.validate(v, m) },
				})
			}
		}
	}
	c.resourceSum = len(found)
	return found
}

func (c *schemaChecker) validate(v *schemaValidator, m *manifest) []crd.Problem {
	definition := v.compiled()
	if definition == nil {
		return nil
	}
	problems := definition.Check(c.ctx, m.Object().Object)
	if m.groupKind() == kinds.SecurityContextConstraints {
		problems = slices.DeleteFunc(problems, func(p crd.Problem) bool { return p.Missing })
	}
	return problems
}

func checkDefinition(s *subject, r *reporter) {
	s.schemas.check()
	r.schemaProblems(s.schemas.definitions, func(p crd.Problem) bool { return !p.Unknown })
}

func checkCustomResource(s *subject, r *reporter) {
	s.schemas.check()
	r.schemaProblems(s.schemas.resources, func(p crd.Problem) bool { return !p.Unknown })
}

func checkUnknownField(s *subject, r *reporter) {
	problemsOf(payload.UnknownField)(s, r)
	s.schemas.check()
	r.schemaProblems(slices.Concat(s.schemas.definitions, s.schemas.resources), func(p crd.Problem) bool {
		return p.Unknown
	})
}

// schemaProblems reports the problems of checks for which isWanted returns true. A problem that several variants of a
// definition have with a manifest is reported once.
func (r *reporter) schemaProblems(checks []*schemaCheck, isWanted func(crd.Problem) bool) {
	type report struct {
		manifest *manifest
		message  string
	}
	seen := map[report]bool{}
	for _, check := range checks {
		for _, problem := range check.problems {
			for _, m := range check.manifests {
				if key := (report{m, problem.Message}); isWanted(problem) && !seen[key] {
					seen[key] = true
					r.field(m, problem.Path, "%s", problem.Message)
				}
			}
		}
	}
}

// reportTransitions reports changes that a CustomResourceDefinition's transition rules forbid.
func (c *schemaChecker) reportTransitions(r *reporter, old, m *manifest) {
	if old.kind.Version != m.kind.Version {
		return
	}
	for _, v := range c.validatorsOf(m) {
		definition := v.compiled()
		if definition == nil {
			continue
		}
		known := definition.Check(c.ctx, m.Object().Object)
		for _, problem := range definition.CheckUpdate(c.ctx, old.Object().Object, m.Object().Object) {
			isNew := !slices.ContainsFunc(known, func(p crd.Problem) bool { return p.Message == problem.Message })
			if isNew && !problem.Unknown {
				r.field(m, problem.Path, "%s (it was different in %s:%d): take the change back", problem.Message,
					old.where(), old.Line)
			}
		}
	}
}
