package lint

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/payload"
)

// Rules returns all rules, the most important groups first.
func Rules() []Rule {
	return slices.Concat(
		readingRules(),
		deletingRules(),
		outageRules(),
		updatingRules(),
		namingRules(),
		objectRules(),
		referenceRules(),
		selectingRules(),
		runningRules(),
		hookRules(),
		schemaRules(),
		refusingRules(),
		RehearsalRules(),
		ignoringRules(),
	)
}

// readingRules are about files that can't be read, or whose content is probably not what was intended.
func readingRules() []Rule {
	return []Rule{
		{"unreadable", Error, "A file or document can't be read.", nothing, problemsOf(payload.Unreadable)},
		{"not-a-manifest", Error, "A document is not a manifest: it has no kind, apiVersion or name, or is a List.",
			nothing, problemsOf(payload.Unidentified)},
		{"malformed", Error, "Annotations or labels are not strings, so Kubernetes' libraries find none at all.",
			nothing, problemsOf(payload.Malformed)},
		{"metadata", Error, "release-metadata or image-references is wrong, or contradicts the other.", nothing,
			problemsOf(payload.Mislabelled)},
		{"suspicious", Warning, "A file of the release, such as release-metadata, has content that is probably a " +
			"mistake.", nothing, problemsOf(payload.Suspicious)},
		{"repeated-key", Warning, "A mapping has the same key twice, and only the last one counts.", nothing,
			problemsOf(payload.RepeatedKey)},
	}
}

// deletingRules are about the delete annotation, and objects with more than one manifest.
func deletingRules() []Rule {
	return []Rule{
		{"delete-value", Error, "The delete annotation has a value other than \"true\".", nothing,
			problemsOf(payload.WrongDelete)},
		{"delete-misspelt", Error, "An annotation is a misspelling of the delete annotation.", nothing,
			checkMisspeltDelete},
		{"delete-misplaced", Error,
			"The delete annotation is in a place where it has no effect, such as a pod template.", nothing,
			checkMisplacedDelete},
		{"delete-never", Error, "A tombstone applies to no cluster.", nothing, checkDeleteNever},
		{"delete-create-only", Info, "A tombstone is marked create-only too: the tombstone wins.", nothing,
			checkDeleteCreateOnly},
		{"created-and-deleted", Error, "The same payload creates and deletes an object.", nothing,
			checkCreatedAndDeleted},
		{"duplicate", Error, "The payload has an object twice for the same cluster.", nothing, checkDuplicate},
	}
}

// outageRules are about deletes of objects that other objects still need.
func outageRules() []Rule {
	return []Rule{
		{"inside-deleted-namespace", Error, "A manifest is inside a Namespace that this payload deletes.", nothing,
			checkInsideDeletedNamespace},
		{"of-deleted-definition", Error, "A custom resource's CustomResourceDefinition is deleted by this payload.",
			nothing, checkOfDeletedDefinition},
		{"deleted-in-use", Error, "A tombstone deletes an object that a manifest of the payload refers to.", nothing,
			checkDeletedInUse},
		{"backend-deleted", Error,
			"A Service, or what runs behind it, is deleted before the configuration that has the API server call it.",
			nothing, checkBackendDeleted},
		{"account-deleted", Error, "A workload's ServiceAccount is deleted, and the workload is not.", nothing,
			checkAccountDeleted},
		{"rbac-deleted-first", Warning, "A workload's rights are deleted before the workload.", nothing,
			checkRBACDeletedFirst},
		{"operator-deleted-first", Warning, "An operator is deleted before the objects that it manages.", nothing,
			checkOperatorDeletedFirst},
		{"protected-namespace", Error, "A tombstone is for a Namespace that belongs to Kubernetes, not to a release.",
			nothing, checkProtectedNamespace},
		{"delete-inside-deleted", Info, "A tombstone deletes an object that its Namespace's tombstone deletes already.",
			nothing, checkDeleteInsideDeleted},
		{"delete-after-definition", Warning,
			"A custom resource's tombstone comes after its CustomResourceDefinition's, or in no certain order.",
			nothing, checkDeleteAfterDefinition},
	}
}

