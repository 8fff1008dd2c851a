package lint

import (
	"slices"
	"strings"

	"github.com/openshift/api/features"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules are about single objects, and the objects that they need.

// checkMissingNamespace reports each namespace once.
func checkMissingNamespace(s *subject, r *reporter) {
	seen := sets.New(ownedByKubernetes...).Insert(s.config.Known.Namespaces...)
	for _, m := range s.normal {
		namespace := m.id.Namespace
		if namespace == "" || seen.Has(namespace) || s.scopeOf(m) == kinds.Cluster {
			continue
		}
		holders, normal := s.namespaces(namespace), 0
		cluster, isWithout := s.clusterWithout(m, holders)
		if !isWithout {
			continue
		}
		missing := "is not in the payload"
		if clusterText := cluster.String(); len(holders) > 0 && clusterText != "" {
			missing += " on a cluster with " + clusterText
		}
		for _, other := range s.inside[namespace] {
			if !other.isTombstone {
				normal++
			}
		}
		seen.Insert(namespace)
		r.field(m, []string{"metadata", "namespace"},
			"the Namespace %s %s (%s in it): add it, or list it as known in the configuration", namespace, missing,
			printable.Count(normal, "object"))
	}
}

// checkOutOfOrder reports the dependencies that contradict the order of files.
func checkOutOfOrder(s *subject, r *reporter) {
	type need struct {
		task int
		id   kinds.ID
	}
	seen := map[need]bool{} // the variants of a needed object count once
	for _, conflict := range s.implied().Conflicts {
		m, needs := s.manifests[conflict.Task], s.manifests[conflict.Needs]
		if kinds.HasWebhooks(m.groupKind()) && len(m.backends()) == 0 { // the API server ignores failures of these
			continue
		}
		if key := (need{conflict.Task, needs.id}); !seen[key] && s.shareCluster(m, needs) {
			seen[key] = true
			r.at(m, "it is applied before %s (%s:%d), but %s: rename the file, or move the object after that", needs.id,
				needs.Path, needs.Line, conflict.Why)
		}
	}
}

// A vocabulary is the set of names that an annotation may have.
type vocabulary struct {
	annotation string
	noun       string // noun in messages for the object that has the name
	separator  string
	known      sets.Set[string]
}

// report reports names that are not known.
func (v vocabulary) report(s *subject, r *reporter) {
	for _, m := range s.manifests {
		for _, name := range v.unknown(m) {
			follows := "no cluster gets this"
			if v.annotation == payload.FeatureGateAnnotation && strings.HasPrefix(name, "-") {
				name, follows = strings.TrimPrefix(name, "-"), "it is off on every cluster, and the minus has no effect"
			}
			r.field(m, annotation(v.annotation),
				"unknown %s %q, so %s%s (if it is your own, list it as known in the configuration)", v.noun, name,
				follows, v.hint(name))
		}
	}
}

// unknown returns the names of a manifest that are not known. Feature gates may have blanks
// around them. An empty name is only an error among feature sets.
func (v vocabulary) unknown(m *manifest) []string {
	value, named := m.annotations[v.annotation]
	if !named || value == "" && v.annotation != payload.FeatureSetAnnotation {
		return nil
	}
	var found []string
	for name := range strings.SplitSeq(value, v.separator) {
		if v.annotation == payload.FeatureGateAnnotation {
			name = strings.TrimSpace(name)
			if name == "" || v.known.Has(strings.TrimPrefix(name, "-")) {
				continue
			}
		}
		if !v.known.Has(name) {
			found = append(found, name)
		}
	}
	return found
}

// hint returns a correction of a name; "" if none is similar.
func (v vocabulary) hint(name string) string {
	if v.known.Has(strings.TrimSpace(name)) {
		return ": drop the blank"
	}
	if best := printable.Nearest(name, sets.List(v.known), 3); best != "" {
		return ": did you mean " + best + "?"
	}
	return ""
}

func capabilities(config Config) vocabulary {
	known := sets.New(config.Known.Capabilities...).Insert(payload.KnownCapabilities()...)
	return vocabulary{payload.CapabilityAnnotation, "capability", "+", known}
}

func featureSets(config Config) vocabulary {
	known := sets.New(config.Known.FeatureSets...).Insert(payload.FeatureSets()...)
	return vocabulary{payload.FeatureSetAnnotation, "feature set", ",", known}
}

func featureGates(config Config) vocabulary {
	known := sets.New(config.Known.FeatureGates...)
	for _, profiles := range features.AllFeatureSets() {
		for _, sets := range profiles {
			for _, gates := range sets {
				for _, gate := range slices.Concat(gates.Enabled, gates.Disabled) {
					known.Insert(string(gate.FeatureGateAttributes.Name))
				}
			}
		}
	}
	return vocabulary{payload.FeatureGateAnnotation, "feature gate", ",", known}
}

func checkUnknownCapability(s *subject, r *reporter) {
	capabilities(s.config).report(s, r)
}

func checkUnknownFeatureSet(s *subject, r *reporter) {
	featureSets(s.config).report(s, r)
}

func checkUnknownFeatureGate(s *subject, r *reporter) {
	featureGates(s.config).report(s, r)
}

// checkNeverApplied skips manifests about which other rules report more.
func checkNeverApplied(s *subject, r *reporter) {
	sets := featureSets(s.config)
	for _, m := range s.normal {
		if s.shareCluster(m, m) || len(sets.unknown(m)) > 0 || m.hasSetAndGate() ||
			m.isForMajorVersions() && !m.mayHaveMajorVersion() {
			continue
		}
		r.field(m, []string{"metadata", "annotations"},
			`no cluster gets it: its annotations contradict each other, or an %sPROFILE is not "true": fix them, or drop the manifest`, payload.IncludePrefix)
	}
}

func (m *manifest) hasSetAndGate() bool {
	_, set := m.annotations[payload.FeatureSetAnnotation]
	_, gate := m.annotations[payload.FeatureGateAnnotation]
	return set && gate
}

func checkFeatureSetAndGate(s *subject, r *reporter) {
	for _, m := range s.manifests {
		if m.hasSetAndGate() {
			r.field(m, annotation(payload.FeatureGateAnnotation),
				"%s and %s don't go together: OpenShift refuses a manifest with both; keep one",
				payload.FeatureSetAnnotation, payload.FeatureGateAnnotation)
		}
	}
}

func (m *manifest) isForMajorVersions() bool {
	_, named := m.annotations[payload.MajorVersionAnnotation]
	return named
}

func (m *manifest) mayHaveMajorVersion() bool {
	return m.groupKind() == kinds.CustomResourceDefinition ||
		m.groupKind() == kinds.FeatureGate
}

func checkMajorVersionKind(s *subject, r *reporter) {
	manifests := slices.Clone(s.manifests)
	for _, exclusion := range s.Excluded { // manifests excluded by the major version, if the release has one
		manifests = append(manifests, newManifest(exclusion.Manifest))
	}
	for _, m := range manifests {
		if m.isForMajorVersions() && !m.mayHaveMajorVersion() {
			kind := m.kind.Kind
			if kind == "FeatureGate" {
				kind += " of " + m.kind.Group
			}
			r.field(m, annotation(payload.MajorVersionAnnotation),
				"%s only works for a CustomResourceDefinition or a FeatureGate of config.openshift.io: no cluster "+
					"gets this %s; drop it", payload.MajorVersionAnnotation, kind)
		}
	}
}

// checkImageNotInRelease checks the images of containers.
func checkImageNotInRelease(s *subject, r *reporter) {
	known := sets.New[string]()
	for _, spec := range s.Images {
		known.Insert(spec)
	}
	for _, m := range s.normal {
		if m.groupKind() == kinds.CustomResourceDefinition || !kinds.IsWorkload(m.groupKind()) && m.kind.Kind != "Pod" {
			continue
		}
		for _, found := range keysNamed("image", m.Object().Object["spec"], []string{"spec"}) {
			path := found.path
			if isContainer := len(path) > 2 &&
				strings.HasSuffix(strings.ToLower(path[len(path)-3]), "containers"); !isContainer {
				continue
			}
			// in a template, "" is the image of the release itself
			if image, isText := found.value.(string); isText && image != "" && !known.Has(image) {
				r.field(m, path, "the image %s is not in image-references: it is not part of the release, and can't "+
					"be pulled where only the release's images can: add it to image-references, or correct it", image)
			}
		}
	}
}

// checkNoReadinessProbe looks for workloads that count as ready once their containers have started.
func checkNoReadinessProbe(s *subject, r *reporter) {
	for _, m := range s.normal {
		if names := ready.WithoutProbe(m.Object()); len(names) > 0 {
			r.field(m, []string{"spec", "template", "spec", "containers"},
				"%s counts as available as soon as it has started, whether it works or not: add a readinessProbe, or "+
					"set spec.minReadySeconds", strings.Join(names, ", "))
		}
	}
}

func checkJobRunsAgain(s *subject, r *reporter) {
	for _, m := range s.normal {
		if _, isRemoved := m.TimeToLive(); isRemoved && !m.isTest {
			r.field(m, []string{"spec", "ttlSecondsAfterFinished"},
				"Kubernetes removes the Job when it is done. An apply that has waited for its end does not run it "+
					"again; one that has not does, and so does the cluster-version operator: drop "+
					"ttlSecondsAfterFinished")
		}
	}
}

func checkReadyExpression(s *subject, r *reporter) {
	for _, m := range s.normal {
		text, marked := m.annotations[ready.Annotation]
		if !marked {
			continue
		}
		if err := ready.Validate(text); err != nil {
			r.field(m, annotation(ready.Annotation), "%s is wrong: %s", ready.Annotation, err)
		}
	}
}

func checkRecreateRefused(s *subject, r *reporter) {
	for _, m := range s.normal {
		value, marked := m.annotations[recreate]
		switch {
		case !marked:
		case kinds.HoldsData(m.groupKind()) && value != "false":
			r.field(m, annotation(recreate), "a %s is never recreated, because its content would be lost: drop %s",
				m.kind.Kind, recreate)
		case value != "true" && value != "false":
			r.field(m, annotation(recreate), `%s is %q, and only "true" recreates anything: write "true", or drop it`,
				recreate, value)
		}
	}
}

// checkTestAnnotation looks for objects that were meant as tests, and are applied.
func checkTestAnnotation(s *subject, r *reporter) {
	const key = payload.TestAnnotation
	for _, m := range s.normal {
		value, marked := m.annotations[key]
		switch {
		case marked && !m.CanBeTest():
			r.field(m, annotation(key), "a %s can't be a test, so it is applied: run the test by a Job, or drop %s",
				m.kind.Kind, key)
		case marked && value != "true":
			r.field(m, annotation(key), `%s is %q, and only "true" makes a test: write "true", or drop it`, key, value)
		case m.get("spec", "template", "metadata", "annotations", key) != nil && m.CanBeTest():
			r.field(m, []string{"spec", "template", "metadata", "annotations", key},
				"%s is on the pod template, where it has no effect: move it to metadata.annotations of the Job", key)
		}
	}
}
