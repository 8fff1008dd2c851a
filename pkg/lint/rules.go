package lint

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/payload"
)

// Rules are all rules, in the order in which a person would look.
func Rules() []Rule {
	return slices.Concat(
		readingRules(),
		deletingRules(),
		outageRules(),
		updatingRules(),
		namingRules(),
		objectRules(),
		hookRules(),
		schemaRules(),
		ignoringRules(),
	)
}

// readingRules are about what can't be read, or says something else than it seems to.
func readingRules() []Rule {
	return []Rule{
		{"unreadable", Error, "A file or document can't be read.", nothing, problemsOf(payload.Unreadable)},
		{"not-a-manifest", Error, "A document is no manifest: it has no kind, apiVersion or name, or is a List.", nothing, problemsOf(payload.Unidentified)},
		{"malformed", Error, "Annotations or labels are no texts, so that Kubernetes' libraries find none at all.", nothing, problemsOf(payload.Malformed)},
		{"metadata", Error, "release-metadata or image-references is wrong, or contradicts the other.", nothing, problemsOf(payload.Mislabelled)},
		{"suspicious", Warning, "Something in the release's own files is hardly what was meant.", nothing, problemsOf(payload.Suspicious)},
		{"repeated-key", Warning, "A mapping has a key twice, and the last one counts.", nothing, problemsOf(payload.RepeatedKey)},
	}
}

// deletingRules are about the delete annotation, and objects that are there more than once.
func deletingRules() []Rule {
	return []Rule{
		{"delete-value", Error, "The delete annotation has a value other than \"true\".", nothing, problemsOf(payload.WrongDelete)},
		{"delete-misspelt", Error, "An annotation looks like the delete annotation, and is not.", nothing, checkMisspeltDelete},
		{"delete-misplaced", Error, "The delete annotation stands where it means nothing, such as in a template.", nothing, checkMisplacedDelete},
		{"delete-never", Error, "A tombstone is for no cluster at all.", nothing, checkDeleteNever},
		{"delete-create-only", Info, "A tombstone is marked create-only too: delete wins.", nothing, checkDeleteCreateOnly},
		{"created-and-deleted", Error, "One object is created and deleted by the same payload.", nothing, checkCreatedAndDeleted},
		{"duplicate", Error, "One object is in the payload twice for the same cluster.", nothing, checkDuplicate},
	}
}

// outageRules are about deletes that take something away from what still needs it.
func outageRules() []Rule {
	return []Rule{
		{"inside-deleted-namespace", Error, "A manifest is inside a Namespace that this payload deletes.", nothing, checkInsideDeletedNamespace},
		{"of-deleted-definition", Error, "A custom resource is of a CustomResourceDefinition that this payload deletes.", nothing, checkOfDeletedDefinition},
		{"backend-deleted", Error, "What the API server calls is deleted before the configuration that makes it call.", nothing, checkBackendDeleted},
		{"account-deleted", Error, "A workload's ServiceAccount is deleted, and the workload is not.", nothing, checkAccountDeleted},
		{"rbac-deleted-first", Warning, "What allows a workload to work is deleted before the workload, or while something still binds it.", nothing, checkRBACDeletedFirst},
		{"operator-deleted-first", Warning, "An operator is deleted before what it operates.", nothing, checkOperatorDeletedFirst},
		{"protected-namespace", Error, "A tombstone is for a Namespace that belongs to Kubernetes, not to a release.", nothing, checkProtectedNamespace},
		{"delete-inside-deleted", Info, "A tombstone is for something that its Namespace's tombstone deletes already.", nothing, checkDeleteInsideDeleted},
		{"delete-after-definition", Warning, "A custom resource's tombstone does not come before that of its CustomResourceDefinition.", nothing, checkDeleteAfterDefinition},
	}
}

// updatingRules are about what an update from the previous payload would do.
func updatingRules() []Rule {
	return []Rule{
		{"dropped", Error, "An object of the previous payload is gone without a tombstone, and stays in clusters.", needsPrevious, checkDropped},
		{"renamed", Error, "An object has another name or namespace, and the old one has no tombstone.", needsPrevious, checkRenamed},
		{"narrowed", Warning, "An object is gone for some clusters only, and stays there.", needsPrevious, checkNarrowed},
		{"delete-of-nothing", Warning, "A tombstone is for something that the previous payload never had.", needsPrevious, checkDeleteOfNothing},
		{"stale-delete", Error, "A tombstone of the previous payload is still there after a minor update.", needsVersions, checkStaleDelete},
		{"revived", Warning, "A tombstone of the previous payload has become a normal manifest.", needsPrevious, checkRevived},
		{"immutable-changed", Error, "A field is changed that the API server does not let anyone change.", needsPrevious, checkImmutableChanged},
		{"job-changed", Error, "A Job is changed and keeps its name, so that it can't be applied.", needsPrevious, checkJobChanged},
		{"version-removed", Warning, "A CustomResourceDefinition no longer serves a version that it has served.", needsPrevious, checkVersionRemoved},
	}
}

// namingRules are about files and how they are called.
func namingRules() []Rule {
	return []Rule{
		{"file-name", Warning, "A file's name does not say its level and component.", nothing, checkFileName},
		{"level-width", Warning, "Levels have different numbers of digits, and are compared as text.", nothing, checkLevelWidth},
		{"split-component", Warning, "A component's files of one level don't stand together.", nothing, checkSplitComponent},
		{"ignored-file", Warning, "A file looks like a manifest, and is not read.", nothing, checkIgnoredFile},
		{"empty-document", Warning, "A file or document holds no manifest.", nothing, checkEmptyDocument},
		{"final-newline", Info, "The last line of a file has no line break.", nothing, checkFinalNewline},
	}
}

