package session_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkApply applies a release of a thousand objects: for the first time, again as it
// is, and with one object of a hundred changed. Each time all is begun again, as a process
// of its own would. In turn with it, a bare loop applies a twin of the release as it is done
// by hand: the same requests at a time, in a loop, without order, waiting, telling or a
// record. "of-loop" is how long we take where the loop takes 1.
func BenchmarkApply(b *testing.B) {
	ours, theirs := newEstate(), newEstate()
	install := sync.OnceFunc(func() {
		ours.roll(b, graph.Install, 48)
		theirs.loop(b, 48)
		settle(b)
	})
	for _, bench := range []struct {
		name    string
		prepare func()
		mode    graph.Mode
		atOnce  int // number of workers of that mode
	}{
		{"again", func() {}, graph.Reconcile, 8},
		{"hundredth-changed", func() {
			ours.revision, theirs.revision = ours.revision+1, theirs.revision+1
		}, graph.Update, 16},
		{"first", func() { ours, theirs = newEstate(), newEstate() }, graph.Install, 48},
	} {
		b.Run(bench.name, func(b *testing.B) {
			install()
			var we, they lap
			for b.Loop() {
				b.StopTimer()
				bench.prepare()
				b.StartTimer()
				we.run(func() int64 { return ours.roll(b, bench.mode, bench.atOnce) })
				b.StopTimer()
				they.run(func() int64 { return theirs.loop(b, bench.atOnce) })
				settle(b)
				b.StartTimer()
			}
			report(b, we, they)
		})
	}
}

// A lap is how long a run took, and for how many requests.
type lap struct {
	took     time.Duration
	requests int64
}

func (l *lap) run(do func() int64) {
	began := time.Now()
	l.requests += do()
	l.took += time.Since(began)
}

func report(b *testing.B, we, they lap) {
	b.ReportMetric(float64(we.took)/float64(they.took), "of-loop")
	b.ReportMetric(float64(we.requests)/float64(b.N), "requests/op")
	b.ReportMetric(float64(they.requests)/float64(b.N), "loop-requests/op")
}

// An estate is a release that no other test has: ten components with a namespace each, and in
// it ten objects of each of ten kinds, one of which the release defines itself.
type estate struct {
	name     string
	revision int
}

func newEstate() *estate { return &estate{name: "estate-" + rand.String(6)} }

// files returns the manifests of the estate. One object of a hundred has the revision.
func (e *estate) files() fstest.MapFS {
	folder := fstest.MapFS{}
	put := func(file, text string, words ...string) {
		text = strings.NewReplacer(append(words, "ESTATE", e.name)...).Replace(text)
		folder[file+".yaml"] = &fstest.MapFile{Data: []byte(text)}
	}
	put("0000_10_base_widgets", estateDefinition)
	for part := range 10 {
		namespace := fmt.Sprintf("%s-%d", e.name, part)
		put(fmt.Sprint("0000_10_base_namespace-", part),
			"{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE}}", "NAMESPACE", namespace)
		for kind, text := range estateKinds {
			for i := range 10 {
				revision := 0
				if kind == part && i == 0 {
					revision = e.revision
				}
				put(fmt.Sprintf("0000_20_component-%d_%d-%d", part, kind, i), estateHead+text,
					"NAMESPACE", namespace, "NAME", fmt.Sprint("part-", i), "REVISION",
					fmt.Sprint("revision-", revision))
			}
		}
	}
	return folder
}

func (e *estate) load(b *testing.B) *payload.Payload {
	b.Helper()
	release, _, err := payload.Load(b.Context(), e.files(),
		payload.Options{Name: e.name, Version: fmt.Sprint("1.0.", e.revision)})
	if err != nil {
		b.Fatal(err)
	}
	return release
}

// connect makes a connection that counts its requests.
func (e *estate) connect(b *testing.B) (*cluster.Cluster, *atomic.Int64) {
	b.Helper()
	sent := new(atomic.Int64)
	return connectAs(b, e.name, func(*http.Request) error { sent.Add(1); return nil }), sent
}

// roll applies it as a process of ours does, and reports how many requests that takes.
func (e *estate) roll(b *testing.B, want graph.Mode, atOnce int) int64 {
	b.Helper()
	c, sent := e.connect(b)
	o := options()
	o.Apply.Workers = atOnce
	outcome := session.Run(b.Context(), c, e.load(b), o)
	if outcome.Err != nil || outcome.Mode != want {
		b.Fatalf("the %s: %v", outcome.Mode, outcome.Err)
	}
	if got := counts(outcome)[object.Unchanged]; want == graph.Reconcile && got != len(outcome.Report.Changes) {
		b.Fatalf("only %d of %d objects were unchanged", got, len(outcome.Report.Changes))
	}
	return sent.Load()
}

// loop applies it with the least that does, and reports how many requests that takes.
func (e *estate) loop(b *testing.B, atOnce int) int64 {
	b.Helper()
	c, sent := e.connect(b)
	var first, then []*unstructured.Unstructured
	for _, manifest := range e.load(b).Manifests {
		if kind := manifest.ID().GroupKind(); kind == kinds.Namespace || kind == kinds.CustomResourceDefinition {
			first = append(first, manifest.Object())
		} else {
			then = append(then, manifest.Object())
		}
	}
	for _, objects := range [][]*unstructured.Unstructured{first, then} {
		group, ctx := errgroup.WithContext(b.Context())
		group.SetLimit(atOnce)
		for _, object := range objects {
			group.Go(func() error { return applyBare(ctx, c, object) })
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	return sent.Load()
}

// applyBare applies an object. A new definition is served a moment later.
func applyBare(ctx context.Context, c *cluster.Cluster, object *unstructured.Unstructured) error {
	resource, err := c.Find(ctx, object.GroupVersionKind())
	if err != nil {
		return err
	}
	if resource.GroupKind() == kinds.CustomResourceDefinition {
		c.Learn(object)
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			_, err := c.Apply(ctx, resource, object, cluster.Force)
			return err == nil, ignoreNotFound(err)
		})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// settle waits until the controllers have seen the applied objects: otherwise their work would slow down the next
// measurement.
func settle(b *testing.B) {
	b.Helper()
	err := wait.PollUntilContextTimeout(b.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			all, err := test.Client(b).AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
			return err == nil && !slices.ContainsFunc(all.Items, func(deployment appsv1.Deployment) bool {
				return deployment.Status.ObservedGeneration != deployment.Generation
			}), err
		})
	if err != nil {
		b.Fatal(err)
	}
}
