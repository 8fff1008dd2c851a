package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
)

// The phases of a measurement.
const (
	making    = "made"
	atRest    = "at rest"
	deleting  = "deleted at once"
	lettingGo = "deleted one by one"
)

// A fleet is machines of one kind of infrastructure. The first ones have a hook.
type fleet struct {
	*stand
	dialect dialect
	kind    string
	size    int

	mu    sync.Mutex
	seen  map[string]sighting
	freed map[string]time.Time // when the hook of a machine was about to be removed
}

// A sighting is what was last seen of a machine.
type sighting struct {
	isRunning, isHeld bool // by nothing but its hook
	gone              time.Time
}

func newFleet(s *stand, of dialect, kind string, size int) *fleet {
	return &fleet{stand: s, dialect: of, kind: kind, size: size, seen: map[string]sighting{}, freed: map[string]time.Time{}}
}

func (f *fleet) String() string {
	if f.dialect.name() == manager.ClusterAPI {
		return fmt.Sprintf("%d %ss of Cluster API", f.size, f.kind)
	}
	return fmt.Sprintf("%d %ss", f.size, f.kind)
}

// measure measures the life of the fleet.
func (f *fleet) measure(ctx context.Context, o options, all *results) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := f.watch(ctx); err != nil {
		return err
	}
	names := f.names()
	alone, crowd := names[:o.hooked/2], names[o.hooked/2:]
	for _, phase := range []struct {
		name     string
		machines []string
		do       func() error
	}{
		{making, names, func() error { return f.make(ctx, names, o.hooked) }},
		{atRest, names, func() error { return pause(ctx, o.rest) }},
		{lettingGo, alone, func() error { return f.deleteEach(ctx, alone) }},
		{deleting, crowd, func() error { return f.deleteAll(ctx, crowd, crowd[:o.hooked-len(alone)]) }},
		{"afterwards", names, func() error { return pause(ctx, o.rest) }},
	} {
		s, err := f.meter.during(ctx, span{Fleet: f.String(), Phase: phase.name, Machines: len(phase.machines)}, phase.do)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", f, phase.name, err)
		}
		all.add(s)
	}
	all.wait(delay{Of: "Runlevel", Fleet: f.String(), When: lettingGo, Seconds: f.delays(alone)})
	all.wait(delay{Of: "Runlevel", Fleet: f.String(), When: deleting, Seconds: f.delays(crowd)})
	return nil
}

func (f *fleet) names() []string {
	names := make([]string, f.size)
	for i := range names {
		names[i] = fmt.Sprintf("m-%d", i)
	}
	return names
}

// watch follows the machines. Of external ones it plays the script that ends them.
func (f *fleet) watch(ctx context.Context) error {
	c, err := cache.New(f.sandbox.Config, cache.Options{Scheme: f.client.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		return err
	}
	go func() { _ = c.Start(ctx) }()
	follow := func(object client.Object, see, seeGone func(any)) error {
		informer, err := c.GetInformer(ctx, object)
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: see, UpdateFunc: func(_, now any) { see(now) }, DeleteFunc: seeGone,
			})
		}
		return err
	}
	if err := follow(f.dialect.machine(""), f.see, f.seeGone); err != nil || f.kind != "ExternalMachine" {
		return err
	}
	return follow(&v1alpha1.ExternalMachine{}, func(object any) {
		if m := object.(*v1alpha1.ExternalMachine); m.DeletionTimestamp != nil && !m.Spec.Terminated {
			go func() { _ = f.client.Patch(ctx, m.DeepCopy(), merge(`{"spec":{"terminated":true}}`)) }()
		}
	}, nil)
}

func (f *fleet) see(object any) {
	machine := object.(client.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[machine.GetName()] = f.dialect.look(machine)
}

func (f *fleet) seeGone(object any) {
	if machine, ok := object.(client.Object); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen[machine.GetName()] = sighting{gone: time.Now()}
	}
}

// await waits until machines were seen as wanted.
func (f *fleet) await(ctx context.Context, names []string, isWanted func(sighting) bool) error {
	err := wait.PollUntilContextTimeout(ctx, look, patience, true, func(context.Context) (bool, error) {
		if err := f.hasEnded(); err != nil {
			return false, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, name := range names {
			if !isWanted(f.seen[name]) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%d machines: %w", len(names), err)
	}
	return nil
}

func isRunning(s sighting) bool { return s.isRunning }
func isHeld(s sighting) bool    { return s.isHeld }
func isGone(s sighting) bool    { return !s.gone.IsZero() }

// make makes machines, the first of which have a hook, and waits until all are running.
func (f *fleet) make(ctx context.Context, names []string, hooked int) error {
	err := each(ctx, f.atOnce, len(names), func(ctx context.Context, i int) error {
		if f.kind == "ExternalMachine" {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: names[i]}, Spec: corev1.NodeSpec{ProviderID: providerID(names[i])}}
			if err := f.client.Create(ctx, node); err != nil {
				return err
			}
		}
		return f.createAll(ctx, f.dialect.newMachine(f.kind, names[i], i < hooked))
	})
	if err != nil {
		return err
	}
	return f.await(ctx, names, isRunning)
}

func providerID(name string) string { return "rack://" + namespace + "/" + name }

// deleteEach deletes machines with hooks, one after the other.
func (f *fleet) deleteEach(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := f.deleteAll(ctx, []string{name}, []string{name}); err != nil {
			return err
		}
	}
	return nil
}

// deleteAll deletes machines at once, and removes the hooks of those that have one as soon as nothing else holds them.
func (f *fleet) deleteAll(ctx context.Context, names, hooked []string) error {
	group, ctxOfGroup := errgroup.WithContext(ctx)
	group.Go(func() error {
		return each(ctxOfGroup, f.atOnce, len(names), func(ctx context.Context, i int) error {
			return f.client.Delete(ctx, f.dialect.machine(names[i]))
		})
	})
	for _, name := range hooked {
		group.Go(func() error {
			if err := f.await(ctxOfGroup, []string{name}, isHeld); err != nil {
				return err
			}
			return f.free(ctxOfGroup, name)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return f.await(ctx, names, isGone)
}

// free removes the hook of a machine.
func (f *fleet) free(ctx context.Context, name string) error {
	f.mu.Lock()
	f.freed[name] = time.Now()
	f.mu.Unlock()
	return f.client.Patch(ctx, f.dialect.machine(name), merge(f.dialect.unhook()))
}

// delays returns how long machines stayed after their hooks were about to be removed, in seconds.
func (f *fleet) delays(names []string) []float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []float64
	for _, name := range names {
		if freed, ok := f.freed[name]; ok {
			all = append(all, f.seen[name].gone.Sub(freed).Seconds())
		}
	}
	return all
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// each does something for the numbers below n, some of them at once.
func each(ctx context.Context, atOnce, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}
