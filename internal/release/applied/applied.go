// Package applied reads versions of releases that were applied to a cluster, from the copies of their files that the
// cluster keeps.
//
// It reads the records and the copies of one namespace. It neither writes copies nor decides which ones are kept.
//
// Start with Read.
package applied

import (
	"context"
	"fmt"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Versions are the versions of releases whose records are in a namespace.
type Versions struct {
	Cluster   *cluster.Cluster
	Namespace string
}

// Read reads a version of a release: its revision, or "" for the last one. It returns the readable part.
func (v Versions) Read(ctx context.Context, name, revision string, options loader.Options) (*payload.Payload, error) {
	options.Source.Versions = v
	read, _, err := loader.Parse(ctx, name+"@"+revision, options)
	return read, err
}

// OpenApplied opens a version from its copy. A version without files has its image.
func (v Versions) OpenApplied(ctx context.Context, name, version string) (*source.Release, error) {
	kept, err := v.findCopy(ctx, name, version)
	if err != nil {
		return nil, err
	}
	unpacked, err := v.copies(name).Read(ctx, kept)
	if err != nil {
		return nil, err
	}
	return &source.Release{FS: unpacked.Files, Kind: source.Applied, Image: unpacked.Image, Values: unpacked.Values},
		nil
}

func (v Versions) copies(name string) files.Store {
	return files.Store{Cluster: v.Cluster, Namespace: v.Namespace, Release: name}
}

// findCopy returns the digest of the copy of a version. If the record was lost, the annotations of the copies have
// their versions.
func (v Versions) findCopy(ctx context.Context, name, version string) (string, error) {
	known, found, err := record.NewStore(v.Cluster.Client, v.Namespace, name).Load(ctx)
	if err != nil {
		return "", err
	}
	entry, missing := known.FindRevision(version)
	switch {
	case missing != nil:
	case entry.Files == nil:
		return "", fmt.Errorf("no files stored for revision %d: it was applied by an older version of runlevel",
			entry.Revision)
	case entry.Files.Digest == "":
		return "", fmt.Errorf("the files of revision %d are not kept: %s", entry.Revision, entry.Files.NotKept)
	default:
		return entry.Files.Digest, nil
	}
	stored, err := v.copies(name).List(ctx)
	if err != nil {
		return "", missing
	}
	for _, copied := range stored {
		if version == "" || version == fmt.Sprint(copied.Revision) || version == copied.Version {
			return copied.Digest, nil
		}
	}
	if !found && len(known.History) == 0 {
		return "",
			fmt.Errorf("namespace %s has no record of a release %q: \"runlevel list\" lists all releases",
				v.Namespace, name)
	}
	return "", missing
}
