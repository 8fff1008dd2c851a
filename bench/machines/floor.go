package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// A floor makes and deletes machines in a bare loop: it leaves the same objects behind as the controllers do, and
// sends each write once. It watches nothing, waits for nothing, and knows beforehand what there will be.
type floor struct {
	*stand
	peer client.Client

	mu     sync.Mutex
	delays []float64
}

// measureFloor measures the loop. The controller is stopped.
func measureFloor(ctx context.Context, s *stand, o options, all *results) error {
	peer, err := client.New(s.peer, client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		return err
	}
	f := &floor{stand: s, peer: peer}
	fleet := newFleet(s, openshift{}, "KwokMachine", o.kwok)
	names, title := fleet.names(), fleet.String()
	alone, crowd := names[:o.hooked/2], names[o.hooked/2:]
	for _, phase := range []struct {
		name   string
		names  []string
		atOnce int
		do     func(context.Context, string) error
	}{{making, names, o.atOnce, f.make}, {lettingGo, alone, 1, f.delete}, {deleting, crowd, o.atOnce, f.delete}} {
		f.delays = nil
		measured := span{Of: "floor", Fleet: title, Phase: phase.name, Machines: len(phase.names)}
		measured, err := s.ofPeer(measured, func() error {
			return each(ctx, phase.atOnce, len(phase.names), func(ctx context.Context, i int) error { return phase.do(ctx, phase.names[i]) })
		})
		if err != nil {
			return err
		}
		all.add(measured)
		if len(f.delays) > 0 {
			all.wait(delay{Of: "floor", Fleet: title, When: phase.name, Seconds: f.delays})
		}
	}
	return nil
}

func (f *floor) make(ctx context.Context, name string) error {
	m := openshift{}.newMachine("KwokMachine", name, false)[0]
	if err := f.client.Create(ctx, m); err != nil { // as another tool does
		return err
	}
	id := "kwok://" + namespace + "/" + name
	if err := f.peer.Patch(ctx, m, merge(fmt.Sprintf(`{"metadata":{"finalizers":[%q]},"spec":{"providerID":%q}}`, machinev1beta1.MachineFinalizer, id))); err != nil {
		return err
	}
	infrastructure := &v1alpha1.KwokMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{kwok.Finalizer}},
		Spec:       v1alpha1.KwokMachineSpec{ProviderID: id},
	}
	if err := f.peer.Create(ctx, infrastructure); err != nil {
		return err
	}
	if err := f.peer.Status().Patch(ctx, infrastructure, merge(`{"status":{"initialization":{"provisioned":true},"addresses":[{"type":"HostName","address":"`+name+`"}]}}`)); err != nil {
		return err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"machine.openshift.io/machine": namespace + "/" + name}},
		Spec:       corev1.NodeSpec{ProviderID: id},
	}
	if err := f.peer.Create(ctx, node); err != nil {
		return err
	}
	status := fmt.Sprintf(`{"status":{"phase":"Running","nodeRef":{"kind":"Node","name":%q,"uid":%q}}}`, name, node.UID)
	return f.peer.Status().Patch(ctx, m, merge(status))
}

func (f *floor) delete(ctx context.Context, name string) error {
	machine := openshift{}.machine(name)
	if err := f.client.Delete(ctx, machine); err != nil { // as another tool does
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := f.peer.Patch(ctx, node, merge(`{"spec":{"unschedulable":true}}`)); err != nil {
		return err
	}
	if err := f.peer.List(ctx, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return err
	}
	if err := f.peer.Status().Patch(ctx, machine, merge(`{"status":{"phase":"Deleting","conditions":[]}}`)); err != nil {
		return err
	}
	began := time.Now() // as if a hook had been removed
	infrastructure := &v1alpha1.KwokMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := errors.Join(
		f.peer.Delete(ctx, infrastructure),
		f.peer.Patch(ctx, infrastructure, merge(`{"metadata":{"finalizers":null}}`)),
		f.peer.Delete(ctx, node),
		f.peer.Patch(ctx, machine, merge(`{"metadata":{"finalizers":null}}`)),
	)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays = append(f.delays, time.Since(began).Seconds())
	return err
}
