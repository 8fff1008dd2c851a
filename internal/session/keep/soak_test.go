package keep_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// A soak causes as many events as the server can handle: one of ten is a drift, which is repaired, and the others are
// writes of a status. More drifts of an object would be a contention.
type soak struct {
	*estate
	c        *cluster.Cluster
	made     atomic.Int64
	repaired atomic.Int64
}

func newSoak(t testing.TB, size int) *soak {
	s := &soak{estate: newEstate(t, size), c: connectAs(t, "others")}
	s.keep(t, func(event keep.Event) {
		if event.Type == keep.Repaired {
			s.repaired.Add(1)
		}
	})
	return s
}

// make causes some events, waits until all objects are repaired, and returns the size of the heap.
func (s *soak) make(t testing.TB, events int) (heap uint64) {
	t.Helper()
	const atOnce = 16
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(atOnce)
	for range events {
		group.Go(func() error {
			n := int(s.made.Add(1))
			if n%10 > 0 {
				return s.writeStatus(ctx, s.c, n%(s.size/2), n)
			}
			_, err := s.drift(ctx, s.c, n/10%(s.size/2), fmt.Sprint("colour-", n))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s.await(t)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

// await waits until all objects are repaired.
func (s *soak) await(t testing.TB) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true,
		func(ctx context.Context) (bool, error) {
			all, err := s.c.Client.CoreV1().ConfigMaps(s.namespace).List(ctx,
				metav1.ListOptions{LabelSelector: "runlevel.dev/release=" + s.name})
			if err != nil {
				return false, err
			}
			for _, configMap := range all.Items {
				if configMap.Data["colour"] != "blue" {
					return false, nil
				}
			}
			return len(all.Items) == s.size/2, nil
		})
	if err != nil {
		t.Fatal("not all is repaired:", err)
	}
}

// Memory stays as it is, however much happens.
func TestMemoryStaysFlat(t *testing.T) {
	s := newSoak(t, 400)
	const events = 3000
	before := s.make(t, events)
	after := s.make(t, events)
	const most = 100 // bytes an event, far less than is kept of one object
	if after > before+most*events {
		t.Errorf("the heap has grown from %d kB to %d kB with %d events", before>>10, after>>10, events)
	}
	if s.repaired.Load() == 0 {
		t.Error("no object was repaired")
	}
}

// BenchmarkSoak causes 100,000 events, and reports the growth of the heap.
func BenchmarkSoak(b *testing.B) {
	s := newSoak(b, 2000)
	const events, steps = 100_000, 10
	s.make(b, events/steps) // creates all objects that stay
	for b.Loop() {
		var heaps []float64
		for range steps {
			heaps = append(heaps, float64(s.make(b, events/steps)))
		}
		b.ReportMetric(slope(heaps)/(events/steps), "heap-B/event")
		b.ReportMetric(heaps[len(heaps)-1]/(1<<20), "heap-MB")
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/events, "µs/event")
}

// slope returns the growth from one value to the next, by least squares.
func slope(values []float64) float64 {
	n := float64(len(values))
	var sumX, sumY, sumXY, sumXX float64
	for i, y := range values {
		x := float64(i)
		sumX, sumY, sumXY, sumXX = sumX+x, sumY+y, sumXY+x*y, sumXX+x*x
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}
