package object

import (
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A scaling is what autoscalers scale, those of the cluster and those that the payload
// brings. Nobody is asked for it before it matters for an object.
type scaling struct {
	manifests []*payload.Manifest

	asking sync.Mutex // so that the server is asked once

	mu        sync.Mutex
	scaled    ownership.Scaled   // nil until it was asked for
	asked     time.Time          // when
	forbidden error              // why not all of it is known
	counts    map[kinds.ID]int64 // of objects that were deleted to be made anew
}

// has says whether an object is known to be scaled.
func (s *scaling) has(id kinds.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scaled.Has(id)
}

// FindScaled finds out which objects are scaled, if it matters for any that was seen before
// the run. If that fails, it is tried again when it is their turn.
func (a *Applier) FindScaled() {
	for _, m := range a.scaling.manifests {
		head, _ := a.before.Find(m.ID())
		if m.IsTombstone() {
			continue
		}
		if _, err := a.isScaled(m, head.Metadata()); err != nil {
			return
		}
	}
}

// isScaled says whether an autoscaler scales an object, as far as that matters for it.
func (a *Applier) isScaled(m *payload.Manifest, live metav1.Object) (bool, error) {
	if !ownership.Concerns(m.Object(), live) {
		return false, nil
	}
	isScaled, forbidden, err := a.scaling.ask(a, m.ID())
	if forbidden != nil && !isScaled {
		a.handler.Warned(m, []string{"this user may not list HorizontalPodAutoscalers, so the replicas of the manifest count: allow it to list horizontalpodautoscalers.autoscaling"})
	}
	return isScaled, err
}

// ask says whether an object is scaled, and why not all of that is known.
func (s *scaling) ask(a *Applier, id kinds.ID) (isScaled bool, forbidden, err error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.isUnknown(a.isRepairing) {
		scaled, err := ownership.FindScaled(a.requests, a.cluster, s.namespaces())
		if err != nil && !apierrors.IsForbidden(err) {
			return false, nil, err
		}
		s.foresee(scaled, a.options.Mode)
		s.mu.Lock()
		s.scaled, s.forbidden, s.asked = scaled, err, time.Now()
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scaled.Has(id), s.forbidden, nil
}

// isUnknown says whether the server is to be asked: by a Repairer, which lives long, again and again.
func (s *scaling) isUnknown(isMending bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scaled == nil || isMending && time.Since(s.asked) > scalersCount
}

// scalersCount is for how long a Repairer knows which autoscalers there are.
const scalersCount = time.Second

// namespaces are those of the payload.
func (s *scaling) namespaces() []string {
	var all []string
	for _, m := range s.manifests {
		if namespace := m.ID().Namespace; namespace != "" && !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return all
}

// foresee takes in what the payload does to autoscalers.
func (s *scaling) foresee(scaled ownership.Scaled, mode graph.Mode) {
	for _, m := range s.manifests {
		switch {
		case m.GroupVersionKind().GroupKind() != ownership.AutoscalerKind:
		case !m.IsTombstone():
			scaled.Add(m.Object())
		case mode == graph.Update: // no other mode deletes
			scaled.Remove(m.Object())
		}
	}
}

// scale makes a draft say how many there are to be of an object that is scaled. A new one
// begins with what the manifest says.
func (a *Applier) scale(o *target, draft *unstructured.Unstructured) error {
	a.scaling.mu.Lock()
	count, wasDeleted := a.scaling.counts[o.ID()]
	a.scaling.mu.Unlock()
	if wasDeleted {
		ownership.SetReplicas(draft, count)
	}
	if !o.isThere || wasDeleted {
		return nil
	}
	if !ownership.AreReplicasOurs(o.head.Metadata()) {
		ownership.LeaveReplicas(draft, nil)
		return nil
	}
	live, err := a.cluster.In(o.resource, draft.GetNamespace()).Get(a.requests, draft.GetName(), metav1.GetOptions{})
	switch {
	case err == nil:
		ownership.LeaveReplicas(draft, live)
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}

// keepScale notes how many there are of an object that is deleted to be made anew.
func (a *Applier) keepScale(o *target) error {
	if !a.scaling.has(o.ID()) {
		return nil
	}
	live, err := a.cluster.In(o.resource, o.ID().Namespace).Get(a.requests, o.ID().Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if count, found := ownership.Replicas(live); found {
		a.scaling.keep(o.ID(), count)
	}
	return nil
}

func (s *scaling) keep(id kinds.ID, count int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[kinds.ID]int64{}
	}
	s.counts[id] = count
}
