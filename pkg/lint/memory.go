package lint

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/runlevel/runlevel/pkg/crd"
)

// A Memory keeps what schemas say of manifests from one run to the next, which is most of
// the work of a run. It forgets what the last run did not ask. The zero value is empty.
type Memory struct {
	mu        sync.Mutex
	old, asks map[question][]crd.Problem
}

// A question is what a definition says of itself, or of a custom resource, both by their
// texts.
type question struct {
	definition, resource [sha256.Size]byte
}

// next is the memory for another run; one for this run alone, if there was none.
func (m *Memory) next() *Memory {
	if m == nil {
		m = &Memory{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.old, m.asks = m.asks, map[question][]crd.Problem{}
	return m
}

// answer remembers what was asked before, or asks.
func (m *Memory) answer(ctx context.Context, about question, ask func() []crd.Problem) []crd.Problem {
	m.mu.Lock()
	known, isKnown := m.asks[about]
	if !isKnown {
		known, isKnown = m.old[about]
	}
	m.mu.Unlock()
	if !isKnown {
		known = ask() // others ask meanwhile
	}
	if ctx.Err() == nil { // else it may be half of an answer
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asks[about] = known
	}
	return known
}
