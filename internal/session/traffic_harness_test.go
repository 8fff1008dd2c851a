package session_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A traffic is the requests of a connection for objects.
type traffic struct {
	mu   sync.Mutex
	sent []sandboxtest.Request
}

// note is called before each request.
func (t *traffic) note(request *http.Request) error {
	if parsed, isForObjects := sandboxtest.ParseRequest(request); isForObjects {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sent = append(t.sent, parsed)
	}
	return nil
}

// take returns the requests since the last call.
func (t *traffic) take() []sandboxtest.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	sent := t.sent
	t.sent = nil
	return sent
}

// isUpkeep returns whether a request is about the record, the lock or the rights of a run.
func isUpkeep(r sandboxtest.Request) bool {
	return strings.HasPrefix(r.Name, "runlevel-release-") || strings.HasPrefix(r.Resource, "selfsubject") ||
		r.Resource == "leases"
}

// alone are those requests that are about single objects, or that write.
func alone(sent []sandboxtest.Request) []string {
	var all []string
	for _, item := range sent {
		if item.Verb != "list" && item.Verb != "watch" && !isUpkeep(item) {
			all = append(all, item.String())
		}
	}
	slices.Sort(all)
	return all
}

// summary counts requests by what they are.
func summary(sent []sandboxtest.Request) string {
	counts := map[string]int{}
	for _, item := range sent {
		switch {
		case isUpkeep(item):
			counts["of the record, the lock and rights"]++
		default:
			counts[item.Verb]++
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
	}
	return strings.Join(parts, ", ")
}
