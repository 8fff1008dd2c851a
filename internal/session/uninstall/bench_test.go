package uninstall_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/uninstall"
)

// BenchmarkUninstall uninstalls a release of a thousand objects. In turn with it, a bare loop deletes those of a twin
// in the same order, as many at a time, and waits for the end of each stage, without looking whether others need them,
// a lock or a record. "of-loop" is how long we take where the loop takes 1.
func BenchmarkUninstall(b *testing.B) {
	for _, bench := range []struct {
		name  string
		files func() string
	}{
		{"with-namespaces", func() string { return thousand(10) }},
		{"in-one-namespace", func() string { return thousand(1) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var we, they time.Duration
			var ours, theirs int64
			for b.Loop() {
				b.StopTimer()
				first, second := newShop(b), newShop(b)
				first.must(bench.files())
				second.must(bench.files())
				b.StartTimer()
				took, sent := first.measure(func(s shop) { s.mustUninstall() })
				b.StopTimer()
				we, ours = we+took, ours+sent
				took, sent = second.measure(deleteBare)
				they, theirs = they+took, theirs+sent
				b.StartTimer()
			}
			b.ReportMetric(float64(we)/float64(they), "of-loop")
			b.ReportMetric(float64(ours)/float64(b.N), "requests/op")
			b.ReportMetric(float64(theirs)/float64(b.N), "loop-requests/op")
		})
	}
}

// measure returns how long a deletion takes, and how many requests.
func (s shop) measure(do func(shop)) (time.Duration, int64) {
	s.Helper()
	var sent atomic.Int64
	began := time.Now()
	do(s.through(func(*http.Request) error { sent.Add(1); return nil }))
	return time.Since(began), sent.Load()
}

// deleteBare deletes the objects of the plan of an uninstall.
func deleteBare(s shop) {
	s.Helper()
	c := s.connect()
	heads := headsOf(s)
	for _, stage := range uninstall.StagesOf(heads) {
		group, ctx := errgroup.WithContext(s.Context())
		group.SetLimit(16)
		var scopes []inventory.Scope // each scope is listed once
		for _, head := range stage.Objects {
			scopes = append(scopes, inventory.Scope{Kind: head.ID.GroupKind()})
			group.Go(func() error { return c.Delete(ctx, head.Resource, head.ID.Namespace, head.ID.Name, head.UID) })
		}
		if err := group.Wait(); err != nil {
			s.Fatal(err)
		}
		err := wait.PollUntilContextTimeout(s.Context(), 50*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				remaining, err := inventory.Take(ctx, c, scopes, func(release string, _ kinds.ID) bool {
					return release == s.name
				})
				return err == nil && len(remaining.Of(s.name)) == 0, err
			})
		if err != nil {
			s.Fatal(err)
		}
	}
}

// headsOf returns the objects of a release.
func headsOf(s shop) []objectmeta.LiveMetadata {
	s.Helper()
	c := s.connect()
	live, err := inventory.TakeRelease(s.Context(), c, s.name, s.record().GroupKinds())
	if err != nil {
		s.Fatal(err)
	}
	return live.Of(s.name)
}

// thousand returns the files of a release of a thousand objects of nine kinds, in some namespaces.
func thousand(namespaces int) string {
	var text strings.Builder
	text.WriteString(strings.Split(whole, "-- 0000_16")[0])
	for n := range namespaces {
		namespace := "NS"
		if n > 0 {
			namespace = fmt.Sprint("NS-", n)
			fmt.Fprintf(&text, "-- 0000_10_base_namespace-%d.yaml --\n{apiVersion: v1, kind: Namespace, metadata: "+
				"{name: %s}}\n", n, namespace)
		}
		for i := range 1000 / namespaces / 9 {
			fmt.Fprintf(&text, "-- 0000_20_part-%d_10_%d.yaml --\n%s", n, i,
				strings.NewReplacer("IN", namespace, "NAME", fmt.Sprint("part-", i)).Replace(parts))
		}
	}
	return text.String()
}

// parts are objects of nine kinds.
const parts = `{apiVersion: NS.example.com/v1, kind: Ship, metadata: {name: NAME, namespace: IN}, spec: {mast: 3}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, namespace: IN}, data: {colour: red}}
---
{apiVersion: v1, kind: Secret, metadata: {name: NAME, namespace: IN}, stringData: {colour: red}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: NAME, namespace: IN}}
---
{apiVersion: v1, kind: Service, metadata: {name: NAME, namespace: IN}, spec: {selector: {app: NAME}, ports: [{port: 80}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: NAME, namespace: IN}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: NAME, namespace: IN}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}, subjects: [{kind: ServiceAccount, name: NAME, namespace: IN}]}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: NAME, namespace: IN}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: NAME}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: NAME, namespace: IN}, spec: {replicas: 0, selector: {matchLabels: {app: NAME}}, template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: main, image: registry.example/NAME}]}}}}
`