// objectRules are about single objects, and what others they need.
func objectRules() []Rule {
	return []Rule{
		{"removed-api", Error, "The target Kubernetes does not serve this apiVersion any more.", nothing, checkRemovedAPI},
		{"unknown-api", Error, "Kubernetes, or the CustomResourceDefinition in the payload, has no such kind in this version.", nothing, checkUnknownAPI},
		{"foreign-kind", Info, "A kind is neither Kubernetes' own nor defined in the payload.", nothing, checkForeignKind},
		{"no-namespace", Error, "A namespaced object has no namespace.", nothing, checkNoNamespace},
		{"needless-namespace", Warning, "A cluster-wide object has a namespace.", nothing, checkNeedlessNamespace},
		{"missing-namespace", Warning, "A namespace is neither in the payload nor well known.", nothing, checkMissingNamespace},
		{"out-of-order", Warning, "Something comes before what it needs, in the order of an update.", nothing, checkOutOfOrder},
		{"unknown-capability", Warning, "A capability is unknown, so that the manifest is left out.", nothing, checkUnknownCapability},
		{"unknown-feature-set", Warning, "A feature set is unknown, so that the manifest is left out.", nothing, checkUnknownFeatureSet},
		{"unknown-feature-gate", Warning, "A feature gate is unknown, and so is never on.", nothing, checkUnknownFeatureGate},
		{"never-applied", Warning, "The annotations of a manifest leave it out of every cluster.", nothing, checkNeverApplied},
		{"feature-set-and-gate", Error, "A manifest names both a feature set and a feature gate, which is refused.", nothing, checkFeatureSetAndGate},
		{"major-version-kind", Error, "A major version is asked of a kind that is then left out of every cluster.", nothing, checkMajorVersionKind},
		{"image-not-in-release", Warning, "An image is none of the release's.", needsImages, checkImageNotInRelease},
		{"job-runs-again", Error, "A Job is removed when it is done, and would be created and run again.", nothing, checkJobRunsAgain},
		{"ready-expression", Error, "The expression that says when an object is ready is wrong.", nothing, checkReadyExpression},
		{"recreate-refused", Error, "An object is to be recreated that must not be, or the annotation for it has a value that means nothing.", nothing, checkRecreateRefused},
	}
}

// hookRules are about the hooks of Deployments.
func hookRules() []Rule {
	return []Rule{
		{"hooks-invalid", Error, "The hooks of a Deployment can't be read, or have what no hook has.", nothing, problemsOf(payload.InvalidHooks)},
		{"hooks-container", Error, "A hook names a container that the Deployment's template does not have.", nothing, problemsOf(payload.HookContainer)},
		{"hooks-strategy", Error, "The Deployment's strategy does not allow a hook, or what follows when it fails.", nothing, problemsOf(payload.HookStrategy)},
		{"hooks-misplaced", Error, "Hooks stand where none are read: on another kind, in a pod template, in a misspelt annotation.", nothing, problemsOf(payload.MisplacedHooks)},
		{"hooks-unknown-volume", Warning, "A hook names a volume that the Deployment's template does not have, and runs without it.", nothing, problemsOf(payload.HookVolume)},
		{"hooks-no-effect", Warning, "What is said of hooks has no effect, or keeps them from running.", nothing, problemsOf(payload.HookIneffective)},
		{"hooks-not-run", Info, "A hook is new, and does not run in this update, as the Deployment's template stays the same.", needsPrevious, checkHooksNotRun},
	}
}

// schemaRules hold objects against their schemas.
func schemaRules() []Rule {
	return []Rule{
		{"unknown-field", Warning, "An object has a field that its kind does not have.", nothing, checkUnknownField},
		{"wrong-type", Error, "A field holds what it can't.", nothing, problemsOf(payload.WrongType)},
		{"custom-resource", Error, "A custom resource is not what its CustomResourceDefinition allows.", nothing, checkCustomResource},
		{"definition", Error, "The API server would refuse a CustomResourceDefinition.", nothing, checkDefinition},
	}
}

// ignoringRules are about what is said to be all right. Run looks for these by itself.
func ignoringRules() []Rule {
	return []Rule{
		{"bad-ignore", Error, "Something is to be ignored without a reason, or by a rule that there isn't.", nothing, nil},
		{"unused-ignore", Warning, "Something is to be ignored that is not found.", nothing, nil},
		{"stale-baseline", Info, "The baseline accepts something that is no longer found.", nothing, nil},
	}
}

// FindRule is the rule of a name.
func FindRule(id string) (Rule, bool) {
	for _, rule := range Rules() {
		if rule.ID == id {
			return rule, true
		}
	}
	return Rule{}, false
}

// problemsOf reports the problems of reading that have a cause.
func problemsOf(cause payload.Cause) func(*subject, *reporter) {
	return func(s *subject, r *reporter) {
		for _, p := range s.problems {
			if p.Cause == cause {
				r.report(Finding{File: p.File, Line: p.Line, Column: p.Column, Document: p.Document, Object: p.Object, Message: p.Message})
			}
		}
	}
}
