package openshift_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/machines/infra"
)

// A scriptedProvider is infrastructure that a test controls.
type scriptedProvider struct {
	mu        sync.Mutex
	instances map[string]infra.Instance
	addresses []corev1.NodeAddress // addresses of created instances
	calls     []providerCall
	isSlow    bool    // a deleted instance stays
	invalid   error   // what each call answers
	deletes   []error // errors of the next deletes
}

type providerCall struct {
	verb    string
	machine string
	at      time.Time
	isGone  bool // whether a get found no instance
}

func newScriptedProvider() *scriptedProvider {
	return &scriptedProvider{
		instances: map[string]infra.Instance{},
		addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
	}
}

// configure changes the behavior of the infrastructure.
func (p *scriptedProvider) configure(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// finish removes the instances being deleted, and lets later deletes complete at once.
func (p *scriptedProvider) finish() {
	p.configure(func() {
		p.isSlow = false
		for name, instance := range p.instances {
			if instance.IsDeleting {
				delete(p.instances, name)
			}
		}
	})
}

// forget forgets the calls so far.
func (p *scriptedProvider) forget() { p.configure(func() { p.calls = nil }) }

// callsOf returns the calls of a verb, or all.
func (p *scriptedProvider) callsOf(verb string) []providerCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.calls), func(c providerCall) bool { return verb != "" && c.verb != verb })
}

// Get implements openshift.Infrastructure.
func (p *scriptedProvider) Get(_ context.Context, m infra.Machine) (infra.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls,
		providerCall{verb: "look", machine: m.Name, at: time.Now(), isGone: !p.instances[m.Name].Exists})
	return p.instances[m.Name], p.invalid
}

// Create implements openshift.Infrastructure.
func (p *scriptedProvider) Create(_ context.Context, m infra.Machine) (infra.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, providerCall{verb: "create", machine: m.Name, at: time.Now()})
	if p.invalid != nil {
		return infra.Instance{}, p.invalid
	}
	p.instances[m.Name] = infra.Instance{
		Kind: m.Template.GroupVersionKind(), Exists: true, IsProvisioned: true, ProviderID: "script://" + m.Name,
		Addresses: p.addresses,
	}
	return p.instances[m.Name], nil
}

// Delete implements openshift.Infrastructure.
func (p *scriptedProvider) Delete(_ context.Context, m infra.Machine) (infra.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, providerCall{verb: "delete", machine: m.Name, at: time.Now()})
	if len(p.deletes) > 0 {
		err := p.deletes[0]
		p.deletes = p.deletes[1:]
		return infra.Instance{}, err
	}
	if p.invalid != nil {
		return infra.Instance{}, p.invalid
	}
	instance := p.instances[m.Name]
	instance.IsDeleting = true
	p.instances[m.Name] = instance
	if !p.isSlow {
		delete(p.instances, m.Name)
	}
	return instance, nil
}

// A writeLog records the writes of a controller. It can break the connection, as if the controller died.
type writeLog struct {
	namespace string
	hold      func(*http.Request) // may keep a request waiting; nil keeps none

	mu       sync.Mutex
	lines    []string
	cutAt    int  // the write, from now on, with which the connection fails; 0 is never
	isLate   bool // whether that write is executed and only its response is lost
	isFailed bool
	cut      chan struct{} // closed once the connection fails
}

var errCut = errors.New("the connection was cut")

// arm discards the recorded writes, and breaks the connection at a later write.
func (w *writeLog) arm(index int, isLate bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines, w.cutAt, w.isLate = nil, index, isLate
}

// fix makes the connection work again.
func (w *writeLog) fix() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutAt, w.isFailed = 0, false
}

// tap passes requests, and notes writes.
func (w *writeLog) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	if w.hold != nil {
		w.hold(request)
	}
	isWrite := request.Method != http.MethodGet && !strings.HasSuffix(request.URL.Path, "/events")
	mayPass, isLast := w.begin(isWrite)
	if isLast {
		defer close(w.cut) // a late write has arrived by then
	}
	if !mayPass {
		return nil, errCut
	}
	if !isWrite {
		return send.RoundTrip(request)
	}
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	// A write that has left arrives, and is noted, though the controller ends meanwhile.
	request = request.WithContext(context.WithoutCancel(request.Context()))
	response, err := send.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if w.note(w.describe(request, body, response)) {
		_ = response.Body.Close()
		return nil, errCut
	}
	return response, nil
}

// begin reports whether a request may pass, and whether the connection fails with it.
func (w *writeLog) begin(isWrite bool) (mayPass, isLast bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isFailed {
		return false, false
	}
	if isWrite && w.cutAt > 0 {
		w.cutAt--
		w.isFailed = w.cutAt == 0
	}
	return !w.isFailed || w.isLate, w.isFailed
}

// note notes a write, and reports whether its answer is lost.
func (w *writeLog) note(line string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	return w.isFailed
}

// describe writes a request as its verb and its object, without the test's namespace.
func (w *writeLog) describe(request *http.Request, body []byte, response *http.Response) string {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	line := request.Method + " " + strings.ReplaceAll(strings.Join(parts, "/"), w.namespace+"-", "")
	if strings.HasSuffix(line, "/status") && bytes.Contains(body, []byte("Drain finished successfully")) {
		line += " drained"
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		line += fmt.Sprintf(": %d", response.StatusCode)
	}
	return line
}

// matching returns the writes with a text in them.
func (w *writeLog) matching(text string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.lines), func(line string) bool { return !strings.Contains(line, text) })
}

// ofNodes returns the writes of nodes, except for those of their conditions.
func (w *writeLog) ofNodes() []string {
	return slices.DeleteFunc(w.matching(" nodes/"), func(line string) bool { return strings.Contains(line, "/status") })
}
