package live_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/record/lock"
)

// benchObjects is the size of the release of the benchmark.
const benchObjects = 2000

// BenchmarkRelease prints how long a read of a large release takes, how long a change takes until a page has it, and
// how much of a core is used at rest, with a holder of the lock that renews it.
func BenchmarkRelease(b *testing.B) {
	s := newSite(b)
	var text strings.Builder
	for i := range benchObjects {
		object := "kind: ConfigMap, apiVersion: v1, data: {k: v}"
		if i%5 == 0 { // the readiness of these has to be read
			object = "kind: Deployment, apiVersion: apps/v1, spec: {replicas: 0, selector: {matchLabels: {app: web}}, " +
				"template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}"
		}
		fmt.Fprintf(&text, "-- 0000_%d_part%d_%d.yaml --\n{metadata: {name: c%d, namespace: NS}, %s}\n", 10+i/100,
			i/50%2, i%50, i, object)
	}
	s.must("1.0.0", text.String())
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			s.release()
		}
	})
	page := s.open()
	page.quiet(2 * time.Second)
	b.Run("change", func(b *testing.B) {
		var notified, read time.Duration
		for b.Loop() {
			b.StopTimer()
			page.quiet(2 * time.Second)
			b.StartTimer()
			_, err := test.Client(b).CoreV1().ConfigMaps(s.name).Patch(b.Context(), "c7", types.MergePatchType,
				fmt.Appendf(nil, `{"data":{"k":"%d"}}`, time.Now().UnixNano()), metav1.PatchOptions{})
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			<-page.changes
			notified += time.Since(began)
			page.release()
			read += time.Since(began)
		}
		b.ReportMetric(float64(notified.Milliseconds())/float64(b.N), "ms-notified/op")
		b.ReportMetric(float64(read.Milliseconds())/float64(b.N), "ms-read/op")
	})
	b.Run("rest", func(b *testing.B) {
		held, err := lock.New(test.Connect(b), s.name, s.name).Acquire(b.Context(), lock.Options{Keeps: true})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = held.Release(nil) }()
		page.quiet(2 * time.Second)
		requests := s.requests.Load()
		began, used := time.Now(), cpu()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
			<-ctx.Done()
			cancel()
		}
		b.ReportMetric(100*float64(cpu()-used)/float64(time.Since(began)), "%-of-a-core")
		b.ReportMetric(float64(s.requests.Load()-requests), "requests")
	})
}

func cpu() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
