package payload

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// TestAnnotation makes a Job or a Pod a test of the release if its value is "true".
const TestAnnotation = "runlevel.dev/test"

// HelmHookDeleteAnnotation is by which Helm knows when a test is deleted.
const HelmHookDeleteAnnotation = "helm.sh/hook-delete-policy"

// HelmTests are the hooks of Helm that make a Job or a Pod a test.
var HelmTests = []string{"test", "test-success"}

// CanBeTest reports whether an object has a kind that can be a test of a release.
func (m *Manifest) CanBeTest() bool {
	kind := m.GroupVersionKind().GroupKind()
	return kind == kinds.Job || kind == kinds.Pod
}

// IsTest reports whether the object is a test of the release, which an apply leaves out. A tombstone is none.
func (m *Manifest) IsTest() bool {
	if !m.CanBeTest() || m.IsTombstone() {
		return false
	}
	annotations := m.object.GetAnnotations()
	isHelms := slices.ContainsFunc(HelmHooks(annotations), func(hook string) bool {
		return slices.Contains(HelmTests, hook)
	})
	return annotations[TestAnnotation] == "true" || isHelms
}

// include adds a manifest that no filter leaves out.
func (p *Payload) include(m *Manifest) {
	if m.IsTest() {
		p.Tests = append(p.Tests, m)
	} else {
		p.Manifests = append(p.Manifests, m)
	}
}

// HelmHooks returns the hooks of Helm that an object is, by its annotations.
func HelmHooks(annotations map[string]string) []string {
	return splitList(annotations[HelmHookAnnotation])
}

// HelmHookDeletes returns when Helm deletes a hook, by its annotations, and whether they have it.
func HelmHookDeletes(annotations map[string]string) (policies []string, isSet bool) {
	text, isSet := annotations[HelmHookDeleteAnnotation]
	return splitList(text), isSet
}

// splitList returns the items of a comma-separated list.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// inTestOrder compares two tests by Helm's weights, and then by their files. An invalid weight counts as 0, as
// in Helm.
func inTestOrder(a, b *Manifest) int {
	weight := func(m *Manifest) int {
		number, _ := strconv.Atoi(m.annotation(HelmWeightAnnotation))
		return number
	}
	return cmp.Or(cmp.Compare(weight(a), weight(b)), InOrder(a, b))
}
