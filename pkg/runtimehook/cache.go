package runtimehook

import (
	"sync"
	"time"
)

// answerLifetime is how long an answer is remembered: an extension that is repaired without a change of its ExtensionConfig
// is asked again after that.
const answerLifetime = 10 * time.Minute

// A question is what an extension was asked, and by which version of its ExtensionConfig.
type question struct {
	version
	hash [32]byte // of what the answer depends on in the request
}

// answers remembers what extensions have decided. The zero value is empty.
type answers struct {
	mu    sync.Mutex
	known map[question]answer
}

type answer struct {
	HookDecision
	until time.Time
}

func (a *answers) find(q question, now time.Time) (HookDecision, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.known[q]
	return found.HookDecision, ok && now.Before(found.until)
}

// add remembers an answer, and forgets those that are too old.
func (a *answers) add(q question, decision HookDecision, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[question]answer{}
	}
	for old, known := range a.known {
		if !now.Before(known.until) {
			delete(a.known, old)
		}
	}
	a.known[q] = answer{decision, now.Add(answerLifetime)}
}
