package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// A site is where a release of the same name as a namespace is rolled out, into that. It
// remembers nothing: each call is that of another process.
type site struct {
	*testing.T
	namespace string
}

func newSite(t *testing.T) site { return site{t, test.Namespace(t)} }

func (s site) connect() *cluster.Cluster {
	s.Helper()
	c, err := cluster.Connect(test.Sandbox(s).Config)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// load reads a release of files in txtar, in which NS stands for the namespace.
func (s site) load(version, files string) *payload.Payload {
	s.Helper()
	folder := fstest.MapFS{}
	for _, file := range txtar.Parse([]byte(strings.ReplaceAll(files, "NS", s.namespace))).Files {
		folder[file.Name] = &fstest.MapFile{Data: file.Data}
	}
	release, _, err := payload.Load(s.Context(), folder, payload.Options{Name: s.namespace, Version: version})
	if err != nil {
		s.Fatal(err)
	}
	return release
}

// run rolls out, with the record in the same namespace.
func (s site) run(release *payload.Payload, options rollout.Options) *rollout.Outcome {
	s.Helper()
	options.Namespace, options.Apply.Timeout = s.namespace, 2*time.Minute
	return rollout.Run(s.Context(), s.connect(), release, options)
}

const (
	settings = `
-- 0000_10_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`
	prices = `
-- 0000_10_web_prices.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: NS}}
`
	withoutSettings = `
-- 0000_10_web_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, annotations: {release.openshift.io/delete: "true"}}
`
)

func TestModeFollowsFromTheRecord(t *testing.T) {
	s := newSite(t)
	for _, step := range []struct {
		what    string
		version string
		noWait  bool
		want    graph.Mode
	}{
		{"nothing was there", "1.0.0", true, graph.Install},
		{"the install was not completed", "1.0.0", false, graph.Install},
		{"it is all there", "1.0.0", false, graph.Reconcile},
		{"another version, of the same files", "1.0.1", true, graph.Update},
		{"the update was not completed", "1.0.1", false, graph.Update},
		{"it is all there again", "1.0.1", false, graph.Reconcile},
	} {
		outcome := s.run(s.load(step.version, settings), rollout.Options{Apply: apply.Options{NoWait: step.noWait}})
		if outcome.Err != nil || outcome.Mode != step.want {
			t.Errorf("%s: mode is %s, want %s (%v)", step.what, outcome.Mode, step.want, outcome.Err)
		}
	}

	// Who has only repaired what was begun has not completed it.
	s.run(s.load("1.0.2", settings), rollout.Options{Apply: apply.Options{NoWait: true}})
	s.run(s.load("1.0.2", settings), rollout.Options{Apply: apply.Options{Mode: graph.Reconcile}})
	if outcome := s.run(s.load("1.0.2", settings), rollout.Options{}); outcome.Err != nil || outcome.Mode != graph.Update {
		t.Errorf("after a reconcile that was asked for: mode is %s (%v)", outcome.Mode, outcome.Err)
	}

	// Objects say that there was a release, if the record is lost.
	if err := s.connect().Client.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), "runlevel-release-"+s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if outcome := s.run(s.load("1.0.2", settings), rollout.Options{}); outcome.Err != nil || outcome.Mode != graph.Update {
		t.Errorf("without its record: mode is %s (%v)", outcome.Mode, outcome.Err)
	}
}

func TestLookWritesNothing(t *testing.T) {
	s := newSite(t)
	c := s.connect()
	outcome := rollout.Look(t.Context(), c, s.load("1.0.0", settings), rollout.Options{Namespace: s.namespace + "-records"})
	if outcome.Err != nil || outcome.Mode != graph.Install || outcome.Report != nil {
		t.Errorf("%+v", outcome)
	}
	if _, err := c.Client.CoreV1().Namespaces().Get(t.Context(), s.namespace+"-records", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("a namespace was made for the record:", err)
	}
	if _, err := c.Client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("an object was made:", err)
	}
}

// A delete that is pending holds back the next minor version, whoever asks, until the
// object is gone; what was asked for stays known when a forced version has no tombstone.
func TestPendingDeleteIsKnownToWhoeverComesNext(t *testing.T) {
	s := newSite(t)
	maps := s.connect().Client.CoreV1().ConfigMaps(s.namespace)
	s.run(s.load("1.0.0", settings), rollout.Options{})
	held, err := maps.Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/cleanup"}
	if held, err = maps.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	outcome := s.run(s.load("1.1.0", withoutSettings), rollout.Options{})
	if outcome.Err != nil || len(outcome.Deletes) != 1 || outcome.Deletes[0].UID != held.UID {
		t.Fatalf("%+v", outcome)
	}

	outcome = s.run(s.load("1.2.0", prices), rollout.Options{})
	if got := precondition.Names(precondition.Blocking(outcome.Findings)); outcome.Report != nil || !slices.Equal(got, []string{precondition.PendingDelete}) {
		t.Errorf("the next minor version: %v, %v", got, outcome.Err)
	}
	if outcome = s.run(s.load("1.1.1", prices), rollout.Options{}); outcome.Err != nil || len(outcome.Deletes) != 1 {
		t.Errorf("a patch: %v, %+v", outcome.Err, outcome.Deletes)
	}
	outcome = s.run(s.load("1.2.0", prices), rollout.Options{Force: true})
	if diff := cmp.Diff([]string{precondition.PendingDelete}, outcome.Forced); outcome.Err != nil || diff != "" || len(outcome.Deletes) != 1 {
		t.Errorf("forced: %v, %+v\n%s", outcome.Err, outcome.Deletes, diff)
	}

	if held, err = maps.Get(t.Context(), "settings", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	held.Finalizers = nil
	if _, err := maps.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if outcome = s.run(s.load("1.3.0", prices), rollout.Options{}); outcome.Err != nil || len(outcome.Deletes) != 0 {
		t.Errorf("when it is gone: %v, %+v", outcome.Err, outcome.Deletes)
	}
}
