package lint

import (
	"maps"
	"slices"
)

// This rule is about annotations by which other tools decide how to apply an object.

// ineffective are the annotations of other tools that have no effect here, with what they do there and what to write instead.
var ineffective = map[string]string{
	"helm.sh/hook":                          "Helm runs it at a point of the release and does not keep it: as a manifest, it is applied like any other. A Job in a level of its own runs at its place; what belongs to the rollout of a Deployment is a lifecycle hook of it (docs/hooks.md)",
	"helm.sh/resource-policy":               "Helm keeps the object in an uninstall: write runlevel.dev/keep: \"true\"",
	"argocd.argoproj.io/hook":               "Argo CD runs it at a point of the sync and does not keep it: as a manifest, it is applied like any other. A Job in a level of its own runs at its place; what belongs to the rollout of a Deployment is a lifecycle hook of it (docs/hooks.md)",
	"argocd.argoproj.io/sync-wave":          "Argo CD applies waves one after the other: here the level in the file's name does, 0000_LEVEL_COMPONENT_anything.yaml",
	"kapp.k14s.io/change-group":             "kapp orders groups by its rules: here the level in the file's name does, 0000_LEVEL_COMPONENT_anything.yaml",
	"kapp.k14s.io/change-rule":              "kapp orders changes by it: here the level in the file's name does, 0000_LEVEL_COMPONENT_anything.yaml",
	"kapp.k14s.io/delete-strategy":          "kapp keeps or orphans the object: here an object without a tombstone stays; in an uninstall, runlevel.dev/keep: \"true\" keeps it",
	"kapp.k14s.io/create-strategy":          "kapp takes an existing object over by it: here --adopt-from does",
	"kapp.k14s.io/update-strategy":          "kapp replaces or skips the object by it: here runlevel.dev/recreate: \"true\" and release.openshift.io/create-only: \"true\" do",
	"kapp.k14s.io/versioned":                "kapp makes an object of a new name for each change: here names stay, and pods read a changed object when they are restarted",
	"kustomize.toolkit.fluxcd.io/prune":     "Flux keeps the object when it is dropped: here an object without a tombstone stays anyway",
	"kustomize.toolkit.fluxcd.io/reconcile": "Flux leaves the object alone by it: here release.openshift.io/create-only: \"true\" keeps an existing object as it is",
	"kustomize.toolkit.fluxcd.io/ssa":       "Flux leaves fields of others by it: here release.openshift.io/create-only: \"true\" keeps an existing object as it is",
	"kustomize.toolkit.fluxcd.io/force":     "Flux recreates the object by it if fields can't be changed: here runlevel.dev/recreate: \"true\" does",
}

func checkOtherTools(s *subject, r *reporter) {
	for _, m := range s.normal {
		annotations := m.Object().GetAnnotations()
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if what := ineffective[key]; what != "" {
				r.field(m, []string{"metadata", "annotations", key}, "%s: %s has no effect here. %s", key, annotations[key], what)
			}
		}
	}
}
