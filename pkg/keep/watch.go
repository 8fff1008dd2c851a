package keep

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/vigil"
)

// A view is what is seen of one kind, in the whole cluster, or where that is forbidden, in the
// namespaces of the release.
type view struct {
	keeper   *Keeper
	resource cluster.Resource

	blind map[string]error // why nothing is seen, by namespace; the keeper guards it
}

// longestBlind is the longest pause before a watch that broke is begun again.
const longestBlind = 15 * time.Second

// watch watches until ctx ends.
func (v *view) watch(ctx context.Context) {
	whole, stop := context.WithCancel(ctx)
	defer stop()
	isForbidden := v.watchIn(whole, metav1.NamespaceAll, stop)
	if !isForbidden || ctx.Err() != nil {
		return
	}
	ended := make(chan struct{})
	namespaces := v.namespaces()
	for _, namespace := range namespaces {
		go func() {
			defer func() { ended <- struct{}{} }()
			v.watchIn(ctx, namespace, func() {})
		}()
	}
	for range namespaces {
		<-ended
	}
}

// watchIn watches in one namespace, or in all. That it may not at all, from the start, it says
// by narrow, and returns.
func (v *view) watchIn(ctx context.Context, namespace string, narrow func()) (isForbidden bool) {
	objects := v.keeper.cluster.Metadata.Resource(v.resource.GroupVersionResource).Namespace(namespace)
	from := vigil.Source[*metav1.PartialObjectMetadataList]{
		List: objects.List, Client: v.keeper.cluster.Metadata, Labels: inventory.Label + "=" + v.keeper.options.Apply.Release,
	}
	in := &scene{view: v, namespace: namespace}
	from.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		opened, err := objects.Watch(ctx, options)
		if err == nil { // a list alone, which may be allowed when watching is not, shows no changes
			in.wasOpened = true
			v.recovered(namespace)
		}
		return opened, err
	}
	vigil.Keep(ctx, from, in, longestBlind, func(err error) {
		if apierrors.IsForbidden(err) && namespace == metav1.NamespaceAll && v.resource.Namespaced && !in.wasOpened {
			isForbidden = true
			narrow()
			return
		}
		if err != nil { // else it has only ended, and is begun again
			v.broke(namespace, err)
		}
	})
	return isForbidden
}

// namespaces are those in which the release has objects of the kind.
func (v *view) namespaces() []string {
	v.keeper.mu.Lock()
	defer v.keeper.mu.Unlock()
	var all []string
	known := map[string]bool{}
	for id, o := range v.keeper.objects {
		if o.view == v && !known[id.Namespace] {
			known[id.Namespace] = true
			all = append(all, id.Namespace)
		}
	}
	return all
}

// A scene is what one watch is about.
type scene struct {
	view      *view
	namespace string
	wasOpened bool // the watch, at least once
}

func (s *scene) id(object *metav1.PartialObjectMetadata) kinds.ID {
	kind := s.view.resource.GroupKind()
	return kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.Namespace, Name: object.Name}
}

// Seen takes in a change.
func (s *scene) Seen(object *metav1.PartialObjectMetadata, exists bool) {
	if exists {
		s.view.keeper.see(s.id(object), inventory.HeadOf(s.view.resource, object))
	} else {
		s.view.keeper.miss(s.id(object), object.ResourceVersion)
	}
}

// Listed takes in all that there is: what is not there, is gone.
func (s *scene) Listed(objects []*metav1.PartialObjectMetadata, version string) {
	there := map[kinds.ID]bool{}
	for _, object := range objects {
		there[s.id(object)] = true
		s.view.keeper.see(s.id(object), inventory.HeadOf(s.view.resource, object))
	}
	s.view.keeper.missOthers(s, there, version)
}

// missOthers takes in that no others of a kind are there than some.
func (k *Keeper) missOthers(s *scene, there map[kinds.ID]bool, version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, o := range k.objects {
		isMeant := o.view == s.view && (s.namespace == metav1.NamespaceAll || s.namespace == id.Namespace)
		if isMeant && !there[id] {
			k.missOne(o, version)
		}
	}
}

// broke tells once that nothing is seen of a kind any more.
func (v *view) broke(namespace string, err error) {
	v.keeper.mu.Lock()
	isNew := v.blind[namespace] == nil
	if v.blind == nil {
		v.blind = map[string]error{}
	}
	v.blind[namespace] = err
	v.keeper.mu.Unlock()
	if isNew {
		v.keeper.tell(Event{Type: Blind, Message: fmt.Sprintf("changes of %s are not seen: %s", v.title(namespace), whyBlind(err))})
	}
}

// isBlind says whether nothing is seen of a kind in a namespace. The lock is held.
func (v *view) isBlind(namespace string) bool {
	return v.blind[metav1.NamespaceAll] != nil || v.blind[namespace] != nil
}

// recovered tells that a kind is seen again.
func (v *view) recovered(namespace string) {
	v.keeper.mu.Lock()
	wasBlind := v.blind[namespace] != nil
	delete(v.blind, namespace)
	v.keeper.mu.Unlock()
	if wasBlind {
		v.keeper.tell(Event{Type: Sighted, Message: "changes of " + v.title(namespace) + " are seen again"})
	}
}

func (v *view) title(namespace string) string {
	title := v.resource.GroupResource().String()
	if namespace != metav1.NamespaceAll {
		title += " in namespace " + namespace
	}
	return title
}

// whyBlind is why nothing is seen, in a line.
func whyBlind(err error) string {
	var said *apierrors.StatusError // the rest is how client-go has come to it
	switch {
	case apierrors.IsForbidden(err):
		return "allow this user to list and watch them"
	case errors.As(err, &said):
		err = said
	}
	return printable.Line(err.Error())
}
