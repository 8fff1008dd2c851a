package apply

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/vigil"
)

// A streamKey is what one watch is about.
type streamKey struct {
	resource           schema.GroupVersionResource
	namespace          string // "" for all
	labels, fieldsOnly string // selectors
}

// named selects the one object of a name.
func named(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// A stream is a watch.
type stream struct {
	follower *follower
	key      streamKey
	sink     sink
	stop     context.CancelFunc

	// These are guarded by the follower.
	err      error                                   // why nothing is seen with it
	isTold   bool                                    // of that
	isListed bool                                    // it has shown all that there is
	early    map[kinds.ID]*unstructured.Unstructured // what it has shown, and nobody has expected yet
}

// A sink is told what a watch sees.
type sink interface {
	// seen is told of an object, or how one was when it went out of sight.
	seen(object *unstructured.Unstructured, exists bool)
	// listed is told all that there is, by a version of the resource.
	listed(objects []*unstructured.Unstructured, version string)
}

// longestPause is how long a watch that broke may wait before it is begun again.
const longestPause = time.Second

// start begins a watch, unless there is one.
func (f *follower) start(key streamKey, to sink) *stream {
	if s := f.streams[key]; s != nil {
		return s
	}
	ctx, stop := context.WithCancel(f.ctx)
	s := &stream{follower: f, key: key, sink: to, stop: stop, early: map[kinds.ID]*unstructured.Unstructured{}}
	f.streams[key] = s
	objects := f.cluster.Objects.Resource(key.resource).Namespace(key.namespace)
	from := vigil.Source[*unstructured.UnstructuredList]{
		List: objects.List, Watch: objects.Watch, Client: f.cluster.Objects, Labels: key.labels, Fields: key.fieldsOnly, Trim: slimAny,
	}
	f.running.Go(func() { vigil.Keep(ctx, from, s, longestPause, func(err error) { f.broke(s, err) }) })
	return s
}

// Seen passes on what a watch sees.
func (s *stream) Seen(object *unstructured.Unstructured, exists bool) {
	slim(object)
	s.sink.seen(object, exists)
}

// Listed passes on all that there is.
func (s *stream) Listed(objects []*unstructured.Unstructured, version string) {
	s.follower.do(func() { s.err = nil })
	s.sink.listed(objects, version)
}

// slimAny is for what is held until a list is complete.
func slimAny(object any) {
	if object, ok := object.(*unstructured.Unstructured); ok {
		slim(object)
	}
}

// stream watches an object, together with all others of its resource and release. One
// without our label, which was there before and is create-only, has a watch of its own.
func (f *follower) stream(w *watched, alone bool) {
	namespace := ""
	if w.resource.Namespaced {
		namespace = w.manifest.Object().GetNamespace()
	}
	key := streamKey{resource: w.resource.GroupVersionResource, labels: inventory.Label + "=" + f.options.Release}
	switch {
	case alone:
		key.labels, key.namespace, key.fieldsOnly = "", namespace, named(w.manifest.Object().GetName())
	case f.narrow[key.resource]:
		key.namespace = namespace
	}
	w.stream = f.start(key, sighting{follower: f, kind: w.resource.GroupKind(), key: key})
	f.catchUp(w)
}

// catchUp takes in what the watch of an object has shown of it before it was expected: it
// shows that once only. What it has not shown may have lost its label, and has a watch of
// its own.
func (f *follower) catchUp(w *watched) {
	id := w.manifest.ID()
	if !w.resource.Namespaced {
		id.Namespace = "" // whatever the manifest says
	}
	object, isThere := w.stream.early[id]
	delete(w.stream.early, id)
	switch {
	case !w.isUnseen:
	case isThere:
		f.see(w, object)
	case w.stream.isListed && w.stream.key.labels != "":
		f.stream(w, true)
	}
}

// A sighting takes in what is seen of the objects of a run.
type sighting struct {
	follower *follower
	kind     schema.GroupKind
	key      streamKey
}

func (s sighting) id(object *unstructured.Unstructured) kinds.ID {
	return kinds.ID{Group: s.kind.Group, Kind: s.kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// find is the object of the run that is meant.
func (s sighting) find(object *unstructured.Unstructured) *watched {
	w := s.follower.objects[s.id(object)]
	if w == nil || w.resource.GroupVersionResource != s.key.resource {
		return nil
	}
	return w
}

// seen takes in an object. One that is out of sight may have lost its label only, so it is
// looked at on its own from then on.
func (s sighting) seen(object *unstructured.Unstructured, exists bool) {
	s.follower.do(func() {
		w := s.find(object)
		switch {
		case w == nil && exists:
			s.keep(object)
		case w == nil:
			s.forget(object)
		case !exists && s.key.labels == "":
			s.follower.miss(w, object.GetResourceVersion())
		case !exists && vigil.IsOlder(object.GetResourceVersion(), w.version): // another one, before it was made anew
		default:
			s.follower.see(w, object)
			if !exists && w.applied && !w.isDone {
				s.follower.stream(w, true)
			}
		}
	})
}

// keep keeps an object until it is expected.
func (s sighting) keep(object *unstructured.Unstructured) {
	if by := s.follower.streams[s.key]; by != nil {
		by.early[s.id(object)] = object
	}
}

func (s sighting) forget(object *unstructured.Unstructured) {
	if by := s.follower.streams[s.key]; by != nil {
		delete(by.early, s.id(object))
	}
}

func (s sighting) listed(objects []*unstructured.Unstructured, version string) {
	s.follower.do(func() {
		if by := s.follower.streams[s.key]; by != nil {
			by.isListed = true
			clear(by.early)
		}
		there := map[*watched]bool{}
		for _, object := range objects {
			if w := s.find(object); w != nil {
				there[w] = true
				s.follower.see(w, object)
			} else {
				s.keep(object)
			}
		}
		for _, w := range s.follower.objects {
			if w.stream == nil || w.stream.key != s.key {
				continue
			}
			switch {
			case there[w] || vigil.IsOlder(version, w.version):
			case s.key.labels == "":
				s.follower.miss(w, version)
			case (w.object != nil || w.isUnseen) && !w.isDone:
				s.follower.stream(w, true)
			}
		}
	})
}

// broke says what becomes of a watch that has an error. Those that heal, the watch heals
// itself. One that is forbidden in the whole cluster may be allowed where the objects are.
func (f *follower) broke(s *stream, err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
		return
	}
	f.do(func() {
		isNew := !s.isTold && !apierrors.IsNotFound(err) // which one of several servers may say of a new kind, for a moment
		s.err, s.isTold = err, s.isTold || isNew
		for _, w := range f.objects {
			switch {
			case w.stream != s && !f.callsThrough(w, s):
			case w.stream == s && apierrors.IsForbidden(err) && s.key.namespace == "" && w.resource.Namespaced:
				f.narrow[s.key.resource] = true
				s.stop()
				f.stream(w, false)
			case isNew && w.applied:
				unseen := f.shown(w)
				f.news = append(f.news, func() { f.told.unseen(unseen) })
			}
		}
	})
}

// blindness says why nobody knows how an object stands; nothing if that is known.
func (f *follower) blindness(w *watched) string {
	if w.stream != nil && w.stream.err != nil {
		return cantSee("it", w.stream)
	}
	for _, name := range w.calls {
		for _, s := range f.services[name].streams {
			if s.err != nil {
				return cantSee("Service "+name.String(), s)
			}
		}
	}
	return ""
}

// cantSee says which right is missing, if that is why.
func cantSee(what string, s *stream) string {
	if !apierrors.IsForbidden(s.err) {
		return fmt.Sprintf("nobody can say how %s stands, since it can't be watched: %s", what, oneLine(s.err))
	}
	where := "in the whole cluster"
	if s.key.namespace != "" {
		where = "in namespace " + s.key.namespace
	}
	return fmt.Sprintf("nobody can say how %s stands, since it may not be watched: allow this user to list and watch %s %s", what, s.key.resource.GroupResource(), where)
}

// callsThrough says whether a watch is on a Service that an object needs.
func (f *follower) callsThrough(w *watched, s *stream) bool {
	for _, name := range w.calls {
		for _, other := range f.services[name].streams {
			if other == s {
				return true
			}
		}
	}
	return false
}
