package why_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/pkg/apply"
)

// withHooks returns a record with the state of the Deployment's hooks.
func withHooks(rec *record.Record, state deploymenthook.State) *record.Record {
	rec.RememberHooks(web, state)
	return rec
}

// progressOf returns the state of a running rollout, with the progress of one hook.
func progressOf(stage deploymenthook.Stage, progress deploymenthook.HookProgress) deploymenthook.State {
	return deploymenthook.State{
		Rollout: "new",
		Hooks:   map[deploymenthook.Stage]deploymenthook.HookProgress{stage: progress},
	}
}

// A status and "why" report the hooks of the record.
func TestHookStatuses(t *testing.T) {
	ended := during()
	ended.History[0].End = &record.End{
		Failures: []record.ObjectFailure{{ID: web, Hook: "pre", Message: "no such table"}},
	}
	ended.Run = nil
	for name, c := range map[string]struct {
		rec  *record.Record
		want string
	}{
		"succeeded": {withHooks(completed(), deploymenthook.State{
			Template: "new",
			Hooks: map[deploymenthook.Stage]deploymenthook.HookProgress{
				deploymenthook.Pre: {Result: deploymenthook.Succeeded},
			},
		}), ""},
		"running": {withHooks(during(),
			progressOf(deploymenthook.Pre, deploymenthook.HookProgress{Began: ago(3 * time.Minute)})),
			"its pre hook has been running for 3m"},
		"tried again": {
			withHooks(during(), progressOf(deploymenthook.Mid,
				deploymenthook.HookProgress{Began: ago(3 * time.Minute), Failures: 2, Message: "exit code 3"})),
			"its mid hook has been running for 3m, and 2 attempts failed, the last one: exit code 3",
		},
		"given up": {
			withHooks(ended, progressOf(deploymenthook.Pre, deploymenthook.HookProgress{Attempt: 1})),
			"its pre hook has failed and blocked the rollout: no such table; run apply again to retry it, or pass " +
				"--skip-hook shop/web:pre",
		},
		"given up in a reported run": {
			withHooks(during(node("level 10, web", "failed", nil, hookOf("pre", apply.HasFailed, "exit code 3"))),
				progressOf(deploymenthook.Pre, deploymenthook.HookProgress{Attempt: 1})),
			"its pre hook has failed: exit code 3\nits pre hook has failed and blocked the rollout; run apply again " +
				"to retry it, or pass --skip-hook shop/web:pre",
		},
		"ignored": {
			withHooks(completed(), deploymenthook.State{
				Template: "new",
				Hooks: map[deploymenthook.Stage]deploymenthook.HookProgress{deploymenthook.Post: {
					Result:   deploymenthook.Ignored,
					Failures: 1,
					Message:  "exit code 3",
				}},
			}),
			"its post hook has failed, and is ignored: exit code 3",
		},
		"skipped": {
			withHooks(completed(), deploymenthook.State{
				Template: "new",
				Hooks: map[deploymenthook.Stage]deploymenthook.HookProgress{deploymenthook.Pre: {
					Result: deploymenthook.Skipped,
					By:     "ana",
				}},
			}),
			"its pre hook was skipped by ana",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := why.Judge(existing(isReady, c.rec))
			var got []string
			for _, sentence := range answer.Messages {
				if strings.HasPrefix(sentence.Text, "its ") {
					got = append(got, sentence.Text)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
