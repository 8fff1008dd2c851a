package pages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of the events on objects.
const (
	maxEventsRead = 500 // on one object: the server returns them in the order of their names
	maxEvents     = 20  // of an object and its pods, in the table
	maxLatest     = 8   // of a release, in the table
	maxEventPods  = 5   // whose events are read, of an object
)

// eventsOn returns the events on an object, the newest first, with a reason if it is not empty.
func (s *Site) eventsOn(ctx context.Context, id kinds.ID, reason string) ([]state.Event, error) {
	namespace := cmp.Or(id.Namespace, metav1.NamespaceDefault) // events on cluster-scoped objects are in it
	about := fields.Set{"involvedObject.kind": id.Kind, "involvedObject.name": id.Name}
	if reason != "" {
		about["reason"] = reason
	}
	right := authorizationv1.ResourceAttributes{Verb: "list", Namespace: namespace, Resource: "events"}
	if err := s.may(ctx, right); err != nil {
		return nil, err
	}
	listed, err := s.Hub.Cluster.Client.CoreV1().Events(namespace).List(ctx,
		metav1.ListOptions{FieldSelector: about.AsSelector().String(), Limit: maxEventsRead})
	if err != nil {
		return nil, diagnosis.ReadError("list events in namespace "+namespace, err)
	}
	var events []state.Event
	for i := range listed.Items {
		event := &listed.Items[i]
		message := event.Message
		if event.Count > 1 {
			message += fmt.Sprintf(" (%d times)", event.Count)
		}
		events = append(events, state.Event{
			Time: eventTime(event).UTC(), Reason: event.Reason, Message: message,
			Warning: event.Type == corev1.EventTypeWarning,
		})
	}
	slices.SortStableFunc(events, newestFirst)
	return events, nil
}

func newestFirst(a, b state.Event) int { return b.Time.Compare(a.Time) }

// eventTime returns when an event was last observed: there are two APIs of events.
func eventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	default:
		return event.CreationTimestamp.Time
	}
}

// eventTable returns the first events, and the number of the others.
func eventTable(caption string, now time.Time, events []state.Event, most int) g.Group {
	table := look.Table{Caption: caption, Columns: []string{"Age", "Reason", "Message"}}
	for _, event := range events[:min(most, len(events))] {
		reason := look.Text(event.Reason)
		if event.Warning {
			reason = look.State(look.Waiting, "Warning: "+event.Reason)
		}
		table.Rows = append(table.Rows, []g.Node{look.Age(now, event.Time), reason, look.Lines(event.Message)})
	}
	return g.Group{table.Node(), look.More(len(events)-most, "event")}
}

// latestEvents returns the latest events on the ClusterVersion or on the record.
func (v releaseView) latestEvents() look.Section {
	if len(v.events) == 0 {
		return look.Section{}
	}
	return look.Section{ID: "events", Title: "Latest events",
		Body: eventTable("Latest events of the release", v.Status.Time, v.events, maxLatest)}
}

// events returns the newest events on the object and its pods.
func (v *objectView) events() g.Group {
	about, notes := []kinds.ID{v.id}, g.Group{}
	if pods, err := v.pods(); err == nil && v.id.Kind != "Pod" {
		pods = slices.SortedStableFunc(slices.Values(pods), func(a, b corev1.Pod) int {
			return cmp.Compare(readiness(&a), readiness(&b))
		})
		for _, pod := range pods[:min(maxEventPods, len(pods))] {
			about = append(about, kinds.NewID(schema.GroupKind{Kind: "Pod"}, pod.Namespace, pod.Name))
		}
		if more := len(pods) - maxEventPods; more > 0 {
			notes = append(notes, h.P(g.Textf("The events on %s are not shown.", printable.Count(more, "more pod"))))
		}
	}
	var all []state.Event
	for i, id := range about {
		found, err := v.eventsOn(v.ctx, id, "")
		if err != nil {
			return notKnown(err)
		}
		if len(found) == maxEventsRead {
			notes = append(notes, h.P(look.Text(fmt.Sprintf("Only %d events on %s are read: newer ones may be missing.",
				maxEventsRead, id))))
		}
		for _, event := range found {
			if i > 0 {
				event.Message = "Pod " + id.Name + ": " + event.Message
			}
			all = append(all, event)
		}
	}
	if len(all) == 0 {
		return sentence("There are no events. Clusters delete events after a while, by default after an hour.")
	}
	slices.SortStableFunc(all, newestFirst)
	return append(eventTable("Events", v.now(), all, maxEvents), notes...)
}

// readiness orders pods: those that are not ready come first.
func readiness(pod *corev1.Pod) int {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return 1
		}
	}
	return 0
}

// contentions returns the latest events on objects that are repaired repeatedly, because other clients change them.
func (s *Site) contentions(ctx context.Context, repairs *record.Repairs) map[kinds.ID]state.Event {
	if repairs == nil {
		return nil
	}
	found := map[kinds.ID]state.Event{}
	for _, repair := range repairs.Latest {
		if repair.Count < 2 {
			continue
		}
		if events, err := s.eventsOn(ctx, repair.ID, "Contested"); err == nil && len(events) > 0 {
			found[repair.ID] = events[0]
		}
	}
	return found
}
