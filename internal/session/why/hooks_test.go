package why_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/lifecycle"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
)

// withHooks returns a record with the state of the Deployment's hooks.
func withHooks(of *record.Record, state lifecycle.State) *record.Record {
	of.RememberHooks(web, state)
	return of
}

// progressOf is a rollout that is under way, with how far one hook of it is.
func progressOf(stage lifecycle.Stage, progress lifecycle.HookProgress) lifecycle.State {
	return lifecycle.State{Rollout: "new", Hooks: map[lifecycle.Stage]lifecycle.HookProgress{stage: progress}}
}

// A status and "why" tell of hooks what the record has of them.
func TestStandingHooks(t *testing.T) {
	ended := during()
	ended.History[0].End = &record.End{Failures: []record.ObjectFailure{{ID: web, Hook: "pre", Message: "no such table"}}}
	ended.Run = nil
	for name, c := range map[string]struct {
		of   *record.Record
		want string
	}{
		"succeeded": {withHooks(completed(), lifecycle.State{Template: "new", Hooks: map[lifecycle.Stage]lifecycle.HookProgress{lifecycle.Pre: {Result: lifecycle.Succeeded}}}), ""},
		"running":   {withHooks(during(), progressOf(lifecycle.Pre, lifecycle.HookProgress{Began: ago(3 * time.Minute)})), "its pre hook has been running for 3m"},
		"tried again": {
			withHooks(during(), progressOf(lifecycle.Mid, lifecycle.HookProgress{Began: ago(3 * time.Minute), Failures: 2, Message: "exit code 3"})),
			"its mid hook has been running for 3m, and 2 attempts failed, the last one: exit code 3",
		},
		"given up": {
			withHooks(ended, progressOf(lifecycle.Pre, lifecycle.HookProgress{Attempt: 1})),
			"its pre hook has stopped the rollout: no such table; the next apply begins with it, and --skip-hook shop/web:pre goes on without it",
		},
		"given up in a run that tells": {
			withHooks(during(node("level 10, web", "failed", nil, hookOf("pre", record.Failed, "exit code 3"))), progressOf(lifecycle.Pre, lifecycle.HookProgress{Attempt: 1})),
			"its pre hook has failed: exit code 3\nits pre hook has stopped the rollout; the next apply begins with it, and --skip-hook shop/web:pre goes on without it",
		},
		"ignored": {
			withHooks(completed(), lifecycle.State{Template: "new", Hooks: map[lifecycle.Stage]lifecycle.HookProgress{lifecycle.Post: {Result: lifecycle.Ignored, Failures: 1, Message: "exit code 3"}}}),
			"its post hook has failed, and is ignored: exit code 3",
		},
		"skipped": {
			withHooks(completed(), lifecycle.State{Template: "new", Hooks: map[lifecycle.Stage]lifecycle.HookProgress{lifecycle.Pre: {Result: lifecycle.Skipped, By: "ana"}}}),
			"its pre hook was skipped by ana",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := why.Judge(there(isReady, c.of))
			var got []string
			for _, one := range answer.Sentences {
				if strings.HasPrefix(one.Text, "its ") {
					got = append(got, one.Text)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
