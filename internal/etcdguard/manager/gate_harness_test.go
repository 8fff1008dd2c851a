package manager_test

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

var discard = log.New(io.Discard, "", 0)

// A gate intercepts each request of the guard to the API server and to etcd. It can kill the guard before a write
// arrives, or before the answer to a write arrives.
type gate struct {
	mu     sync.Mutex
	writes []string
	// before and after are called with each write. They return whether the guard dies now; nil stands for false.
	before, after func(write string) bool
}

// pass passes requests to a handler. Requests that are not writes of the guard have no description.
func (g *gate) pass(next http.Handler, describe func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write := describe(r)
		if write == "" {
			next.ServeHTTP(w, r)
			return
		}
		if g.call(false, write) {
			panic(http.ErrAbortHandler)
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		answer := recorder.Result()
		if isDone(answer) {
			g.mu.Lock()
			g.writes = append(g.writes, write)
			g.mu.Unlock()
			if g.call(true, write) {
				panic(http.ErrAbortHandler)
			}
		}
		send(w, answer)
	})
}

// isDone returns whether an answer is a success. Etcd reports an error in the trailers of its answer.
func isDone(answer *http.Response) bool {
	status := answer.Header.Get("Grpc-Status") + answer.Trailer.Get("Grpc-Status")
	return answer.StatusCode < http.StatusMultipleChoices && (status == "" || status == "0")
}

// send sends an answer on.
func send(w http.ResponseWriter, answer *http.Response) {
	maps.Copy(w.Header(), answer.Header)
	w.Header().Del("Trailer") // they are sent unannounced
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
	for name, values := range answer.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

func (g *gate) call(isAfter bool, write string) bool {
	g.mu.Lock()
	function := g.before
	if isAfter {
		function = g.after
	}
	g.mu.Unlock()
	return function != nil && function(write)
}

// set replaces the functions that the gate calls before and after a write.
func (g *gate) set(before, after func(string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

// matching returns the writes with a text in them.
func (g *gate) matching(text string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.writes), func(write string) bool { return !strings.Contains(write, text) })
}

// describeEtcd names the writes that only the guard makes.
func describeEtcd(r *http.Request) string {
	for path, name := range map[string]string{
		"/etcdserverpb.Cluster/MemberPromote":  "promote",
		"/etcdserverpb.Cluster/MemberRemove":   "remove",
		"/etcdserverpb.Maintenance/MoveLeader": "move leader",
	} {
		if r.URL.Path == path {
			return name
		}
	}
	return ""
}

// describeAPI names the relevant writes: those of hooks, permissions and pods, but not events and reports of hooks.
// Reads of a Machine of Cluster API have names as well, because a permission begins with one.
func describeAPI(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, machine, isMachine := strings.Cut(r.URL.Path, "/machines/")
	_, pod, isPod := strings.Cut(r.URL.Path, "/pods/")
	switch {
	case isMachine && r.Method == http.MethodPatch && bytes.Contains(body, []byte("lifecycleHooks")):
		if bytes.Contains(body, []byte("EtcdQuorumOperator")) {
			return "add hook " + machine
		}
		return "remove hook " + machine
	case isMachine && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/cluster.x-k8s.io/"):
		return "read " + machine
	case isMachine && r.Method == http.MethodPatch && bytes.Contains(body, []byte(allowed)):
		return "permit update of " + machine
	case isPod && r.Method == http.MethodDelete:
		return "delete " + pod
	}
	return ""
}

// describeMembers writes members as their names; learners have a question mark.
func describeMembers(found map[string]*etcdserverpb.Member) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name].IsLearner {
			name += "?"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
