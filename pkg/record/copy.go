package record

import (
	"context"
	"encoding/json"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// copyAnnotation of a release's Lease has a copy of its record, without what only people want to know:
// so the loss of the ConfigMap makes no update an install, and lets no pending delete be forgotten.
const copyAnnotation = "runlevel.dev/record"

// maxCopy leaves room for other annotations, of 256 KiB for all.
const maxCopy = 200 << 10

// essence is what of a record an update needs to know.
func (r *Record) essence() *Record {
	e := &Record{Release: r.Release, Tombstones: r.Tombstones, Kinds: r.Kinds, Jobs: r.Jobs}
	newest, applied := r.Newest(), r.Applied()
	if newest != nil {
		e.History = append(e.History, *newest)
	}
	if applied != nil && applied != newest {
		e.History = append(e.History, *applied)
	}
	return e
}

// encodeCopy writes the copy of a record. One that is too large loses what costs an update least: first
// Jobs, then where to look for orphans, and last the deletes that were asked for.
func encodeCopy(r *Record) (string, error) {
	e := r.essence()
	for {
		text, err := json.Marshal(document{Format: format, Record: *e})
		if err != nil || len(text) <= maxCopy {
			return string(text), err
		}
		switch {
		case e.Jobs != nil:
			e.Jobs = nil
		case e.Kinds != nil:
			e = e.without(len(e.History))
			e.Kinds = nil
		case len(e.Tombstones) > 0:
			e.Tombstones = e.Tombstones[:len(e.Tombstones)/2]
		default:
			e.History = nil // of entries that are no size for one
		}
	}
}

// writeCopy writes the copy of a record, unless the Lease has it as it is. Where there is no Lease,
// nobody applies the release.
func (s *Store) writeCopy(ctx context.Context, r *Record) error {
	text, err := encodeCopy(r)
	if err != nil || text == s.copied {
		return err
	}
	of := s.client.CoordinationV1().Leases(s.namespace)
	verb := "get"
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := of.Get(ctx, s.name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		verb = "update"
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, copyAnnotation, text)
		_, err = of.Update(ctx, lease, metav1.UpdateOptions{FieldManager: fieldManager})
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

// restore reads the copy of a record whose ConfigMap is not there; nil if there is none. Users who may
// not read Leases do without.
func (s *Store) restore(ctx context.Context) (*Record, error) {
	lease, err := s.client.CoordinationV1().Leases(s.namespace).Get(ctx, s.name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, s.failure("get", leases, err)
	}
	return decodeCopy(lease, s.release)
}

// decodeCopy reads the copy in a Lease; nil if there is none.
func decodeCopy(lease *coordinationv1.Lease, release string) (*Record, error) {
	text, found := lease.Annotations[copyAnnotation]
	if !found {
		return nil, nil
	}
	return decodeText(text, release, place{"Lease", lease.Namespace, lease.Name, "annotation " + copyAnnotation})
}

// copies are the records of those releases whose ConfigMaps are not there.
func copies(ctx context.Context, client kubernetes.Interface, namespace string, isThere func(release string) bool) ([]*Record, []error) {
	found, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: Label})
	if err != nil {
		return nil, nil // the ConfigMaps say what there is, but for what was lost
	}
	var records []*Record
	var broken []error
	for i := range found.Items {
		release := strings.TrimPrefix(found.Items[i].Name, prefix)
		if isThere(release) {
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
