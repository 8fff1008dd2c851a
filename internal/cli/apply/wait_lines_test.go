package apply

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A timedEvent is an event, and its time after the start of the apply.
type timedEvent struct {
	after time.Duration
	apply.Event
}

// everyTenSeconds returns an event for every ten seconds from begin to end, as an apply reports it.
func everyTenSeconds(begin, end time.Duration, event func(i int) apply.Event) []timedEvent {
	var all []timedEvent
	for i := 0; begin <= end; i++ {
		all = append(all, timedEvent{begin, event(i)})
		begin += 10 * time.Second
	}
	return all
}

// Without a terminal, an unchanged wait is printed less and less often.
func TestUnchangedWaitIsPrintedLessOften(t *testing.T) {
	waiting := func(message string, why ...string) func(int) apply.Event {
		return func(int) apply.Event { return apply.Event{Type: apply.Waiting, Message: message, Why: why} }
	}
	for name, c := range map[string]struct {
		events []timedEvent
		want   string
	}{
		"unchanged for half an hour": {
			everyTenSeconds(10*time.Second, 30*time.Minute,
				waiting("0 of 1 replicas are available", "Pod web: it has no node")),
			"10s 30s 1m0s 2m0s 4m0s 8m0s 13m0s 18m0s 23m0s 28m0s",
		},
		"the text changes": {
			append(everyTenSeconds(10*time.Second, time.Minute, waiting("0 of 3 replicas are available")),
				everyTenSeconds(70*time.Second, 2*time.Minute, waiting("1 of 3 replicas are available"))...),
			"10s 30s 1m0s 1m10s 1m30s 2m0s",
		},
		"the cause changes": {
			append(everyTenSeconds(10*time.Second, time.Minute,
				waiting("0 of 1 replicas are available", "Pod web: it has no node")),
				everyTenSeconds(70*time.Second, 2*time.Minute,
					waiting("0 of 1 replicas are available", "Pod web: container main crashes"))...),
			"10s 30s 1m0s 1m10s 1m30s 2m0s",
		},
		"only restarts are counted, and logs go on": {
			everyTenSeconds(10*time.Second, 2*time.Minute, func(i int) apply.Event {
				return waiting("0 of 1 replicas are available",
					fmt.Sprintf("Pod web: container main crashes: exit code 1, %d restarts", i),
					fmt.Sprintf("  | at %d", i))(i)
			}),
			"10s 30s 1m0s 2m0s",
		},
		"a retry, and the wait for it": {
			append(everyTenSeconds(time.Second, 2*time.Minute, func(i int) apply.Event {
				return apply.Event{
					Type:    apply.Retrying,
					Message: fmt.Sprintf("attempt %d failed, the next is in 10s: exceeded quota: none", i+1),
				}
			}), everyTenSeconds(2*time.Minute, 5*time.Minute, waiting("exceeded quota: none"))...),
			"1s 21s 51s 1m51s 4m0s",
		},
		"a hook beside its object": {
			append(everyTenSeconds(10*time.Second, 20*time.Second, waiting("0 of 1 replicas are available")),
				everyTenSeconds(25*time.Second, 35*time.Second, func(int) apply.Event {
					return apply.Event{Type: apply.Waiting, Hook: "post", Message: "0 of 1 replicas are available"}
				})...),
			"10s 25s",
		},
		"it breaks again": {
			append(append(everyTenSeconds(10*time.Second, 20*time.Second, waiting("0 of 1 replicas are available")),
				timedEvent{25 * time.Second, apply.Event{Type: apply.BeReady, Message: "after 25s"}}),
				everyTenSeconds(30*time.Second, 40*time.Second, waiting("0 of 1 replicas are available"))...),
			"10s 25s 30s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			var lines bytes.Buffer
			report := newReporter(core.Streams{Err: &lines}, core.Text, false, func() time.Time { return began })
			var printed []string
			for _, item := range c.events {
				item.Time, item.Object, item.File = began.Add(item.after),
					&kinds.ID{Kind: "Deployment", Namespace: "shop", Name: "web"}, "web.yaml"
				lines.Reset()
				if report.event(item.Event); lines.Len() > 0 {
					printed = append(printed, item.after.String())
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(printed, " ")); diff != "" {
				t.Errorf("printed after (-want +got):\n%s", diff)
			}
		})
	}
}

// The stream repeats each wait, so that programs need not remember earlier ones.
func TestStreamRepeatsWaits(t *testing.T) {
	var out bytes.Buffer
	report := newReporter(core.Streams{Out: &out}, core.JSON, false, time.Now)
	for range 3 {
		report.event(apply.Event{
			Type:    apply.Waiting,
			Object:  &kinds.ID{Kind: "Deployment", Name: "web"},
			Message: "0 of 1 replicas are available",
		})
	}
	if got := strings.Count(out.String(), `"type":"waiting"`); got != 3 {
		t.Errorf("got %d events, want 3:\n%s", got, out.String())
	}
}