// updatingRules are about what an update from the previous payload would do.
func updatingRules() []Rule {
	return []Rule{
		{"dropped", Error, "An object of the previous payload is neither in this one nor deleted by it, and stays in " +
			"clusters.", needsPrevious, checkDropped},
		{"renamed", Error, "An object has another name or namespace, and the old one has no tombstone.", needsPrevious,
			checkRenamed},
		{"narrowed", Warning, "An object is removed for some clusters only, and stays in them.", needsPrevious,
			checkNarrowed},
		{"delete-of-nothing", Warning, "A tombstone deletes an object that the previous payload does not have.",
			needsPrevious, checkDeleteOfNothing},
		{"stale-delete", Error, "A tombstone is carried over from the previous payload to the next minor or major " +
			"version.", needsVersions, checkStaleDelete},
		{"revived", Warning, "A tombstone of the previous payload has become a normal manifest.", needsPrevious,
			checkRevived},
		{"immutable-changed", Error, "A field is changed that the API server does not allow to change.", needsPrevious,
			checkImmutableChanged},
		{"job-changed", Error, "A Job is changed under the same name, so it can't be applied.", needsPrevious,
			checkJobChanged},
		{"replicas-dropped", Warning, "A manifest no longer sets spec.replicas, and the object is scaled to 1.",
			needsPrevious, checkReplicasDropped},
		{"stored-version-dropped", Error,
			"A CustomResourceDefinition drops the version in which the API server stores its objects.", needsPrevious,
			checkStoredVersionDropped},
		{"version-removed", Warning, "A CustomResourceDefinition no longer serves a version that it served before.",
			needsPrevious, checkVersionRemoved},
	}
}

// namingRules are about files and their names.
func namingRules() []Rule {
	return []Rule{
		{"file-name", Warning, "A file's name lacks the level and the component.", nothing, checkFileName},
		{"level-width", Warning, "Levels have different numbers of digits, and are compared as strings.", nothing,
			checkLevelWidth},
		{"split-component", Warning, "A component's files of one level are not next to each other.", nothing,
			checkSplitComponent},
		{"ignored-file", Warning, "A file looks like a manifest, and is not read.", nothing, checkIgnoredFile},
		{"empty-document", Warning, "A file or document holds no manifest.", nothing, checkEmptyDocument},
		{"final-newline", Info, "The last line of a file does not end with a line break.", nothing, checkFinalNewline},
	}
}

// objectRules are about single objects, and the objects that they need.
func objectRules() []Rule {
	return []Rule{
		{"removed-api", Error, "The target Kubernetes no longer serves this apiVersion.", nothing, checkRemovedAPI},
		{"unknown-api", Error, "Kubernetes, or the CustomResourceDefinition in the payload, has no such kind in this " +
			"version.", nothing, checkUnknownAPI},
		{"foreign-kind", Info, "A kind is neither one of Kubernetes' nor defined in the payload.", nothing,
			checkForeignKind},
		{"other-tool", Warning, "An annotation is for another tool, and has no effect here.", nothing, checkOtherTools},
		{"no-namespace", Error, "A namespaced object has no namespace.", nothing, checkNoNamespace},
		{"needless-namespace", Warning, "A cluster-wide object has a namespace.", nothing, checkNeedlessNamespace},
		{"missing-namespace", Warning, "A namespace is neither in the payload nor one that every cluster has.", nothing,
			checkMissingNamespace},
		{"out-of-order", Warning, "An object comes before one that it needs, in the order of an update.", nothing,
			checkOutOfOrder},
		{"waits-for-later", Error, "A workload's pods need an object that comes later, in the order of an update.",
			nothing, checkWaitsForLater},
		{"unknown-capability", Warning, "A capability is unknown, so the manifest is left out.", nothing,
			checkUnknownCapability},
		{"unknown-feature-set", Warning, "A feature set is unknown, so the manifest is left out.", nothing,
			checkUnknownFeatureSet},
		{"unknown-feature-gate", Warning, "A feature gate is unknown, and so never on.", nothing,
			checkUnknownFeatureGate},
		{"never-applied", Warning, "The annotations of a manifest leave it out of every cluster.", nothing,
			checkNeverApplied},
		{"feature-set-and-gate", Error,
			"A manifest names both a feature set and a feature gate, which OpenShift refuses.", nothing,
			checkFeatureSetAndGate},
		{"major-version-kind", Error,
			"A major version is set on a kind that does not support it, so the manifest is left out of every cluster.",
			nothing, checkMajorVersionKind},
		{"image-not-in-release", Warning, "An image is not one of the release's.", needsImages, checkImageNotInRelease},
		{"placeholder-image", Info, "A component's placeholder for an image is not replaced.", nothing,
			problemsOf(payload.Placeholder)},
		{"no-readiness-probe", Info, "A workload's pods count as available as soon as their containers have started.",
			nothing, checkNoReadinessProbe},
		{"job-runs-again", Warning, "A Job is removed when it is done, and may be created and run again.", nothing,
			checkJobRunsAgain},
		{"ready-expression", Error, "The CEL expression that decides when an object is ready is invalid.", nothing,
			checkReadyExpression},
		{"test-annotation", Error,
			"The annotation of a test is on an object that can't be one, or has a value other than \"true\".", nothing,
			checkTestAnnotation},
		{"recreate-refused", Error,
			"An object that must not be recreated has the annotation to do so, or the annotation has an invalid value.",
			nothing, checkRecreateRefused},
	}
}

