// Package copy copies images, with everything that their manifests name, from one store to another.
//
// It reads and writes stores by package oci, which resumes after dropped connections and knows what registries, layouts
// and archives are. It doesn't decide what is copied: callers name one image at a time.
//
// Start with Copy.
package copy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/oci"
)

// Options are the options of Copy. The zero value works.
type Options struct {
	Tag       string                  // tag of the copy; may be ""
	Jobs      int                     // blobs at a time: 4 by default
	Referrers bool                    // also copy signatures and other manifests about the image
	Progress  func(done, total int64) // gets the bytes of blobs that the target has so far; may be nil
}

const defaultJobs = 4

// A Result counts what was copied, and what the target had before.
type Result struct {
	Copied, Skipped Amount
}

// An Amount is a number of blobs and manifests, with their bytes.
type Amount struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Copy copies an image, or an index with everything below it. What the target has is skipped. A manifest is written
// after all that it names, so an interrupted copy leaves no image without its parts. The caller commits the target.
func Copy(ctx context.Context, from oci.Store, described v1.Descriptor, target oci.Target, options Options) (
	Result, error) {
	plan, err := Find(ctx, from, described, options)
	if err != nil {
		return Result{}, err
	}
	return plan.Copy(ctx, target)
}

// Copy copies what the target does not have.
func (p *Plan) Copy(ctx context.Context, target oci.Target) (Result, error) {
	work := &job{Plan: p, target: target}
	for _, blob := range p.Blobs {
		work.total += blob.Size
	}
	err := work.copyBlobs(ctx)
	if err == nil {
		err = work.writeManifests(ctx)
	}
	return work.result, err
}

// A job is a copy under way.
type job struct {
	*Plan
	target oci.Target

	mu     sync.Mutex
	total  int64 // bytes of all blobs
	done   int64
	result Result
}

func (j *job) copyBlobs(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(j.options.Jobs, defaultJobs))
	for _, blob := range j.Blobs {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := j.copyBlob(ctx, blob); err != nil {
				return fmt.Errorf("blob %s: %w", blob.Digest, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// A mounter takes over blobs from other stores without reading them.
type mounter interface {
	Mount(ctx context.Context, described v1.Descriptor, from oci.Store) (bool, error)
}

func (j *job) copyBlob(ctx context.Context, blob v1.Descriptor) error {
	exists, err := j.target.HasBlob(ctx, blob)
	if mounts, canMount := j.target.(mounter); err == nil && !exists && canMount {
		exists, err = mounts.Mount(ctx, blob, j.from)
	}
	if err != nil {
		return err
	}
	reached := int64(0)
	if !exists {
		err = j.target.PutBlob(ctx, blob, func(offset int64) (io.ReadCloser, error) {
			content, err := j.from.Blob(ctx, blob, offset)
			if errors.Is(err, oci.ErrNotFound) && len(blob.URLs) > 0 {
				err = fmt.Errorf("it is only at %s, and foreign layers are not downloaded: %w",
					strings.Join(blob.URLs, ", "), err)
			}
			return struct {
				io.Reader
				io.Closer
			}{oci.ReaderFunc(func(p []byte) (int, error) {
				n, err := content.Read(p)
				offset += int64(n)
				j.reach(&reached, offset)
				return n, err
			}), content}, err
		})
	}
	if err != nil {
		return err
	}
	j.reach(&reached, blob.Size)
	j.count(exists, blob.Size)
	return nil
}

// count counts a blob or manifest in the result.
func (j *job) count(isSkipped bool, size int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	amount := &j.result.Copied
	if isSkipped {
		amount = &j.result.Skipped
	}
	amount.Count++
	amount.Bytes += size
}

// writeManifests writes the manifests, those that others name first.
func (j *job) writeManifests(ctx context.Context) error {
	for _, m := range j.Manifests {
		var exists bool
		var err error
		switch {
		case m.IsAttachment:
			exists, err = j.writeAttachment(ctx, m)
		case m.IsChild: // others also get a tag, or an entry in a list
			_, missing := j.target.Manifest(ctx, m.Descriptor)
			if exists = missing == nil; !exists {
				err = j.target.PutManifest(ctx, m.Descriptor, m.raw, "")
			}
		default:
			err = j.target.PutManifest(ctx, m.Descriptor, m.raw, cmp.Or(m.Tag, m.Digest.String()))
		}
		if err != nil {
			return err
		}
		j.count(exists, m.Size)
	}
	return nil
}

// reach counts the bytes of a blob up to an offset. Those that are read twice count once.
func (j *job) reach(reached *int64, offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if offset <= *reached {
		return
	}
	j.done += offset - *reached
	*reached = offset
	if j.options.Progress != nil {
		j.options.Progress(j.done, j.total)
	}
}
