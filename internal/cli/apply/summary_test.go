package apply

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// An object that another manager has recreated does not block updates, and the summary does not report that it does.
func TestRecreatedObjectDoesNotBlock(t *testing.T) {
	object := func(name string) kinds.ID { return kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: name} }
	var out strings.Builder
	Summary{Deletes: []state.PendingDelete{
		{Object: object("held"), State: tombstone.Terminating, Message: "terminating for 5s"},
		{Object: object("back"), State: tombstone.Reappeared, Message: "recreated by painter"},
	}}.print(&out, time.Now())
	const want = `
  pending deletes, which block the next minor update:
    ConfigMap shop/held: terminating for 5s
  deleted, and recreated by another manager, which blocks nothing:
    ConfigMap shop/back: recreated by painter
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("got summary:\n%s\nwant:%s", &out, want)
	}
}

// Apply prints texts of controllers, webhooks and other managers.
func TestApplyEscapesTextsOfTheCluster(t *testing.T) {
	const hostile = "1.0\x1b[31m\u202e\u2066\nfaked line"
	id := kinds.ID{Kind: hostile, Name: hostile}
	var out bytes.Buffer
	Summary{
		Version: hostile, Notes: []string{hostile},
		Waits:   []apply.Wait{{ID: id, For: hostile, Why: []string{hostile}}},
		NotDone: []undoneStep{{Object: id, File: hostile, Why: hostile}},
		Deletes: []state.PendingDelete{{Object: id, Message: hostile},
			{Object: id, Message: hostile, State: tombstone.Reappeared}},
		Adopted:   []adoption{{Object: id, From: []string{hostile}}},
		Overruled: []overwrite{{Object: id, Lost: []ownership.Conflict{{Field: hostile, Manager: hostile}}}},
		Warnings:  []apply.Warning{{Text: hostile, Files: []string{hostile}}},
	}.print(&out, time.Now())
	report := &reporter{streams: core.Streams{Out: &out, Err: &out}, now: time.Now}
	for _, event := range []apply.EventType{apply.Waiting, apply.Failing, apply.Warned} {
		report.line(&out, apply.Event{
			Type:    event,
			Object:  &id,
			File:    hostile,
			Message: hostile,
			Why:     []string{hostile},
		})
	}
	out.WriteString(titleOf(&session.Outcome{Version: hostile, Previous: "0.9" + hostile}))
	if strings.ContainsAny(out.String(), "\x1b\u202e\u2066") || strings.Contains(out.String(), "\nfaked") {
		t.Errorf("control characters are not escaped: %q", &out)
	}
}

// The summary counts hooks separately, and names each with its Deployment.
func TestHooksAreCountedSeparately(t *testing.T) {
	step := func(hook string) object.StepID {
		return object.StepID{
			ID:   kinds.ID{Kind: "Deployment", Namespace: "shop", Name: "web"},
			Hook: hook,
			Path: "web.yaml",
		}
	}
	report := &apply.Report{Changes: []object.Change{
		{StepID: step("pre"), Action: object.Ran}, {StepID: step("mid"), Action: object.Ran},
		{StepID: step(""), Action: object.Configured},
		{StepID: step("pre"), Action: object.NotNeeded},
		{StepID: step("post"), Action: object.NotDone, Message: "waiting: pod web-post is pending"},
	}}
	now := time.Now()
	report.Waits = []apply.Wait{{ID: step("").ID, Hook: "post", For: "pod web-post is pending", Since: now}}
	var out strings.Builder
	summarize(&session.Outcome{Release: "shop", Report: report}, now).print(&out, now)
	const want = `release shop applied in 0s: 1 configured, 2 hooks ran, 1 hook not done
  not ready:
    post hook of Deployment shop/web: pod web-post is pending, for 0s
  not done:
    post hook of Deployment shop/web: waiting: pod web-post is pending
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// The log lines of a hook's pod are printed unchanged, with or without a live view.
func TestLinesOfHooksArePrinted(t *testing.T) {
	var lines bytes.Buffer
	report := newReporter(core.Streams{Err: &lines}, core.Text, false, time.Now)
	event := apply.Event{
		Type:    apply.Logged,
		Object:  &kinds.ID{Kind: "Deployment", Namespace: "shop", Name: "web"},
		Hook:    "pre",
		Message: "table \x1b[31morders\x1b[0m has 3 rows",
	}
	report.event(event)
	report.event(event)
	const want = `log         pre hook of Deployment shop/web: table \x1b[31morders\x1b[0m has 3 rows` + "\n"
	if lines.String() != want+want || !isPersistent(event) {
		t.Errorf("got lines %q, want twice %q", &lines, want)
	}
}
