package notify

import (
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var web = kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

// update returns an event of the update to a version.
func update(outcome EventType, version string) Event {
	return Event{Outcome: outcome, Action: "update", Version: version}
}

// TestRepeatedEventsAreReportedOnce expects that repeated events are reported once.
func TestRepeatedEventsAreReportedOnce(t *testing.T) {
	failed := func(version, message string, id kinds.ID) Event {
		e := update(Failed, version)
		e.Message, e.Failures = message, []record.ObjectFailure{{ID: id, Message: message}}
		return e
	}
	blocked := func(version string, checks ...string) Event {
		e := update(Blocked, version)
		e.Checks = checks
		return e
	}
	reconciled := func(outcome EventType, counts map[object.Action]int) Event {
		return Event{Outcome: outcome, Action: "reconcile", Version: "1.0.0", Counts: counts}
	}
	db := kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: "db"}
	unchanged := map[object.Action]int{object.Unchanged: 3}
	for name, c := range map[string]struct {
		events []Event
		want   string // y for each new event
	}{
		"an update": {[]Event{update(Begun, "1.1.0"), update(Completed, "1.1.0")}, "yy"},
		"a repeated apply": {[]Event{update(Begun, "1.1.0"), failed("1.1.0", "for 5s", web),
			update(Begun, "1.1.0"), failed("1.1.0", "for 9s", web), update(Begun, "1.1.0"), update(Completed, "1.1.0")},
			"yynnny"},
		"another failure": {[]Event{update(Begun, "1.1.0"), failed("1.1.0", "", web), failed("1.1.0", "", db)}, "yyy"},
		"another version": {[]Event{update(Begun, "1.1.0"), failed("1.1.0", "", web),
			update(Begun, "1.2.0"), failed("1.2.0", "", web)}, "yyyy"},
		"there and back, and there": {[]Event{update(Begun, "1.1.0"), failed("1.1.0", "", web), update(Begun, "1.0.0"),
			update(Completed, "1.0.0"), update(Begun, "1.1.0")}, "yyyyy"},
		"the gate blocks": {[]Event{blocked("1.1.0", "A"), blocked("1.1.0", "A"),
			blocked("1.1.0", "A", "B"), blocked("1.2.0", "A")}, "ynyy"},
		"it blocks beside a release": {[]Event{blocked("1.2.0", "A"), reconciled(Failed, nil), blocked("1.2.0", "A"),
			reconciled(Completed, nil)}, "yyny"},
		"it blocks again": {[]Event{blocked("1.1.0", "A"), update(Begun, "1.1.0"),
			update(Completed, "1.1.0"), blocked("1.1.0", "A")}, "yyyy"},
		"a reconcile that changes nothing": {[]Event{reconciled(Begun, nil), reconciled(Completed, unchanged)}, "nn"},
		"one that changes something": {
			[]Event{reconciled(Begun, nil), reconciled(Completed, map[object.Action]int{object.Configured: 1})}, "ny",
		},
		"one that fails, and then is all well": {[]Event{reconciled(Failed, nil), reconciled(Failed, nil),
			reconciled(Completed, unchanged), reconciled(Completed, unchanged)}, "ynyn"},
	} {
		t.Run(name, func(t *testing.T) {
			var n Notifier
			got := ""
			for _, event := range c.events {
				got += map[bool]string{true: "y", false: "n"}[n.isNews(event)]
			}
			if got != c.want {
				t.Errorf("news: %s, want %s", got, c.want)
			}
		})
	}
}

func TestTextOf(t *testing.T) {
	event := func(outcome EventType, change func(*Event)) Event {
		e := Event{Outcome: outcome, Action: "update", Release: "shop", Version: "1.5.0", From: "1.4.0", Seconds: 42.4}
		change(&e)
		return e
	}
	failures := []record.ObjectFailure{{ID: web, Message: "not ready: 0 of 1 pods\nare ready"}, {ID: web}}
	for want, e := range map[string]Event{
		"shop 1.4.0 → 1.5.0: update has begun by ana@host:7": event(Begun, func(e *Event) {
			e.By = "ana@host:7"
		}),
		"shop 1.4.0 → 1.5.0: update continues": event(Begun, func(e *Event) { e.IsResumed = true }),
		"shop 1.4.0 → 1.5.0: update completed in 42s: 12 configured, 3 created": event(Completed, func(e *Event) {
			e.Counts = map[object.Action]int{object.Created: 3, object.Configured: 12}
		}),
		"shop 1.4.0 → 1.5.0: update failed after 42s: Deployment shop/web: not ready: 0 of 1 pods\\nare ready (and 4 more)": event(Failed, func(e *Event) {
			e.Failures, e.More, e.Message = failures, 3, "Deployment shop/web (web.yaml): not ready"
		}),
		"shop 1.4.0 → 1.5.0: update failed after 42s: the time is up: 2 objects not ready; Deployment shop/web: not " +
			"ready: 0 of 1 pods\\nare ready (and 1 more)": event(Failed, func(e *Event) {
			e.Failures, e.Message = failures, "the time is up: 2 objects not ready"
		}),
		"shop 1.4.0 → 1.5.0: update failed after 1.3s: interrupted": event(Failed, func(e *Event) {
			e.Seconds, e.Message = 1.26, "interrupted"
		}),
		"shop 1.4.0 → 1.5.0: update is blocked by AdminAck, Paused: not yet": event(Blocked, func(e *Event) {
			e.Checks, e.Message = []string{"AdminAck", "Paused"}, "not yet"
		}),
		"shop 1.4.0 → 1.5.0: rolled back in 42s": event(RolledBack, func(e *Event) {
			e.Action = Rollback
		}),
		"shop: uninstalled in 42s: 14 deleted": event(Uninstalled, func(e *Event) {
			e.Version, e.From, e.Counts = "", "", map[object.Action]int{object.Deleted: 14}
		}),
	} {
		if got := textOf(e); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if strings.Contains(textOf(event(Failed, func(e *Event) { e.Failures = failures })), "\n") {
		t.Error("the text has several lines")
	}
}
