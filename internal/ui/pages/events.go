package pages

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	g "maragu.dev/gomponents"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// maxLatest limits the latest events on a release.
const maxLatest = 8

// eventsOn returns the latest events on an object, with a reason if it is not empty. Events are optional: without the
// right to list them, there are none.
func (s *Site) eventsOn(ctx context.Context, id kinds.ID, reason string) []state.Event {
	about := fields.Set{"involvedObject.kind": id.Kind, "involvedObject.name": id.Name}
	if reason != "" {
		about["reason"] = reason
	}
	found, err := s.eventsIn(ctx, cmp.Or(id.Namespace, metav1.NamespaceDefault), about)
	if err != nil {
		return nil
	}
	var events []state.Event
	for i := range found {
		events = append(events, state.Event{
			Time: eventTime(&found[i]).UTC(), Reason: found[i].Reason, Message: found[i].Message,
			Warning: found[i].Type == corev1.EventTypeWarning,
		})
	}
	slices.SortStableFunc(events, func(a, b state.Event) int { return b.Time.Compare(a.Time) })
	return events[:min(maxLatest, len(events))]
}

// latestEvents returns the latest events on the ClusterVersion or on the record.
func (v releaseView) latestEvents() look.Section {
	if len(v.events) == 0 {
		return look.Section{}
	}
	table := look.Table{Caption: "Latest events of the release", Columns: []string{"Age", "Reason", "Message"}}
	for _, event := range v.events {
		reason := look.Text(event.Reason)
		if event.Warning {
			reason = look.State(look.Waiting, "Warning: "+event.Reason)
		}
		table.Rows = append(table.Rows, []g.Node{
			look.Age(v.Status.Time, event.Time), reason, look.Lines(event.Message),
		})
	}
	return look.Section{ID: "events", Title: "Latest events", Body: g.Group{table.Node()}}
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
		if events := s.eventsOn(ctx, repair.ID, "Contested"); len(events) > 0 {
			found[repair.ID] = events[0]
		}
	}
	return found
}
