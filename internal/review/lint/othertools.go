package lint

import (
	_ "embed" // embeds othertools.yaml
	"maps"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// This rule is about annotations by which other tools decide how to apply an object.

//go:embed othertools.yaml
var othertools []byte

// ineffectiveTexts contains the texts of othertools.yaml by their annotations.
var ineffectiveTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	if err := yaml.UnmarshalStrict(othertools, &texts); err != nil {
		panic(err) // the text is part of the program
	}
	return texts
})

// repeatedHookText is the message about a hook that the other tool runs in each update, and Runlevel at its place.
const repeatedHookText = "it runs here at its place, once for each change of its manifest, in installs and updates " +
	"alike; %s: change the manifest where it has to run again, and put what belongs to the rollout of a Deployment " +
	"into a lifecycle hook of it (docs/hooks.md)"

// hooksOf contains the times at which other tools run hooks, by their annotations.
var hooksOf = map[string]string{
	payload.HelmHookAnnotation: "Helm runs it at each point of a release that its annotation names, and deletes it " +
		"before it runs again",
	payload.ArgoHookAnnotation: "Argo CD runs it in each sync, and deletes it before it runs again",
}

// unneeded returns why an object needs no replacement for an annotation of another tool; "" if it needs one. Only
// objects with pods, and custom resources, can run as hooks.
func (m *manifest) unneeded(key string) string {
	isHook := key == payload.HelmHookAnnotation || key == payload.ArgoHookAnnotation
	hooks := payload.HelmHooks(m.annotations)
	isOfTest := slices.ContainsFunc(hooks, func(hook string) bool { return slices.Contains(payload.HelmTests, hook) })
	switch {
	case isHook && !isOfTest && kinds.PodSpec(m.groupKind()) == nil && kinds.Scheme().Recognizes(m.kind):
		return "it has no pods, and is applied like any other object"
	case key == helmPolicyAnnotation && m.groupKind() == kinds.CustomResourceDefinition:
		return "an uninstall keeps it as long as there are objects of its kind that the release does not have"
	case key == helmPolicyAnnotation && m.groupKind() == kinds.PersistentVolumeClaim:
		return "an uninstall keeps it as data"
	default:
		return ""
	}
}

const helmPolicyAnnotation = "helm.sh/resource-policy"

func checkOtherTools(s *subject, r *reporter) {
	noted := map[string]bool{} // each reason is reported once
	for _, m := range s.normal {
		annotations := m.Object().GetAnnotations()
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			path, value := annotation(key), annotations[key]
			what := ineffectiveTexts()[withoutSuffix(key)]
			if key == payload.HelmHookAnnotation {
				value, what = m.ineffectiveHooks()
			}
			isMapped := slices.Contains(m.Foreign().Mapped(), key) && !m.isTest
			switch {
			case isMapped && m.Foreign().IsHookJob() && hooksOf[key] != "":
				r.field(m, path, "%s: %s: "+repeatedHookText, key, value, hooksOf[key])
			case !isMapped && what != "" && m.unneeded(key) != "":
				if reason := m.unneeded(key); !noted[key+reason] {
					noted[key+reason] = true
					r.note(m, path, "%s: %s has no effect on a %s: %s", key, value, m.kind.Kind, reason)
				}
			case !isMapped && what != "":
				r.field(m, path, "%s: %s has no effect here. %s", key, value, what)
			}
		}
	}
}

// withoutSuffix returns the key of an annotation of kapp without the suffix that makes it unique.
func withoutSuffix(key string) string {
	for _, known := range []string{payload.KappGroupAnnotation, payload.KappRuleAnnotation} {
		if strings.HasPrefix(key, known+".") {
			return known
		}
	}
	return key
}

// ineffectiveHooks returns the hooks of Helm by which a manifest is not applied or run here, and what to write instead;
// nothing if there are none. A test of a chart is a test here, too.
func (m *manifest) ineffectiveHooks() (hooks, what string) {
	all := payload.HelmHooks(m.annotations)
	others := slices.DeleteFunc(slices.Clone(all), func(hook string) bool {
		return slices.Contains(payload.HelmTests, hook)
	})
	switch {
	case len(others) == 0 && m.isTest:
		return "", ""
	case len(others) == 0:
		return strings.Join(all, ","),
			"Helm makes it for the tests of a chart: as a manifest, it is applied like any other, since only a Job " +
				"or a Pod is a test (docs/test.md)"
	default:
		return strings.Join(others, ","), ineffectiveTexts()[payload.HelmHookAnnotation]
	}
}
