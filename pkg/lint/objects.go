package lint

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/api/features"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
)

// These rules are about single objects, and what others they need.

// checkMissingNamespace reports each namespace once.
func checkMissingNamespace(s *subject, r *reporter) error {
	seen := sets.New(ownedByKubernetes...).Insert(s.config.Known.Namespaces...)
	for _, m := range s.normal {
		namespace := m.id.Namespace
		if namespace == "" || seen.Has(namespace) || s.scopeOf(m) == clusterWide {
			continue
		}
		holders, normal := []*payload.Manifest{}, 0
		for _, holder := range s.namespaces(namespace) {
			holders = append(holders, holder.Manifest)
		}
		where, isWithout := payload.Without(m.Manifest, holders)
		if !isWithout {
			continue
		}
		if len(holders) == 0 {
			where = payload.Filter{}
		}
		for _, other := range s.inside[namespace] {
			if !other.isTombstone {
				normal++
			}
		}
		seen.Insert(namespace)
		r.field(m, []string{"metadata", "namespace"}, "the Namespace %s is not in the payload%s (%s in it): add it, or say in the configuration that it is known", namespace, strings.NewReplacer("(", "", ")", "").Replace(on(where)), counted(normal, "object"))
	}
	return nil
}

// checkOutOfOrder asks the graph for what the names of files contradict.
func checkOutOfOrder(s *subject, r *reporter) error {
	g := graph.Build(s.Payload.Manifests, graph.Options{Mode: graph.Update, Implied: true})
	type need struct {
		task int
		id   payload.ID
	}
	seen := map[need]bool{} // variants of what is needed are one
	for _, conflict := range g.Conflicts {
		m, needs := s.manifests[conflict.Task], s.manifests[conflict.Needs]
		if what := (need{conflict.Task, needs.id}); !seen[what] && s.areTogether(m, needs) {
			seen[what] = true
			r.at(m, "it comes before %s (%s:%d), and %s: give it a higher level, or that a lower one", needs.id, needs.Path, needs.Line, conflict.Why)
		}
	}
	return nil
}

const (
	capabilityAnnotation   = "capability.openshift.io/name"
	featureSetAnnotation   = "release.openshift.io/feature-set"
	featureGateAnnotation  = "release.openshift.io/feature-gate"
	majorVersionAnnotation = "release.openshift.io/major-version"
)

// checkNames reports names in an annotation that are not known, each once a manifest.
func checkNames(s *subject, r *reporter, key, separator string, isKnown func(name string) (what string, known bool)) {
	for _, m := range s.manifests {
		value, named := m.annotations[key]
		if !named || value == "" && key != featureSetAnnotation { // which alone means something when it is empty
			continue
		}
		for name := range strings.SplitSeq(value, separator) {
			follows := "no cluster gets this"
			if key == featureGateAnnotation { // blanks mean nothing
				var isOff bool
				if name, isOff = strings.CutPrefix(strings.TrimSpace(name), "-"); isOff {
					follows = "it is off on every cluster, and the minus means nothing"
				}
				if name == "" {
					continue
				}
			}
			if what, known := isKnown(name); !known {
				r.field(m, annotation(key), "%s: nobody knows %q, so that %s: is it misspelt? (If it is your own, say so in the configuration.)", what, name, follows)
			}
		}
	}
}

func checkUnknownCapability(s *subject, r *reporter) error {
	known := sets.New(s.config.Known.Capabilities...)
	for _, name := range configv1.KnownClusterVersionCapabilities {
		known.Insert(string(name))
	}
	checkNames(s, r, capabilityAnnotation, "+", func(name string) (string, bool) { return "capability", known.Has(name) })
	return nil
}

func checkUnknownFeatureSet(s *subject, r *reporter) error {
	known := sets.New(s.config.Known.FeatureSets...).Insert("Default", string(configv1.CustomNoUpgrade))
	for _, name := range configv1.AllFixedFeatureSets {
		if name != configv1.Default { // which is "", and only written as Default
			known.Insert(string(name))
		}
	}
	checkNames(s, r, featureSetAnnotation, ",", func(name string) (string, bool) { return "feature set", known.Has(name) })
	return nil
}

