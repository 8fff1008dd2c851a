package uninstall_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) {
	if job := os.Getenv(mortalEnv); job != "" {
		os.Exit(beMortal(job)) // see killed_test.go
	}
	os.Exit(test.Run(m))
}

// patience is far longer than an uninstall that succeeds takes.
const patience = 5 * time.Minute

// records is the namespace of the records of all these releases.
const records = "uninstall-records"

// A shop is a release with a namespace of its own, which NS stands for in its files and in the texts of the tests.
type shop struct {
	testing.TB
	name   string
	config *rest.Config
}

func newShop(t testing.TB) shop {
	return shop{t, "shop-" + rand.String(6), test.Sandbox(t).Config}
}

// through sends its requests through a function.
func (s shop) through(before func(*http.Request) error) shop {
	s.config = sandboxtest.Before(s.config, before)
	return s
}

func (s shop) connect() *cluster.Cluster {
	s.Helper()
	return sandboxtest.Connect(s, s.config)
}

// apply applies files of the shop, in txtar.
func (s shop) apply(files string, change ...func(*session.Options)) *session.Outcome {
	s.Helper()
	o := session.Options{Namespace: records, Apply: apply.Options{Timeout: patience}, Lock: lock.Options{Wait: true}}
	for _, fn := range change {
		fn(&o)
	}
	return session.Run(s.Context(), s.connect(),
		sandboxtest.LoadRelease(s, s.name, files, payload.Options{Name: s.name, Version: "1.0.0"}), o)
}

// must applies files that can be applied.
func (s shop) must(files string, change ...func(*session.Options)) {
	s.Helper()
	if outcome := s.apply(files, change...); outcome.Err != nil {
		s.Fatal(outcome.Err)
	}
}

func (s shop) options(change ...func(*uninstall.Options)) uninstall.Options {
	o := uninstall.Options{Release: s.name, Namespace: records, Timeout: patience}
	for _, fn := range change {
		fn(&o)
	}
	return o
}

// uninstall uninstalls it.
func (s shop) uninstall(change ...func(*uninstall.Options)) *uninstall.Report {
	s.Helper()
	return uninstallOf(s.Context(), s.connect(), s.options(change...))
}

func uninstallOf(ctx context.Context, c *cluster.Cluster, o uninstall.Options) *uninstall.Report {
	plan, err := uninstall.Look(ctx, c, o)
	if err != nil {
		return &uninstall.Report{Err: err}
	}
	return uninstall.Run(ctx, c, o, plan)
}

// mustUninstall uninstalls it, which must not fail.
func (s shop) mustUninstall(change ...func(*uninstall.Options)) *uninstall.Report {
	s.Helper()
	report := s.uninstall(change...)
	if report.Err != nil || !report.Done {
		s.Fatalf("done: %t, %v; left: %v", report.Done, report.Err, report.Left)
	}
	return report
}

// patterns are those of a test.
func (s shop) patterns(texts ...string) []uninstall.NamePattern {
	s.Helper()
	var all []uninstall.NamePattern
	for _, text := range texts {
		pattern, err := uninstall.ParsePattern(strings.ReplaceAll(text, "NS", s.name))
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, pattern)
	}
	return all
}

// remaining are the objects with the label of the release, in order.
func (s shop) remaining() []string {
	s.Helper()
	c := sandboxtest.Connect(s, test.Sandbox(s).Config)
	all, _, err := c.AllKinds(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var scopes []inventory.Scope
	for _, resource := range all {
		if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete") {
			scopes = append(scopes, inventory.Scope{Kind: resource.GroupKind()})
		}
	}
	found, err := inventory.Take(s.Context(), c, scopes, func(release string, _ kinds.ID) bool {
		return release == s.name
	})
	if err != nil {
		s.Fatal(err)
	}
	var texts []string
	for id := range found.IDs() {
		if id.Kind != "Endpoints" && id.Kind != "EndpointSlice" {
			texts = append(texts, s.text(id.String()))
		}
	}
	slices.Sort(texts)
	return texts
}

// text is a text of the cluster with NS for the namespace.
func (s shop) text(text string) string { return strings.ReplaceAll(text, s.name, "NS") }

// record is its record; nil if there is none, and no copy either.
func (s shop) record() *record.Record {
	s.Helper()
	known, found, err := record.NewStore(test.Client(s), records, s.name).Load(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if !found {
		return nil
	}
	return known
}

// isForgotten reports whether neither its record nor its Lease exists.
func (s shop) isForgotten() bool {
	s.Helper()
	_, err := test.Client(s).CoordinationV1().Leases(records).Get(s.Context(), lock.Name(s.name), metav1.GetOptions{})
	return s.record() == nil && apierrors.IsNotFound(err)
}

// kept are the kept objects of a report, with their reasons.
func (s shop) kept(report *uninstall.Report) []string {
	var texts []string
	for _, kept := range report.Kept {
		texts = append(texts, s.text(fmt.Sprintf("%s: %s", kept.Object, kept.Reason)))
	}
	return texts
}

// patch changes an object as another client.
func (s shop) patch(id kinds.ID, patch string) {
	s.Helper()
	c := sandboxtest.Connect(s, test.Sandbox(s).Config)
	resource, err := c.FindKind(s.Context(), id.GroupKind())
	if err != nil {
		s.Fatal(err)
	}
	options := metav1.PatchOptions{FieldManager: "another"}
	if _, err := c.In(resource, s.name).Patch(s.Context(), id.Name, types.MergePatchType, []byte(patch),
		options); err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
}

// hold adds a finalizer to an object, and has it removed when the test ends.
func (s shop) hold(id kinds.ID) {
	s.Helper()
	s.patch(id, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	s.Cleanup(func() {
		c := sandboxtest.Connect(s, test.Sandbox(s).Config)
		if resource, err := c.FindKind(context.Background(), id.GroupKind()); err == nil {
			_, _ = c.In(resource, s.name).Patch(context.Background(), id.Name, types.MergePatchType,
				[]byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		}
	})
}

func (s shop) unhold(id kinds.ID) {
	s.Helper()
	s.patch(id, `{"metadata": {"finalizers": null}}`)
}

// A deleteLog is the deletes that were sent, in order.
type deleteLog struct {
	mu   sync.Mutex
	sent []string
}

func (l *deleteLog) note(request *http.Request) error {
	if parsed, isObject := sandboxtest.ParseRequest(request); isObject && request.Method == http.MethodDelete {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent = append(l.sent, parsed.Resource)
	}
	return nil
}
