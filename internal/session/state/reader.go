// Package state reads how the releases on a cluster stand, and judges whether all is well: their records and locks,
// pending deletes, objects that are not ready, the ClusterVersion and the ClusterOperators.
//
// It changes nothing, and prints nothing. What can't be read is listed as unknown in the result. Package why explains
// single objects.
//
// Reader.Status returns the state of one release, and Reader.Inspect writes files for a maintainer who helps. Start
// with Reader.
package state

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Reader reads the state of the releases on a cluster.
type Reader struct {
	Cluster   *cluster.Cluster
	Namespace string // namespace of the records
	// Applied reads the manifests that were applied last, by the record of their release, to name objects that are
	// missing. It returns none if it can't read them.
	Applied func(ctx context.Context, namespace string, known *record.Record) []*payload.Manifest
}

// gather reads the facts about the release of a record, and the names of its missing objects.
func (r *Reader) gather(ctx context.Context, known *record.Record) *why.ReleaseFacts {
	facts := why.GatherRelease(ctx, r.Cluster, known, r.Namespace)
	if facts.Missing > 0 && r.Applied != nil {
		facts.NameMissing(r.Applied(ctx, r.Namespace, known))
	}
	return facts
}

// Records returns the records of a release, or of all releases if none is named. With an error, it also returns
// the records that can be read.
func (r *Reader) Records(ctx context.Context, release string) ([]*record.Record, error) {
	if release == "" {
		return record.List(ctx, r.Cluster.Client, r.Namespace)
	}
	item, isFound, err := record.NewStore(r.Cluster.Client, r.Namespace, release).Load(ctx)
	if err != nil || !isFound {
		return nil, err
	}
	return []*record.Record{item}, nil
}

// NoRecord returns the error for a release that has no record.
func (r *Reader) NoRecord(release string) error {
	return fmt.Errorf("namespace %s has no record of a release %q", r.Namespace, release)
}

// NotAppliedMessage returns the message that a release has no record, or that there are no records.
func (r *Reader) NotAppliedMessage(release string) string {
	return fmt.Sprintf("no release%s has a record in namespace %s: if it is in another namespace, "+
		"use --record-namespace", named(release), r.Namespace)
}

// WasUninstalled reports whether an event shows that a release was uninstalled. Events are deleted after an hour.
func (r *Reader) WasUninstalled(ctx context.Context, release string) (bool, error) {
	selector := fields.Set{
		"involvedObject.kind": "ConfigMap",
		"involvedObject.name": lock.Name(release),
		"reason":              notify.ReasonUninstalled,
	}
	found, err := r.Cluster.Client.CoreV1().Events(r.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: selector.String(), Limit: 1})
	if err != nil {
		return false, fmt.Errorf("find out whether release %s was uninstalled: %w", release, printable.Error(err))
	}
	return len(found.Items) > 0, nil
}

// KnownRecords returns the records of a release, or of all releases if none is named, and why others can't be read.
func (r *Reader) KnownRecords(ctx context.Context, release string) ([]*record.Record, string) {
	records, err := r.Records(ctx, release)
	switch {
	case err == nil:
		return records, ""
	case apierrors.IsForbidden(err):
		return records, fmt.Sprintf("the release records: this user may not read configmaps in namespace %s",
			r.Namespace)
	default:
		return records, "the release records: " + printable.Line(err.Error())
	}
}

// Lock returns the lock of a release.
func (r *Reader) Lock(release string) lock.Lock {
	return lock.New(r.Cluster, r.Namespace, release)
}

// named returns a name after a space; "" if there is none.
func named(release string) string {
	if release == "" {
		return ""
	}
	return " " + release
}