func checkUnknownFeatureGate(s *subject, r *reporter) error {
	known := sets.New(s.config.Known.FeatureGates...)
	isUsed := func(m *manifest) bool { _, is := m.annotations[featureGateAnnotation]; return is }
	if !slices.ContainsFunc(s.manifests, isUsed) {
		return nil
	}
	for _, profiles := range features.AllFeatureSets() {
		for _, sets := range profiles {
			for _, gates := range sets {
				for _, gate := range slices.Concat(gates.Enabled, gates.Disabled) {
					known.Insert(string(gate.FeatureGateAttributes.Name))
				}
			}
		}
	}
	checkNames(s, r, featureGateAnnotation, ",", func(name string) (string, bool) {
		return "feature gate", known.Has(name)
	})
	return nil
}

func checkFeatureSetAndGate(s *subject, r *reporter) error {
	for _, m := range s.manifests {
		_, set := m.annotations[featureSetAnnotation]
		_, gate := m.annotations[featureGateAnnotation]
		if set && gate {
			r.field(m, annotation(featureGateAnnotation), "%s and %s don't go together: OpenShift refuses a manifest with both; keep one", featureSetAnnotation, featureGateAnnotation)
		}
	}
	return nil
}

func checkMajorVersionKind(s *subject, r *reporter) error {
	manifests := slices.Clone(s.manifests)
	for _, left := range s.Excluded { // for just this, if the release says its version
		manifests = append(manifests, newManifest(left.Manifest))
	}
	for _, m := range manifests {
		_, named := m.annotations[majorVersionAnnotation]
		isFeatureGate := m.groupKind() == schema.GroupKind{Group: "config.openshift.io", Kind: "FeatureGate"}
		if named && !isFeatureGate && m.groupKind() != definitionKind {
			kind := m.kind.Kind
			if kind == "FeatureGate" {
				kind += " of " + m.kind.Group
			}
			r.field(m, annotation(majorVersionAnnotation), "%s only works for a CustomResourceDefinition or a FeatureGate of config.openshift.io: no cluster gets this %s; drop it", majorVersionAnnotation, kind)
		}
	}
	return nil
}

// checkImageNotInRelease looks at the images of containers.
func checkImageNotInRelease(s *subject, r *reporter) error {
	known := sets.New[string]()
	for _, spec := range s.Images {
		known.Insert(spec)
	}
	for _, m := range s.normal {
		if m.groupKind() == definitionKind || !isWorkload(m) && m.kind.Kind != "Pod" {
			continue
		}
		for _, path := range keysNamed("image", m.Object().Object["spec"], []string{"spec"}) {
			if isContainer := len(path) > 2 && strings.HasSuffix(strings.ToLower(path[len(path)-3]), "containers"); !isContainer {
				continue
			}
			if image, isText := valueAt(m.Object().Object, path).(string); isText && image != "" && !known.Has(image) { // "" is the release's own, in a template
				r.field(m, path, "the image %s is none of image-references: it does not come with the release, and is not there where nothing else can be pulled", image)
			}
		}
	}
	return nil
}

func checkJobRunsAgain(s *subject, r *reporter) error {
	for _, m := range s.normal {
		if m.groupKind() == jobKind && m.get("spec", "ttlSecondsAfterFinished") != nil {
			r.field(m, []string{"spec", "ttlSecondsAfterFinished"}, "the Job is removed when it is done, and whatever keeps the release in place creates it, and runs it, again: drop this field")
		}
	}
	return nil
}

func checkReadyExpression(s *subject, r *reporter) error {
	for _, m := range s.normal {
		text, marked := m.annotations[ready.Annotation]
		if !marked {
			continue
		}
		if err := ready.Validate(text); err != nil {
			r.field(m, annotation(ready.Annotation), "%s is wrong: %s", ready.Annotation, err)
		}
	}
	return nil
}

// mustNotBeRecreated says whether too much would go with an object.
func mustNotBeRecreated(m *manifest) bool {
	return slices.Contains([]schema.GroupKind{definitionKind, namespaceKind, {Kind: "PersistentVolumeClaim"}}, m.groupKind())
}

func checkRecreateRefused(s *subject, r *reporter) error {
	for _, m := range s.normal {
		value, marked := m.annotations[recreate]
		switch {
		case !marked:
		case mustNotBeRecreated(m):
			r.field(m, annotation(recreate), "a %s is never recreated, for all that it holds would be lost: drop %s", m.kind.Kind, recreate)
		case value != "true":
			r.field(m, annotation(recreate), `%s is %q, and only "true" means anything`, recreate, value)
		}
	}
	return nil
}
