package record

import (
	"context"
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
)

// copyAnnotation is the annotation of a release's Lease with a copy of the record, without fields that are only for
// people: so the loss of the ConfigMap turns no update into an install, and no pending delete is forgotten.
const copyAnnotation = "runlevel.dev/record"

// maxCopy leaves room for other annotations, of 256 KiB for all.
const maxCopy = 200 << 10

// copyReductions remove fields from an oversized copy, the least important first.
var copyReductions = []func(*Record){
	func(r *Record) { r.Jobs, r.Hooks = nil, nil }, // the Deployments have a copy of the latter
	func(r *Record) { r.History, r.Kinds = shortened(r.History, 0), nil },
	func(r *Record) { r.Tombstones = r.Tombstones[:min(300, len(r.Tombstones))] },
	func(r *Record) { r.History = nil },
}

// encodeCopy returns the parts of a record that an update needs.
func encodeCopy(r *Record) (string, error) {
	copied := Record{
		Release:      r.Release,
		Own:          r.Own,
		LastRevision: r.LastRevision,
		Tombstones:   r.Tombstones,
		Kinds:        r.Kinds,
		Jobs:         r.Jobs,
		Hooks:        r.Hooks,
		Uninstall:    r.Uninstall,
	}
	newest, applied := r.Newest(), r.Applied()
	if newest != nil {
		copied.History = append(copied.History, *newest)
	}
	if applied != nil && applied != newest {
		copied.History = append(copied.History, *applied)
	}
	_, text, err := fit(copied, maxCopy, copyReductions, func(r Record) (string, error) {
		text, err := json.Marshal(document{Format: format, Record: r})
		return string(text), err
	})
	return text, err
}

// writeCopy writes the copy of a record, unless the Lease has it already. Without a Lease, no process applies the
// release, and no copy is written.
func (s *Store) writeCopy(ctx context.Context, r *Record) error {
	text, err := encodeCopy(r)
	if err != nil || text == s.copied {
		return err
	}
	leaseClient := s.client.CoordinationV1().Leases(s.namespace)
	verb := "get"
	err = cluster.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leaseClient.Get(ctx, lock.Name(s.release), metav1.GetOptions{})
		if err != nil {
			return err
		}
		verb = "update"
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, copyAnnotation, text)
		_, err = leaseClient.Update(ctx, lease, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	switch {
	case err == nil:
		s.copied = text
	case !apierrors.IsNotFound(err):
		return s.failure(verb, leases, err)
	}
	return nil
}

// restore returns the copy of a record whose ConfigMap does not exist; nil if there is none, or if the user may not
// read Leases.
func (s *Store) restore(ctx context.Context) (*Record, error) {
	lease, err := s.client.CoordinationV1().Leases(s.namespace).Get(ctx, lock.Name(s.release), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, s.failure("get", leases, err)
	}
	return decodeCopy(lease, s.release)
}

// decodeCopy returns the copy in a Lease; nil if there is none.
func decodeCopy(lease *coordinationv1.Lease, release string) (*Record, error) {
	text, found := lease.Annotations[copyAnnotation]
	if !found {
		return nil, nil
	}
	return decodeText(text, release,
		recordLocation{"Lease", lease.Namespace, lease.Name, "annotation " + copyAnnotation})
}

// copies returns the copies of records whose ConfigMaps do not exist.
func copies(ctx context.Context, client kubernetes.Interface, namespace string,
	exists func(release string) bool) ([]*Record, []error) {
	found, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: lock.Label})
	if err != nil {
		return nil, nil // the ConfigMaps suffice, except for lost records
	}
	var records []*Record
	var broken []error
	for i := range found.Items {
		release := lock.ReleaseOf(found.Items[i].Name)
		if exists(release) {
			continue
		}
		r, err := decodeCopy(&found.Items[i], release)
		switch {
		case err != nil:
			broken = append(broken, err)
		case r != nil:
			records = append(records, r)
		}
	}
	return records, broken
}
