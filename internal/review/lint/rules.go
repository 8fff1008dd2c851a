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
		webhookRules(),
		dataRules(),
		reachingRules(),
		secretRules(),
		rightsRules(),
		lifeRules(),
		halfwayRules(),
		hookRules(),
		schemaRules(),
		refusingRules(),
		RehearsalRules(),
		ignoringRules(),
	)
}

// readingRules are about files that can't be read, or whose content is probably a mistake.
func readingRules() []Rule {
	return []Rule{
		{"unreadable", Error, nothing, problemsOf(payload.Unreadable)},
		{"not-a-manifest", Error, nothing, problemsOf(payload.Unidentified)},
		{"malformed", Error, nothing, problemsOf(payload.Malformed)},
		{"metadata", Error, nothing, problemsOf(payload.Mislabelled)},
		{"suspicious", Warning, nothing, problemsOf(payload.Suspicious)},
		{"repeated-key", Warning, nothing, problemsOf(payload.RepeatedKey)},
	}
}

// deletingRules are about the delete annotation, and objects with more than one manifest.
func deletingRules() []Rule {
	return []Rule{
		{"delete-value", Error, nothing, problemsOf(payload.WrongDelete)},
		{"delete-misspelt", Error, nothing, checkMisspeltDelete},
		{"delete-misplaced", Error, nothing, checkMisplacedDelete},
		{"delete-never", Error, nothing, checkDeleteNever},
		{"delete-create-only", Info, nothing, checkDeleteCreateOnly},
		{"created-and-deleted", Error, nothing, checkCreatedAndDeleted},
		{"duplicate", Error, nothing, checkDuplicate},
	}
}

// outageRules are about deletes of objects that other objects still need.
func outageRules() []Rule {
	return []Rule{
		{"inside-deleted-namespace", Error, nothing, checkInsideDeletedNamespace},
		{"of-deleted-definition", Error, nothing, checkOfDeletedDefinition},
		{"deleted-in-use", Error, nothing, checkDeletedInUse},
		{"backend-deleted", Error, nothing, checkBackendDeleted},
		{"account-deleted", Error, nothing, checkAccountDeleted},
		{"rbac-deleted-first", Warning, nothing, checkRBACDeletedFirst},
		{"operator-deleted-first", Warning, nothing, checkOperatorDeletedFirst},
		{"protected-namespace", Error, nothing, checkProtectedNamespace},
		{"delete-inside-deleted", Info, nothing, checkDeleteInsideDeleted},
		{"delete-after-definition", Warning, nothing, checkDeleteAfterDefinition},
	}
}

// updatingRules are about the effects of an update from the previous payload.
func updatingRules() []Rule {
	return []Rule{
		{"dropped", Error, needsPrevious, checkDropped},
		{"renamed", Error, needsPrevious, checkRenamed},
		{"narrowed", Warning, needsPrevious, checkNarrowed},
		{"delete-of-nothing", Warning, needsPrevious, checkDeleteOfNothing},
		{"stale-delete", Error, needsVersions, checkStaleDelete},
		{"revived", Warning, needsPrevious, checkRevived},
		{"immutable-changed", Error, needsPrevious, checkImmutableChanged},
		{"job-changed", Error, needsPrevious, checkJobChanged},
		{"replicas-dropped", Warning, needsPrevious, checkReplicasDropped},
		{"stored-version-dropped", Error, needsPrevious, checkStoredVersionDropped},
		{"version-removed", Warning, needsPrevious, checkVersionRemoved},
	}
}

// namingRules are about files and their names.
func namingRules() []Rule {
	return []Rule{
		{"file-name", Warning, nothing, checkFileName},
		{"level-width", Warning, nothing, checkLevelWidth},
		{"split-component", Warning, nothing, checkSplitComponent},
		{"ignored-file", Warning, nothing, checkIgnoredFile},
		{"empty-document", Warning, nothing, checkEmptyDocument},
		{"final-newline", Info, nothing, checkFinalNewline},
	}
}

// objectRules are about single objects, and the objects that they need.
func objectRules() []Rule {
	return []Rule{
		{"removed-api", Error, nothing, checkRemovedAPI},
		{"unknown-api", Error, nothing, checkUnknownAPI},
		{"foreign-kind", Info, nothing, checkForeignKind},
		{"other-tool", Warning, nothing, checkOtherTools},
		{"unknown-annotation", Warning, nothing, problemsOf(payload.UnknownAnnotation)},
		{"no-namespace", Error, nothing, checkNoNamespace},
		{"needless-namespace", Warning, nothing, checkNeedlessNamespace},
		{"missing-namespace", Warning, nothing, checkMissingNamespace},
		{"out-of-order", Warning, nothing, checkOutOfOrder},
		{"waits-for-later", Error, nothing, checkWaitsForLater},
		{"unknown-capability", Warning, nothing, checkUnknownCapability},
		{"unknown-feature-set", Warning, nothing, checkUnknownFeatureSet},
		{"unknown-feature-gate", Warning, nothing, checkUnknownFeatureGate},
		{"never-applied", Warning, nothing, checkNeverApplied},
		{"feature-set-and-gate", Error, nothing, checkFeatureSetAndGate},
		{"major-version-kind", Error, nothing, checkMajorVersionKind},
		{"image-not-in-release", Warning, needsImages, checkImageNotInRelease},
		{"placeholder-image", Info, nothing, problemsOf(payload.Placeholder)},
		{"no-readiness-probe", Info, nothing, checkNoReadinessProbe},
		{"job-runs-again", Warning, nothing, checkJobRunsAgain},
		{"ready-expression", Error, nothing, checkReadyExpression},
		{"test-annotation", Error, nothing, checkTestAnnotation},
		{"recreate-refused", Error, nothing, checkRecreateRefused},
	}
}

// hookRules are about the hooks of Deployments.
func hookRules() []Rule {
	return []Rule{
		{"hooks-invalid", Error, nothing, problemsOf(payload.InvalidHooks)},
		{"hooks-container", Error, nothing, problemsOf(payload.HookContainer)},
		{"hooks-strategy", Error, nothing, problemsOf(payload.HookStrategy)},
		{"hooks-misplaced", Error, nothing, problemsOf(payload.MisplacedHooks)},
		{"hooks-unknown-volume", Warning, nothing, problemsOf(payload.HookVolume)},
		{"hooks-no-effect", Warning, nothing, problemsOf(payload.HookIneffective)},
		{"hooks-not-run", Info, needsPrevious, checkHooksNotRun},
	}
}

// schemaRules validate objects against their schemas.
func schemaRules() []Rule {
	return []Rule{
		{"unknown-field", Error, nothing, checkUnknownField},
		{"wrong-type", Error, nothing, problemsOf(payload.WrongType)},
		{"custom-resource", Error, nothing, checkCustomResource},
		{"definition", Error, nothing, checkDefinition},
	}
}

// ignoringRules are about comments and entries that ignore findings. Run checks these itself.
func ignoringRules() []Rule {
	return []Rule{
		{"bad-ignore", Error, nothing, nil},
		{"unused-ignore", Warning, nothing, nil},
		{"stale-baseline", Info, nothing, nil},
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
