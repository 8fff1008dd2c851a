// Package state reads how the releases on a cluster stand, and judges whether all is well: their records and locks, pending
// deletes, objects that are not ready, the ClusterVersion and the ClusterOperators.
//
// It changes nothing, and prints nothing. What can't be read is listed as unknown in the result. Package why explains
// single objects.
//
// Reader is the type to start from: Status is the state of one release, Inspect writes what a maintainer needs to help.
package state

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Reader reads the state of the releases on a cluster.
type Reader struct {
	Cluster   *cluster.Cluster
	Namespace string // of their records
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
	return fmt.Sprintf("no release%s has a record in namespace %s: use --record-namespace if it is in another one", named(release), r.Namespace)
}

// KnownRecords returns the records of a release, or of all releases if none is named, and why others can't be read.
func (r *Reader) KnownRecords(ctx context.Context, release string) ([]*record.Record, string) {
	records, err := r.Records(ctx, release)
	switch {
	case err == nil:
		return records, ""
	case apierrors.IsForbidden(err):
		return records, fmt.Sprintf("the records of applies: this user may not read configmaps in namespace %s", r.Namespace)
	default:
		return records, "the records of applies: " + printable.Line(err.Error())
	}
}

// Lock returns the lock of a release.
func (r *Reader) Lock(release string) lock.Lock {
	return lock.Lock{Client: r.Cluster.Client, Namespace: r.Namespace, Release: release, Now: r.Cluster.Now}
}

// named returns a name after a space; "" if there is none.
func named(release string) string {
	if release == "" {
		return ""
	}
	return " " + release
}
