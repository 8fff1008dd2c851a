// Package notify reports the events of a release to people and programs: that an apply, rollback or uninstall has
// begun, has completed, has failed, or is blocked by the gate. A Notifier writes each Event on the record of the
// release, where kubectl describe shows it, and sends it as a CloudEvent to the receivers that a user names: URLs and
// commands.
//
// The package knows nothing of an apply: package session and package uninstall create the events. A failed delivery
// does not fail or delay an apply. A Sender has a goroutine for each receiver, with a bounded queue.
//
// NewSender returns the Sender that a Notifier uses, and ParseReceiver reads the receivers that a user names. Start
// with Notifier.Notify.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// An EventType is the type of an event of a release. It is the last part of the type of the CloudEvent.
type EventType string

// The types of events.
const (
	Begun       EventType = "begun"
	Completed   EventType = "completed"
	Failed      EventType = "failed"
	Blocked     EventType = "blocked" // the gate has blocked the update before its start
	RolledBack  EventType = "rolledback"
	Uninstalled EventType = "uninstalled"
)

// ReasonUninstalled is the reason of the event on the record of a release that was uninstalled.
const ReasonUninstalled = "ReleaseUninstalled"

// reasons are the reasons of the events on the record.
var reasons = map[EventType]string{
	Begun: "ReleaseBegun", Completed: "ReleaseCompleted", Failed: "ReleaseFailed", Blocked: "ReleaseBlocked",
	RolledBack: "ReleaseRolledBack", Uninstalled: ReasonUninstalled,
}

// A ReleaseAction is an action on a release: the mode of an apply, or one of these.
type ReleaseAction string

// The actions that are no modes.
const (
	Rollback  ReleaseAction = "rollback"
	Uninstall ReleaseAction = "uninstall"
	Test      ReleaseAction = "test"
)

// An Event is a change of the state of a release.
type Event struct {
	Outcome   EventType     `json:"outcome"`
	Action    ReleaseAction `json:"action"`
	Text      string        `json:"text"` // the event in a line
	Release   string        `json:"release"`
	Namespace string        `json:"namespace"`         // namespace of the record
	Cluster   string        `json:"cluster,omitempty"` // the name of the cluster, if known
	Version   string        `json:"version,omitempty"`
	From      string        `json:"from,omitempty"`     // the previous version, if it differs
	Revision  int           `json:"revision,omitempty"` // revision in the history
	By        string        `json:"by,omitempty"`       // the process that holds the lock
	// Counts contains the number of objects for each action, such as created.
	Counts  map[object.Action]int `json:"counts,omitempty"`
	Reason  string                `json:"reason,omitempty"` // reason of a failure or of an incomplete action, in a word
	Message string                `json:"message,omitempty"`
	Checks  []string              `json:"checks,omitempty"` // checks of the gate that block
	// the first objects that were not applied, or are not ready
	Failures  []record.ObjectFailure `json:"failures,omitempty"`
	More      int                    `json:"more,omitempty"`    // failures that are left out
	Seconds   float64                `json:"seconds,omitempty"` // the duration of the action
	IsResumed bool                   `json:"resumed,omitempty"` // the action continues one that was interrupted
}

// changes are the actions that change a cluster.
var changes = []object.Action{object.Created, object.Configured, object.Recreated, object.Deleted, object.Pending}

// isChange reports whether an apply has changed anything on the cluster.
func (e Event) isChange() bool {
	return slices.ContainsFunc(changes, func(action object.Action) bool { return e.Counts[action] > 0 })
}

// A Notifier reports the events of one release, each once.
type Notifier struct {
	Cluster   *cluster.Cluster
	Namespace string // namespace of the record
	Release   string

	mu      sync.Mutex
	last    Event // last event of an apply or uninstall
	blocked Event
}

// Notify writes an event on the record with a UID, and sends it to the receivers of a Sender, which may be nil. Notify
// ignores an event that is not new. If it can't write an event, for example without rights, it logs the error.
func (n *Notifier) Notify(ctx context.Context, sender *Sender, uid types.UID, event Event) {
	if !n.isNews(event) {
		return
	}
	event.Release, event.Namespace = n.Release, n.Namespace
	event.Text = textOf(event)
	sender.Send(event, cluster.Host(n.Cluster), n.Cluster.Now())
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout) // the event may report Ctrl-C
	defer cancel()
	err := cluster.RecordEvent(limited, n.Cluster, cluster.ObjectEvent{
		ID: kinds.NewID(kinds.ConfigMap, n.Namespace, lock.Name(n.Release)), UID: uid,
		Reason: reasons[event.Outcome], IsWarning: event.Outcome == Failed || event.Outcome == Blocked,
		Message: event.Text,
	})
	if err != nil {
		klog.FromContext(ctx).V(1).Info("an event could not be written", "release", n.Release, "err", err)
	}
}

// writeTimeout limits the write of an event: an apply does not wait long for a server that does not answer.
const writeTimeout = 5 * time.Second

// ForgetBlocked makes the Notifier report the next event of a blocked update, even if it is the same as the last one.
func (n *Notifier) ForgetBlocked() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked = Event{}
}

