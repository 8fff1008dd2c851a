package sandboxtest

import (
	"fmt"
	"net/http"
	"strings"
)

// A Request is a request for an object, or for all objects of a resource if it has no name. Its verb is list, watch,
// or the HTTP method in lower case, which for some methods is not the verb of RBAC.
type Request struct{ Verb, Resource, Namespace, Name string }

func (r Request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name))
}

// ParseRequest parses the URL of a request. It returns false for requests without objects, such as discovery.
func ParseRequest(request *http.Request) (Request, bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	prefix := map[string]int{"api": 2, "apis": 3}[parts[0]] // with the group and version
	if prefix == 0 || len(parts) <= prefix {
		return Request{}, false
	}
	parts = parts[prefix:]
	parsed := Request{Verb: strings.ToLower(request.Method)}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parsed.Namespace, parts = parts[1], parts[2:]
	}
	parsed.Resource = parts[0]
	if len(parts) > 1 {
		parsed.Name = parts[1]
	}
	if request.Method == http.MethodGet && parsed.Name == "" {
		parsed.Verb = "list"
		if request.URL.Query().Get("watch") != "" {
			parsed.Verb = "watch"
		}
	}
	return parsed, true
}
