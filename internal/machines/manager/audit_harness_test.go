package manager_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// auditPolicy is the policy of the audit log: it records every write to an object that a deletion may change, when the
// write arrives and when it is answered. It omits heartbeats and other signs of life.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: machine.openshift.io}
  - {group: cluster.x-k8s.io}
  - {group: infrastructure.runlevel.dev}
  - {group: "", resources: [nodes, pods, pods/binding]}
- level: Metadata
  verbs: [create]
  resources:
  - {group: "", resources: [pods/eviction]}
- level: None
`

// An auditedRequest is a request that the API server has received.
type auditedRequest struct {
	AuditID   string
	Stage     string
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	// The request took effect between these two times.
	Begin          time.Time `json:"requestReceivedTimestamp"`
	End            time.Time `json:"stageTimestamp"`
	ResponseStatus struct{ Code int }
	RequestObject  json.RawMessage
	ResponseObject json.RawMessage
}

// isDone reports whether a request was done and has its object in the answer.
func (r auditedRequest) isDone() bool {
	return r.ResponseStatus.Code >= http.StatusOK && r.ResponseStatus.Code < http.StatusMultipleChoices
}

// isUnsure reports that a request was done or was not: it was not answered, or with an error of the server.
func (r auditedRequest) isUnsure() bool {
	return r.ResponseStatus.Code == 0 || r.ResponseStatus.Code >= http.StatusInternalServerError
}

func (r auditedRequest) span() span { return span{Begin: r.Begin, End: r.End} }

// inDefault are the texts of which the lines of the audit log have one that are about the namespace default, or a Node.
var inDefault = []string{`"namespace":"default"`, `"resource":"nodes"`}

// readAudit returns the requests in the audit log of a sandbox whose lines have one of some texts. Those that were
// under way when the API server was killed have ended then.
func readAudit(s *sandbox.Sandbox, crashes []time.Time, about ...string) ([]auditedRequest, error) {
	files, err := filepath.Glob(filepath.Join(s.Logs, "audit*.log")) // those that are full come first, by their times
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	log := auditLog{crashes: crashes, about: about, received: map[string]int{}}
	for _, file := range files {
		if err := log.read(file); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
	}
	return log.requests, nil
}

// removeFullAudits removes the files of the audit log that are no longer written to.
func removeFullAudits(s *sandbox.Sandbox) error {
	files, err := filepath.Glob(filepath.Join(s.Logs, "audit-*.log"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// An auditLog contains the requests read from an audit log.
type auditLog struct {
	crashes  []time.Time
	about    []string
	requests []auditedRequest
	received map[string]int // where each request is
}

// read reads a file of the log.
func (l *auditLog) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // a line that has no end is being written
		}
		var request auditedRequest
		// else the API server was killed while it wrote the line
		if isAbout(line, l.about) && json.Unmarshal(line, &request) == nil {
			l.add(request)
		}
	}
}

// add adds the request of a line. The line of its receipt may lack a name that the object has in the line of its
// answer.
func (l *auditLog) add(request auditedRequest) {
	if index, isKnown := l.received[request.AuditID]; isKnown && request.Stage != "RequestReceived" {
		l.requests[index] = request
		return
	}
	if request.Stage == "RequestReceived" {
		request.End = firstAfter(l.crashes, request.Begin)
	}
	l.received[request.AuditID] = len(l.requests)
	l.requests = append(l.requests, request)
}

// firstAfter returns the first of some moments after another one, or the end of time.
func firstAfter(moments []time.Time, begin time.Time) time.Time {
	if i := slices.IndexFunc(moments, begin.Before); i >= 0 {
		return moments[i]
	}
	return endOfTime
}

// isAbout reports without decoding a line of the audit log whether it has one of some texts.
func isAbout(line []byte, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(line, []byte(text)) })
}