// hookRules are about the hooks of Deployments.
func hookRules() []Rule {
	return []Rule{
		{"hooks-invalid", Error, "The hooks of a Deployment can't be read, or have unknown fields or values.", nothing,
			problemsOf(payload.InvalidHooks)},
		{"hooks-container", Error, "A hook names a container that the Deployment's template does not have.", nothing,
			problemsOf(payload.HookContainer)},
		{"hooks-strategy", Error, "The Deployment's strategy does not allow a hook, or its failurePolicy.", nothing,
			problemsOf(payload.HookStrategy)},
		{"hooks-misplaced", Error,
			"Hooks are in a place where they are not read: another kind, a pod template, a misspelt annotation.",
			nothing, problemsOf(payload.MisplacedHooks)},
		{"hooks-unknown-volume", Warning,
			"A hook names a volume that the Deployment's template does not have, and runs without it.", nothing,
			problemsOf(payload.HookVolume)},
		{"hooks-no-effect", Warning, "A setting of hooks has no effect, or keeps them from running.", nothing,
			problemsOf(payload.HookIneffective)},
		{"hooks-not-run", Info, "A hook is new and does not run in this update, because the Deployment's template " +
			"stays the same.", needsPrevious, checkHooksNotRun},
	}
}

// schemaRules validate objects against their schemas.
func schemaRules() []Rule {
	return []Rule{
		{"unknown-field", Error, "An object has a field that its kind does not have.", nothing, checkUnknownField},
		{"wrong-type", Error, "A field has a value of the wrong type.", nothing, problemsOf(payload.WrongType)},
		{"custom-resource", Error, "A custom resource does not match its CustomResourceDefinition.", nothing,
			checkCustomResource},
		{"definition", Error, "The API server would refuse a CustomResourceDefinition.", nothing, checkDefinition},
	}
}

// ignoringRules are about comments and entries that ignore findings. Run checks these itself.
func ignoringRules() []Rule {
	return []Rule{
		{"bad-ignore", Error, "An ignore has no reason, no rule, or a rule that does not exist.", nothing, nil},
		{"unused-ignore", Warning, "An ignore has nothing to ignore.", nothing, nil},
		{"stale-baseline", Info, "The baseline accepts a finding that no longer exists.", nothing, nil},
	}
}

// FindRule returns the rule of a name, and whether it exists.
func FindRule(id string) (Rule, bool) {
	for _, rule := range Rules() {
		if rule.ID == id {
			return rule, true
		}
	}
	return Rule{}, false
}

// problemsOf returns a check that reports the problems of reading that have a cause.
func problemsOf(cause payload.Cause) func(*subject, *reporter) {
	return func(s *subject, r *reporter) {
		for _, p := range s.problems {
			if p.Cause == cause {
				r.report(Finding{
					File:     p.File,
					Line:     p.Line,
					Column:   p.Column,
					Document: p.Document,
					Object:   p.Object,
					Message:  p.Message,
				})
			}
		}
	}
}
