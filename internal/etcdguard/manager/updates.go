package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/etcdguard"
	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// errChanged is the error of a permission whose reason no longer holds.
var errChanged = errors.New("the machines or the members have changed meanwhile")

// permitUpdate permits the update of a step, if a second snapshot permits it as well: the update of another machine may
// have ended between the reads of the first one, after that machine's member was seen and before the member stopped
// answering. The Machine must not have changed since before the second snapshot.
func (g *guard) permitUpdate(ctx context.Context, step etcdguard.Step) error {
	m, err := g.clusterAPIMachine(ctx, step.Machine)
	if err != nil {
		return err
	}
	seen, _, err := g.snapshot(ctx)
	if err != nil {
		return err
	}
	if next := etcdguard.Next(seen); next.Action != step.Action || next.Machine != step.Machine {
		return errChanged
	}
	base := m.DeepCopy()
	rolloutrules.Permit(m)
	return g.writeMachine(ctx, m, base)
}

// holdUpdates writes why requested updates are not permitted yet. A Machine that has changed meanwhile has the next
// pass.
func (g *guard) holdUpdates(ctx context.Context, seen etcdguard.Snapshot) error {
	for _, machine := range seen.Machines {
		why := etcdguard.Permit(seen, machine)
		if !machine.AsksForUpdate || why == "" {
			continue
		}
		m, err := g.clusterAPIMachine(ctx, machine.Name)
		if err == nil && m.Annotations[annotation.UpdateHeld] != why {
			base := m.DeepCopy()
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotation.UpdateHeld, why)
			err = g.writeMachine(ctx, m, base)
		}
		if err != nil && !errors.Is(err, errChanged) {
			return err
		}
	}
	return nil
}

// clusterAPIMachine reads the Machine with a name of a snapshot: only those of Cluster API are updated in place.
func (g *guard) clusterAPIMachine(ctx context.Context, name string) (*clusterv1.Machine, error) {
	m := &clusterv1.Machine{}
	namespace, name, _ := strings.Cut(name, "/")
	err := g.server.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil, errChanged
	}
	return m, err
}

// writeMachine writes a Machine that has not changed since base.
func (g *guard) writeMachine(ctx context.Context, m, base *clusterv1.Machine) error {
	err := patch.WithLock(ctx, g.client, m, base)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return errChanged
	case err != nil:
		return fmt.Errorf("answer the request for an update in place of Machine %s: %w", m.Name, err)
	}
	return nil
}
