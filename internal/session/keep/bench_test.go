package keep_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// BenchmarkDrift changes objects, one after the other, and measures the time until they are repaired. It compares the
// Keeper with the simplest implementation: a watch, and a forced apply of each object that it shows. The metric
// "of-bare" is the ratio of both times.
func BenchmarkDrift(b *testing.B) {
	ours, theirs := newEstate(b, 1000), newEstate(b, 1000)
	ours.keep(b, func(keep.Event) {})
	theirs.keepBarely(b)
	we, they := ours.observe(b), theirs.observe(b)
	var our, their []time.Duration
	n := 0
	for b.Loop() {
		n++
		our = append(our, we.drift(b, n))
		b.StopTimer()
		their = append(their, they.drift(b, n))
		b.StartTimer()
	}
	b.ReportMetric(float64(median(our))/float64(median(their)), "of-bare")
	b.ReportMetric(float64(median(our).Microseconds()), "µs-median")
}

// BenchmarkDrifts changes a hundred objects a second, and measures the time of each repair.
func BenchmarkDrifts(b *testing.B) {
	const pace = 10 * time.Millisecond
	e := newEstate(b, 1000)
	e.keep(b, func(keep.Event) {})
	o := e.observe(b)
	var took []time.Duration
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for b.Loop() {
		const many = 1500 // objects in 15 s
		began, ends := map[string]time.Time{}, make(chan []end)
		go func() {
			var all []end
			for range many {
				all = append(all, o.next(b))
			}
			ends <- all
		}()
		for i := range many {
			<-ticker.C
			began[o.start(b, i)] = time.Now()
		}
		for _, end := range <-ends {
			took = append(took, end.at.Sub(began[end.drifted]))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms-median")
	b.ReportMetric(float64(took[len(took)*95/100].Milliseconds()), "ms-p95")
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "ms-max")
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// keepBarely creates the release's ConfigMaps, and keeps them in place with the simplest implementation.
func (e *estate) keepBarely(b *testing.B) {
	b.Helper()
	c := connectAs(b, e.name)
	resource := cluster.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Kind:                 "ConfigMap",
		Namespaced:           true,
	}
	wanted := map[string]*unstructured.Unstructured{}
	for _, manifest := range e.load(b).Manifests {
		if manifest.ID().Kind == "ConfigMap" {
			wanted[manifest.ID().Name] = manifest.Object()
			if _, err := c.Apply(b.Context(), resource, manifest.Object(), cluster.Force); err != nil {
				b.Fatal(err)
			}
		}
	}
	seen, err := c.Objects.Resource(resource.GroupVersionResource).Namespace(e.namespace).Watch(b.Context(),
		metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for event := range seen.ResultChan() {
			object, isOne := event.Object.(*unstructured.Unstructured)
			if !isOne || wanted[object.GetName()] == nil {
				continue
			}
			if colour, _, _ := unstructured.NestedString(object.Object, "data", "colour"); colour != "blue" {
				_, _ = c.Apply(b.Context(), resource, wanted[object.GetName()], cluster.Force)
			}
		}
	}()
}

// An observer watches for the repair of an object.
type observer struct {
	*estate
	c       *cluster.Cluster
	colours map[string]string // last seen colour of each object, keyed by name
	seen    watch.Interface
}

// An end is when the drift of a colour was undone.
type end struct {
	drifted string
	at      time.Time
}

func (e *estate) observe(b *testing.B) *observer {
	b.Helper()
	o := &observer{estate: e, c: connectAs(b, "others"), colours: map[string]string{}}
	var err error
	if o.seen, err = o.c.Client.CoreV1().ConfigMaps(e.namespace).Watch(b.Context(), metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	return o
}

// start causes the n-th drift.
func (o *observer) start(b *testing.B, n int) (colour string) {
	colour = fmt.Sprint("colour-", n)
	if _, err := o.estate.drift(b.Context(), o.c, n%(o.size/2), colour); err != nil {
		b.Fatal(err)
	}
	return colour
}

// next waits until a drift is undone.
func (o *observer) next(b *testing.B) end {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for {
		select {
		case event := <-o.seen.ResultChan():
			object, isOne := event.Object.(*corev1.ConfigMap)
			if !isOne {
				continue
			}
			before := o.colours[object.Name]
			o.colours[object.Name] = object.Data["colour"]
			if object.Data["colour"] == "blue" && cmp.Or(before, "blue") != "blue" {
				return end{before, time.Now()}
			}
		case <-ctx.Done():
			b.Error("no object is repaired")
			return end{}
		}
	}
}

// drift causes the n-th drift, and returns how long it lasts.
func (o *observer) drift(b *testing.B, n int) time.Duration {
	b.Helper()
	o.start(b, n)
	began := time.Now()
	return o.next(b).at.Sub(began)
}
