package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/rollout"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// An object that another manager has made anew holds back no update, and is not said to.
func TestWhatIsMadeAnewHoldsNothingBack(t *testing.T) {
	object := func(name string) kinds.ID { return kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: name} }
	var out strings.Builder
	applySummary{Deletes: []pendingDelete{
		{Object: object("held"), Is: tombstone.Terminating, State: "terminating for 5s"},
		{Object: object("back"), Is: tombstone.Reappeared, State: "made anew by painter"},
	}}.print(&out, time.Now())
	const want = `
  deletes that are pending, and hold back the next minor update:
    ConfigMap shop/held: terminating for 5s
  deleted, and made anew by another manager, which holds back nothing:
    ConfigMap shop/back: made anew by painter
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("it says:\n%s\nwant:%s", &out, want)
	}
}

// What an apply tells is text of controllers, webhooks and other managers.
func TestAnApplyEscapesWhatClustersSay(t *testing.T) {
	const hostile = "1.0\x1b[31m\u202e\u2066\nfaked line"
	id := kinds.ID{Kind: hostile, Name: hostile}
	var out bytes.Buffer
	applySummary{
		Version: hostile, Notes: []string{hostile},
		Waits:     []apply.Wait{{ID: id, For: hostile, Why: []string{hostile}}},
		NotDone:   []notDone{{Object: id, File: hostile, Why: hostile}},
		Deletes:   []pendingDelete{{Object: id, State: hostile}, {Object: id, State: hostile, Is: tombstone.Reappeared}},
		Adopted:   []adopted{{Object: id, From: []string{hostile}}},
		Overruled: []overruled{{Object: id, Lost: []ownership.Conflict{{Field: hostile, Manager: hostile}}}},
		Warnings:  []apply.Warning{{Text: hostile, Files: []string{hostile}}},
	}.print(&out, time.Now())
	report := &reporter{streams: Streams{Out: &out, Err: &out}, now: time.Now}
	for _, event := range []apply.EventType{apply.Waiting, apply.Failing, apply.Warned} {
		report.line(&out, apply.Event{Type: event, Object: &id, File: hostile, Message: hostile, Why: []string{hostile}})
	}
	out.WriteString(titleOf(&rollout.Outcome{Version: hostile, Previous: "0.9" + hostile}))
	if strings.ContainsAny(out.String(), "\x1b\u202e\u2066") || strings.Contains(out.String(), "\nfaked") {
		t.Errorf("it prints %q", &out)
	}
}
