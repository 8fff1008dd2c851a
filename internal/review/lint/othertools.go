package lint

import (
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// This rule is about annotations by which other tools decide how to apply an object.

// ineffective are the annotations of other tools that have no effect here, with what they do there and what to write
// instead. In a release without numbered files, those on the order have an effect, unless they are too special for
// that.
var ineffective = map[string]string{
	"helm.sh/hook": "Helm runs it at a point of the release and does not keep it: as a " +
		"manifest, it is applied like any other. A Job in a level of its own runs at its place; what belongs to the " +
		"rollout of a Deployment is a lifecycle hook of it (docs/hooks.md)",
	helmPolicyAnnotation: "Helm keeps the object in an uninstall: write runlevel.dev/keep: \"true\"",
	"helm.sh/resource-group": "Helm applies groups in their order by it: here the level in the file's " +
		"name does, 0000_LEVEL_COMPONENT_anything.yaml",
	"helm.sh/depends-on/resource-groups": "Helm applies groups in their order by it, and API servers refuse its " +
		"name: here the level in the file's name does, 0000_LEVEL_COMPONENT_anything.yaml",
	"argocd.argoproj.io/hook": "Argo CD runs it at a point of the sync and does not keep it: as a " +
		"manifest, it is applied like any other. A Job in a level of its own runs at its place; what belongs to the " +
		"rollout of a Deployment is a lifecycle hook of it (docs/hooks.md)",
	"argocd.argoproj.io/sync-wave": "Argo CD applies waves one after the other: here the level in the file's name " +
		"does, 0000_LEVEL_COMPONENT_anything.yaml",
	"kapp.k14s.io/change-group": "kapp orders groups by its rules: here the level in the file's name " +
		"does, 0000_LEVEL_COMPONENT_anything.yaml",
	"kapp.k14s.io/change-rule": "kapp orders changes by it: here the level in the file's name does, " +
		"0000_LEVEL_COMPONENT_anything.yaml",
	"kapp.k14s.io/delete-strategy": "kapp keeps or orphans the object: here an object without a tombstone " +
		"stays; in an uninstall, runlevel.dev/keep: \"true\" keeps it",
	"kapp.k14s.io/create-strategy": "kapp takes an existing object over by it: here --adopt-from does",
	"kapp.k14s.io/update-strategy": "kapp replaces or skips the object by it: here runlevel.dev/recreate: " +
		"\"true\" and release.openshift.io/create-only: \"true\" do",
	"kapp.k14s.io/versioned": "kapp makes an object of a new name for each change: here names stay, and pods read a " +
		"changed object when they are restarted",
	"kustomize.toolkit.fluxcd.io/prune": "Flux keeps the object when it is dropped: here an object without a " +
		"tombstone stays anyway",
	"kustomize.toolkit.fluxcd.io/reconcile": "Flux leaves the object alone by it: here " +
		"release.openshift.io/create-only: \"true\" keeps an existing object as it is",
	"kustomize.toolkit.fluxcd.io/ssa": "Flux leaves fields of others by it: here " +
		"release.openshift.io/create-only: \"true\" keeps an existing object as it is",
	"kustomize.toolkit.fluxcd.io/force": "Flux recreates the object by it if fields can't be changed: here " +
		"runlevel.dev/recreate: \"true\" does",
}

// repeated is what is different for a hook that has its place, which the other tool runs each time.
const repeated = "it runs here at its place, once for each change of its manifest, in installs and updates alike; " +
	"%s: change the manifest where it has to run again, and put what belongs to the rollout of a Deployment into a " +
	"lifecycle hook of it (docs/hooks.md)"

// hooksOf are the annotations of hooks, with when the other tool runs them.
var hooksOf = map[string]string{
	payload.HelmHookAnnotation: "Helm runs it at each point of a release that its annotation names, and deletes it " +
		"before it runs again",
	payload.ArgoHookAnnotation: "Argo CD runs it in each sync, and deletes it before it runs again",
}

// unneeded returns why an object does without what an annotation of another tool does there; "" if it does not. Only
// what has pods, or a controller of its own, can run as a hook.
func unneeded(m *manifest, key string) string {
	isHook := key == payload.HelmHookAnnotation || key == payload.ArgoHookAnnotation
	hooks := payload.HelmHooks(m.annotations)
	isOfTest := slices.ContainsFunc(hooks, func(hook string) bool { return slices.Contains(payload.HelmTests, hook) })
	switch {
	case isHook && !isOfTest && kinds.PodSpec(m.groupKind()) == nil && kinds.Scheme().Recognizes(m.kind):
		return "it has no pods, and is applied like any other object"
	case key == helmPolicyAnnotation && m.groupKind() == kinds.CustomResourceDefinition:
		return "an uninstall keeps it as long as there are objects of it that the release does not have"
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
			what := ineffective[key]
			if what == "" {
				what = ineffective[withoutSuffix(key)]
			}
			if key == payload.HelmHookAnnotation {
				value, what = ineffectiveHooks(m)
			}
			isMapped := slices.Contains(m.Foreign().Mapped(), key) && !m.isTest
			switch {
			case isMapped && m.Foreign().IsHookJob() && hooksOf[key] != "":
				r.field(m, path, "%s: %s: "+repeated, key, value, hooksOf[key])
			case !isMapped && what != "" && unneeded(m, key) != "":
				if why := unneeded(m, key); !noted[key+why] {
					noted[key+why] = true
					r.note(m, path, "%s: %s has no effect on a %s: %s", key, value, m.kind.Kind, why)
				}
			case !isMapped && what != "":
				r.field(m, path, "%s: %s has no effect here. %s", key, value, what)
			}
		}
	}
}

// withoutSuffix returns the key of an annotation of kapp without what makes it one of several.
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
func ineffectiveHooks(m *manifest) (hooks, what string) {
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
		return strings.Join(others, ","), ineffective[payload.HelmHookAnnotation]
	}
}
