package tombstone

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// longestPause is the longest pause before a failed watch restarts.
const longestPause = 10 * time.Second

// Watch returns a channel that signals when to observe objects: at once, and then whenever an object may have
// changed. It watches the metadata of each object by name. The channel is closed when the context ends, or when none
// of the kinds is served any more.
func Watch(ctx context.Context, c *cluster.Cluster, objects []kinds.ID) <-chan struct{} {
	changed := make(notifier, 1) // several changes are one reason to observe
	changed.notify()
	var watches sync.WaitGroup
	for _, object := range objects {
		watches.Go(func() { watchObject(ctx, c, object, changed) })
	}
	go func() {
		watches.Wait()
		close(changed)
	}()
	return changed
}

// watchObject watches one object until its kind is not served any more. A failed watch is a reason to observe, too: the
// observation then has the error.
func watchObject(ctx context.Context, c *cluster.Cluster, object kinds.ID, changed notifier) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kindResource := func(ctx context.Context) (metadata.ResourceInterface, error) {
		resource, err := c.FindOrGone(ctx, object.GroupKind())
		if errors.Is(err, cluster.ErrNotServed) {
			stop()
		}
		if err != nil {
			return nil, err
		}
		return c.Metadata.Resource(resource.GroupVersionResource).Namespace(resource.Scoped(object).Namespace), nil
	}
	forgetKind := func(err error) error {
		if apierrors.IsNotFound(err) { // a 404 for a list is about the kind
			c.Forget(object.GroupKind())
		}
		return err
	}
	source := resourcewatch.ListerWatcher[*metav1.PartialObjectMetadataList]{
		List: func(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			objects, err := kindResource(ctx)
			if err != nil {
				return nil, err
			}
			list, err := objects.List(ctx, options)
			return list, forgetKind(err)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			objects, err := kindResource(ctx)
			if err != nil {
				return nil, err
			}
			watched, err := objects.Watch(ctx, options)
			return watched, forgetKind(err)
		},
		Client: c.Metadata,
		Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, object.Name).String(),
	}
	resourcewatch.Run(ctx, source, changed, longestPause, func(error) { changed.notify() })
	changed.notify()
}

// A notifier is a channel that has a value when something may have changed.
type notifier chan struct{}

func (n notifier) notify() {
	select {
	case n <- struct{}{}:
	default: // it has a value already
	}
}

// OnChange and OnList are called by the watch.
func (n notifier) OnChange(*metav1.PartialObjectMetadata, bool)   { n.notify() }
func (n notifier) OnList([]*metav1.PartialObjectMetadata, string) { n.notify() }
