package session_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A traffic is what a connection asks the server for.
type traffic struct {
	mu   sync.Mutex
	sent []asked
}

// An asked is one request.
type asked struct{ verb, resource, namespace, name string }

func (a asked) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", a.verb, a.resource, a.namespace, a.name))
}

// note is a hook.
func (f *traffic) note(request *http.Request) error {
	requested, isKnown := askedFor(request)
	if !isKnown { // which kinds there are
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, requested)
	return nil
}

// take returns what was sent since the last call.
func (f *traffic) take() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// askedFor reads a request as the server does.
func askedFor(request *http.Request) (asked, bool) {
	steps := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case steps[0] == "api" && len(steps) > 2:
		steps = steps[2:]
	case steps[0] == "apis" && len(steps) > 3:
		steps = steps[3:]
	default:
		return asked{}, false
	}
	var item asked
	if steps[0] == "namespaces" && len(steps) > 2 {
		item.namespace, steps = steps[1], steps[2:]
	}
	item.resource = steps[0]
	if len(steps) > 1 {
		item.name = steps[1]
	}
	item.verb = strings.ToLower(request.Method)
	if request.Method == http.MethodGet && item.name == "" {
		item.verb = "list"
		if request.URL.Query().Get("watch") != "" {
			item.verb = "watch"
		}
	}
	return item, true
}

// isUpkeep says whether a request is about our record, our lock or our rights.
func (a asked) isUpkeep() bool {
	return strings.HasPrefix(a.name, "runlevel-release-") || strings.HasPrefix(a.resource, "selfsubject") || a.resource == "leases"
}

// alone are those requests that are about single objects, or that write.
func alone(sent []asked) []string {
	var all []string
	for _, item := range sent {
		if item.verb != "list" && item.verb != "watch" && !item.isUpkeep() {
			all = append(all, item.String())
		}
	}
	slices.Sort(all)
	return all
}

// summary counts requests by what they are.
func summary(sent []asked) string {
	counts := map[string]int{}
	for _, item := range sent {
		switch {
		case item.isUpkeep():
			counts["of the record, the lock and rights"]++
		default:
			counts[item.verb]++
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
	}
	return strings.Join(parts, ", ")
}
