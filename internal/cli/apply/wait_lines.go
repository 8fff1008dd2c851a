package apply

import (
	"regexp"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply"
)

// The pauses after which an unchanged wait is printed again: each is twice as long as the one
// before. An apply reports each wait every ten seconds.
const (
	firstWaitPause   = 15 * time.Second
	longestWaitPause = 5 * time.Minute
)

// waitLines decide whether a wait or a retry is printed without a live view: at its begin, when its cause changes, and
// otherwise at growing intervals. The clock is the time of the events.
type waitLines struct{ printed map[waitKey]printedWait }

type waitKey struct {
	file   string
	object kinds.ID
	hook   string
}

// A printedWait is the last printed state of a wait.
type printedWait struct {
	cause string
	at    time.Time
	pause time.Duration // time until it is printed again
}

// isDue reports whether an event has to be printed now. Events other than waits are always printed, and end the wait
// for their object.
func (w *waitLines) isDue(event apply.Event) bool {
	if event.Object == nil {
		return true
	}
	key := waitKey{event.File, *event.Object, event.Hook}
	switch event.Type {
	case apply.Waiting, apply.Retrying:
	case apply.Applied, apply.BeReady, apply.Failing:
		delete(w.printed, key)
		return true
	default:
		return true
	}
	next := printedWait{cause: waitCause(event), at: event.Time, pause: firstWaitPause}
	if last, isKnown := w.printed[key]; isKnown && last.cause == next.cause {
		if event.Time.Sub(last.at) < last.pause {
			return false
		}
		next.pause = min(2*last.pause, longestWaitPause)
	}
	if w.printed == nil {
		w.printed = map[waitKey]printedWait{}
	}
	w.printed[key] = next
	return true
}

var digits = regexp.MustCompile(`\d+`)

// waitCause returns the part of an event that stays the same while nothing changes: without the
// number of the attempt, and of its pods without counts of restarts and lines of logs.
func waitCause(event apply.Event) string {
	cause := event.Message
	if event.Type == apply.Retrying {
		_, cause, _ = strings.Cut(cause, ": ") // "attempt 2 failed, the next is in 1s: …"
	}
	for _, reason := range event.Why {
		if !strings.HasPrefix(reason, " ") { // not a line of a log
			cause += "\n" + digits.ReplaceAllString(reason, "")
		}
	}
	return cause
}
