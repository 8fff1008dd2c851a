package plan_test

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkCompare shows how the cost grows: time per manifest must stay the same. A
// tenth of the manifests is changed, and a hundredth each is new, deleted, dropped, and
// dropped with its Namespace.
func BenchmarkCompare(b *testing.B) {
	for _, count := range []int{200, 2_000, 20_000} {
		old, next := manyManifests(b, count, false), manyManifests(b, count, true)
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				p := plan.Compare(old, next, nil)
				if p.Counts[plan.Changed] != count/10 || p.Counts[plan.Dropped] != count/100 ||
					p.Counts[plan.DeletedWith] != count/100 {
					b.Fatal(p.Counts)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/manifest")
		})
	}
}

// manyManifests are levels of ten components of ten Deployments each.
func manyManifests(b *testing.B, count int, isNew bool) *payload.Payload {
	b.Helper()
	files := fstest.MapFS{}
	for i := range count {
		name := fmt.Sprintf("0000_%04d_component-%d_%d.yaml", i/100, i/10%10, i)
		namespace, annotation, image := "web", "annotated: maybe", "1"
		switch {
		case i%10 == 5 && isNew:
			image = "2"
		case i%100 == 1 && isNew, i%100 == 3 && isNew:
			continue // one manifest is dropped, and one object is deleted with its Namespace
		case i%100 == 2 && !isNew:
			continue
		case i%100 == 4 && isNew:
			annotation = `release.openshift.io/delete: "true"`
		}
		if i%100 == 3 {
			namespace = "goes"
		}
		files[name] = &fstest.MapFile{Data: fmt.Appendf(nil, manyText, i, namespace, annotation, image)}
	}
	goes := "{apiVersion: v1, kind: Namespace, metadata: {name: goes}}"
	if isNew {
		goes = `{apiVersion: v1, kind: Namespace, metadata: {name: goes, annotations: {release.openshift.io/delete: "true"}}}`
	}
	files["0000_0000_component-0_namespace.yaml"] = &fstest.MapFile{Data: []byte(goes)}
	release, _, err := payload.Load(b.Context(), files, payload.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return release
}

const manyText = `apiVersion: apps/v1
kind: Deployment
metadata: {name: d%d, namespace: %s, annotations: {%s}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: registry.example/web:%s, args: [a, b, c], env: [{name: A, value: b}, {name: B, value: c}]}
`
