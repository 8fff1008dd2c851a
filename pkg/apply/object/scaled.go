package object

import (
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A scaling contains the objects that autoscalers scale, those of the cluster and those of the payload. It requests the
// autoscalers when an object first depends on them.
type scaling struct {
	*applierScope
	validFor time.Duration // lifetime of the cached autoscalers; 0 is unlimited

	mu        sync.Mutex             // held during the request, so that it is sent once
	scaled    ownership.ScaleTargets // nil before the request
	askedAt   time.Time              // the time of the request for scaled
	forbidden error                  // the error if some autoscalers may not be listed
	counts    map[kinds.ID]int64     // replicas of objects that are being recreated
}

// has reports whether an object is known to be scaled.
func (s *scaling) has(id kinds.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scaled.Has(id)
}

// find finds out which objects are scaled, if an object from before the run depends on that. A failure occurs again
// when the object is applied.
func (s *scaling) find() {
	for _, m := range s.options.Manifests {
		head, _ := s.before.Find(m.ID())
		if m.IsTombstone() {
			continue
		}
		if _, err := s.isScaled(m, head.Object()); err != nil {
			return
		}
	}
}

// isScaled reports whether an autoscaler scales an object; false if the object has no replicas.
func (s *scaling) isScaled(m *payload.Manifest, live metav1.Object) (bool, error) {
	if !ownership.HasReplicas(m.Object(), live) {
		return false, nil
	}
	s.mu.Lock()
	err := s.ask()
	if s.validFor > 0 && !s.scaled.Has(m.ID()) && ownership.WasScaled(live) { // perhaps by a new autoscaler
		s.scaled = nil
		err = s.ask()
	}
	isScaled, forbidden := s.scaled.Has(m.ID()), s.forbidden
	s.mu.Unlock()
	if err != nil {
		return false, err
	}
	if forbidden != nil && !isScaled {
		s.handler.OnWarnings(m, []string{"this user may not list HorizontalPodAutoscalers, so the replicas of the " +
			"manifest count: allow it to list horizontalpodautoscalers.autoscaling"})
	}
	return isScaled, nil
}

// ask requests the autoscalers, unless they are known. The caller holds the lock.
func (s *scaling) ask() error {
	if s.scaled != nil && (s.validFor == 0 || time.Since(s.askedAt) <= s.validFor) {
		return nil
	}
	var namespaces []string
	for _, m := range s.options.Manifests {
		if namespace := m.ID().Namespace; namespace != "" && !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	scaled, err := ownership.FindScaleTargets(s.requestCtx, s.cluster, namespaces)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, m := range s.options.Manifests { // the payload may add or delete autoscalers
		switch {
		case m.IsTombstone() && s.options.Mode == graph.Update && !s.options.LeavesDeletes: // no other mode deletes
			delete(scaled, m.ID())
		case !m.IsTombstone():
			scaled.Add(m.Object())
		}
	}
	s.scaled, s.forbidden, s.askedAt = scaled, err, time.Now()
	return nil
}

// scale sets the replicas of a draft to those of the scaled live object. A new object begins with the replicas of the
// manifest.
func (s *scaling) scale(o *liveObject, draft *unstructured.Unstructured) error {
	s.mu.Lock()
	count, wasDeleted := s.counts[o.ID()]
	s.mu.Unlock()
	if wasDeleted {
		ownership.SetReplicas(draft, count)
	}
	if !o.exists || wasDeleted {
		return nil
	}
	live := o.live // the object that a preview has read
	if live == nil && ownership.AreReplicasOurs(o.head.Object()) {
		var err error
		if live, err = s.read(o.resource, o.ID()); err != nil {
			return err
		}
	}
	ownership.OmitReplicas(draft, ownership.Adopted(live, s.options.AdoptFrom))
	return nil
}

// keep notes the replicas of an object before it is recreated.
func (s *scaling) keep(o *liveObject) error {
	if !s.has(o.ID()) {
		return nil
	}
	live, err := s.read(o.resource, o.ID())
	if live == nil {
		return err
	}
	if count, found := ownership.Replicas(live); found {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.counts == nil {
			s.counts = map[kinds.ID]int64{}
		}
		s.counts[o.ID()] = count
	}
	return nil
}
