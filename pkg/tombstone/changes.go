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

	"github.com/runlevel/runlevel/pkg/cluster"
)

// Changes says when to look at objects: at once, and then whenever one of them may have
// changed. They are watched, each by its name and without its body. The channel is closed
// when nothing is left to watch: when the context ends, or when all their kinds are gone.
func Changes(ctx context.Context, c *cluster.Cluster, objects []Object) <-chan struct{} {
	changes := make(chan struct{}, 1) // several changes are one reason to look
	changes <- struct{}{}
	var followers sync.WaitGroup
	for _, object := range objects {
		f := follower{cluster: c, object: object, changes: changes}
		followers.Go(func() { f.follow(ctx) })
	}
	go func() {
		followers.Wait()
		close(changes)
	}()
	return changes
}

// A follower watches one object.
type follower struct {
	cluster *cluster.Cluster
	object  Object
	changes chan<- struct{}
}

// follow leaves it to an informer to list, to watch, and to try again later. Whatever it
// does is a reason to look: a watch may also begin because the server is back.
func (f follower) follow(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
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
	// Both fail only if the informer was started before.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.changed() },
		UpdateFunc: func(any, any) { f.changed() },
		DeleteFunc: func(any) { f.changed() },
	})
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // the look that follows says it
	informer.RunWithContext(ctx)
}

// following makes a request where the objects of the kind are now. It stops all when they
// are gone for good.
func following[T any](ctx context.Context, f follower, stop func(), request func(metadata.ResourceInterface) (T, error)) (T, error) {
	defer f.changed()
	var none T
	resource, err := f.cluster.FindOrGone(ctx, f.object.Kind)
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
		f.cluster.Forget(f.object.Kind) // lists are of kinds: it is the kind that is not there
	}
	return answer, err
}

func (f follower) narrow(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.object.Name).String()
	return options
}

// changed leaves word, unless there is word already.
func (f follower) changed() {
	select {
	case f.changes <- struct{}{}:
	default:
	}
}
