package session_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A release is a release that a test applies in several versions. It has its own namespace;
// NS stands for this namespace in its files.
type release struct {
	*testing.T
	namespace string
	name      string
	config    *rest.Config
}

func newRelease(t *testing.T) release {
	namespace := test.Namespace(t)
	return release{t, namespace, namespace, test.Sandbox(t).Config}
}

// through sends its requests through a function.
func (r release) through(before func(*http.Request) error) release {
	r.config = sandboxtest.Before(r.config, before)
	return r
}

func (r release) connect() *cluster.Cluster {
	r.Helper()
	return sandboxtest.Connect(r, r.config)
}

// load reads a version of the release, with files in the txtar format.
func (r release) load(version, files string) *payload.Payload {
	r.Helper()
	loaded := sandboxtest.LoadRelease(r, r.namespace, files, payload.Options{Name: r.name})
	loaded.Version = version
	loaded.Hash += version // the files of a real version have the version in their metadata
	return loaded
}

// roll applies a version of the release.
func (r release) roll(ctx context.Context, version, files string, change ...func(*session.Options)) *session.Outcome {
	r.Helper()
	options := session.Options{Namespace: r.namespace, Apply: apply.Options{Timeout: patience}}
	for _, fn := range change {
		fn(&options)
	}
	return session.Run(ctx, r.connect(), r.load(version, files), options)
}

// must applies a version of the release. The test fails if the apply fails.
func (r release) must(version, files string, change ...func(*session.Options)) *session.Outcome {
	r.Helper()
	outcome := r.roll(r.Context(), version, files, change...)
	if outcome.Err != nil {
		r.Fatal(outcome.Err)
	}
	return outcome
}

// An observer is a session.Observer of functions. Those that are nil do nothing.
type observer struct {
	onBegin    func(*session.Outcome) error
	onRecorded func() error
	onOutcome  func(*session.Outcome)
}

func (o observer) OnBegin(outcome *session.Outcome) error {
	if o.onBegin == nil {
		return nil
	}
	return o.onBegin(outcome)
}

func (o observer) OnRecorded(context.Context, *cluster.Cluster) error {
	if o.onRecorded == nil {
		return nil
	}
	return o.onRecorded()
}

func (o observer) OnOutcome(outcome *session.Outcome) {
	if o.onOutcome != nil {
		o.onOutcome(outcome)
	}
}

func force(options *session.Options) { options.Force = true }

// record returns the record of the release.
func (r release) record() *record.Record {
	r.Helper()
	known, _, err := record.NewStore(test.Client(r), r.namespace, r.name).Load(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return known
}

// events returns the reasons of our events on an object in the namespace, sorted.
func (r release) events(name string) []string {
	r.Helper()
	list, err := test.Client(r).CoreV1().Events(r.namespace).List(r.Context(),
		metav1.ListOptions{FieldSelector: "source=runlevel,involvedObject.name=" + name})
	if err != nil {
		r.Fatal(err)
	}
	var reasons []string
	for _, event := range list.Items {
		reasons = append(reasons, event.Reason)
	}
	slices.Sort(reasons)
	return reasons
}

// done returns the action on each manifest.
func done(outcome *session.Outcome) string {
	var text []string
	for _, change := range outcome.Report.Changes {
		text = append(text, fmt.Sprintf("%s %s", change.Action, change.ID.Name))
	}
	return strings.Join(text, ", ")
}

// configMap returns a ConfigMap that another client creates.
func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"colour": "blue"}}
}