// isNews reports whether an event is new, and stores it. A repeated action is reported when it begins, when it
// fails for another reason than before, and when it ends. A reconcile without changes is only reported if it
// ends a failure.
func (n *Notifier) isNews(event Event) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	isRetry := n.last.Version == event.Version && n.last.Action == event.Action &&
		(n.last.Outcome == Begun || n.last.Outcome == Failed)
	switch event.Outcome {
	case Blocked:
		if n.blocked.Version == event.Version && slices.Equal(n.blocked.Checks, event.Checks) {
			return false
		}
		n.blocked = event
		return true
	case Begun:
		if isRetry || event.Action == ReleaseAction(graph.Reconcile) {
			return false
		}
		n.blocked = Event{}
	case Failed:
		if n.last.Outcome == Failed && n.last.Version == event.Version && isSameFailure(n.last, event) {
			return false
		}
	default:
		if event.Action == ReleaseAction(graph.Reconcile) && !event.isChange() && n.last.Outcome != Failed {
			return false
		}
	}
	n.last = event
	return true
}

// isSameFailure reports whether two failures have the same reason and objects. Messages may differ: they contain ages.
func isSameFailure(a, b Event) bool {
	isSame := func(a, b record.ObjectFailure) bool { return a.ID == b.ID && a.Hook == b.Hook && a.Reason == b.Reason }
	return a.Reason == b.Reason && slices.EqualFunc(a.Failures, b.Failures, isSame) &&
		(len(a.Failures) > 0 || a.Message == b.Message)
}

// A CloudEvent is the document that is sent for an event: CloudEvents 1.0, in the structured mode.
type CloudEvent struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"`      // the same in each try to deliver the event
	Source      string    `json:"source"`  // the URL of the record
	Type        string    `json:"type"`    // dev.runlevel.release. and the outcome
	Subject     string    `json:"subject"` // the release
	Time        time.Time `json:"time"`    // server time
	ContentType string    `json:"datacontenttype"`
	Data        Event     `json:"data"`
}

// newCloudEvent returns the document of an event on a release of the cluster at a server's URL.
func newCloudEvent(event Event, server string, now time.Time) CloudEvent {
	return CloudEvent{
		SpecVersion: "1.0", ID: uuid.NewString(), Type: "dev.runlevel.release." + string(event.Outcome),
		Subject: event.Release,
		Source: fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps/%s", strings.TrimSuffix(server, "/"), event.Namespace,
			lock.Name(event.Release)),
		Time: now.UTC(), ContentType: "application/json", Data: event,
	}
}

// slackEscaper escapes the control characters of Slack, and mentions of a whole channel in texts of a cluster.
var slackEscaper = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;",
	"@everyone", "@\u200beveryone", "@channel", "@\u200bchannel", "@here", "@\u200bhere", "@all", "@\u200ball",
)

// slackBody returns the message of an event for an incoming webhook of Slack.
func (c CloudEvent) slackBody() ([]byte, error) {
	text := c.Data.Text
	if c.Data.Cluster != "" {
		text = c.Data.Cluster + ": " + text
	}
	return json.Marshal(map[string]string{"text": slackEscaper.Replace(text)})
}

// verbs are the verbs of sentences about a release.
var verbs = map[EventType]string{Begun: "has begun", Completed: "completed", Failed: "failed", Blocked: "is blocked"}

// textOf returns an event in a line, such as "shop 1.4.0 → 1.5.0: update completed in 42s: 3 created, 12 configured".
func textOf(e Event) string {
	what := string(e.Action) + " " + verbs[e.Outcome]
	switch {
	case e.Outcome == RolledBack:
		what = "rolled back"
	case e.Outcome == Uninstalled:
		what = "uninstalled"
	case e.Outcome == Begun && e.IsResumed:
		what = string(e.Action) + " continues"
	}
	switch e.Outcome {
	case Begun:
		if e.By != "" {
			what += " by " + e.By
		}
	case Blocked:
		what += " by " + strings.Join(e.Checks, ", ")
	case Failed:
		what += " after " + rounded(e.Seconds)
	default:
		what += " in " + rounded(e.Seconds)
	}
	if details := detailsOf(e); details != "" {
		what += ": " + details
	}
	return printable.Line(titleOf(e) + ": " + what)
}

// titleOf returns the release with its versions.
func titleOf(e Event) string {
	title := e.Release
	if e.From != "" {
		title += " " + e.From + " →"
	}
	if e.Version != "" {
		title += " " + e.Version
	}
	return title
}

// detailsOf returns the reason of a failed or blocked action, with the first failed object. For other actions, it
// returns the counts of changes.
func detailsOf(e Event) string {
	details := e.Message
	if len(e.Failures) > 0 {
		first := e.Failures[0]
		failure := first.OrHook(first.Hook) + ": " + first.Message
		switch {
		// the error of the apply is that of the object
		case details == "" || strings.Contains(details, first.ID.String()):
			details = failure
		default:
			details += "; " + failure
		}
		if others := len(e.Failures) - 1 + e.More; others > 0 {
			details += fmt.Sprintf(" (and %d more)", others)
		}
	}
	if details != "" {
		return details
	}
	var counts []string
	for action, count := range e.Counts {
		counts = append(counts, fmt.Sprintf("%d %s", count, action))
	}
	slices.Sort(counts)
	return strings.Join(counts, ", ")
}

func rounded(seconds float64) string {
	took := time.Duration(seconds * float64(time.Second))
	if took < 10*time.Second {
		return took.Round(100 * time.Millisecond).String()
	}
	return took.Round(time.Second).String()
}
