package tombstone

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// Changes says when to look at objects: at once, and then whenever one of them may have
// changed. They are watched, each by its name and without its body. The channel is closed
// when nothing is left to watch: when the context ends, or when all their kinds are gone.
func Changes(ctx context.Context, c *cluster.Cluster, objects []kinds.ID) <-chan struct{} {
	bell := &bell{rung: make(chan struct{}, 1)} // several changes are one reason to look
	bell.ring()
	var followers sync.WaitGroup
	for _, object := range objects {
		followers.Go(func() { follower{cluster: c, object: object, changed: bell.ring}.follow(ctx) })
	}
	go func() {
		followers.Wait()
		bell.close()
	}()
	return bell.rung
}

// A bell may be rung after it was closed, which nobody hears: a request may outlive the
// informer that made it.
type bell struct {
	mu       sync.Mutex
	rung     chan struct{}
	isClosed bool
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed {
		return
	}
	select {
	case b.rung <- struct{}{}:
	default: // it still rings
	}
}

func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isClosed = true
	close(b.rung)
}

// A follower watches one object.
type follower struct {
	cluster *cluster.Cluster
	object  kinds.ID
	changed func()
}

// follow leaves it to an informer to list, to watch, and to try again later. Whatever it
// does is a reason to look: a watch may also begin because the server is back.
func (f follower) follow(ctx context.Context) {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{})) // which discards: the look that follows says it better
	defer stop()
	informer := cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return following(ctx, f, stop, func(resource metadata.ResourceInterface) (runtime.Object, error) {
				return resource.List(ctx, f.narrow(options))
			})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return following(ctx, f, stop, func(resource metadata.ResourceInterface) (watch.Interface, error) {
				return resource.Watch(ctx, f.narrow(options))
			})
		},
	}, &metav1.PartialObjectMetadata{}, 0)
	// It fails only once the informer runs.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.changed() },
		UpdateFunc: func(any, any) { f.changed() },
		DeleteFunc: func(any) { f.changed() },
	})
	informer.RunWithContext(ctx)
}

// following makes a request where the objects of the kind are now. It stops all when they
// are gone for good.
func following[T any](ctx context.Context, f follower, stop func(), request func(metadata.ResourceInterface) (T, error)) (T, error) {
	defer f.changed()
	var none T
	resource, err := f.cluster.FindOrGone(ctx, f.object.GroupKind())
	if err != nil {
		if errors.Is(err, cluster.ErrNotServed) {
			stop()
		}
		return none, err
	}
	var objects metadata.ResourceInterface = f.cluster.Metadata.Resource(resource.GroupVersionResource)
	if resource.Namespaced {
		objects = f.cluster.Metadata.Resource(resource.GroupVersionResource).Namespace(f.object.Namespace)
	}
	answer, err := request(objects)
	if apierrors.IsNotFound(err) {
		f.cluster.Forget(f.object.GroupKind()) // lists are of kinds: it is the kind that is not there
	}
	return answer, err
}

func (f follower) narrow(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.object.Name).String()
	return options
}
