package await

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A watchKey selects the objects of one watch.
type watchKey struct {
	resource           schema.GroupVersionResource
	namespace          string // "" for all
	labels, fieldsOnly string // selectors
}

// nameSelector returns the field selector for an object.
func nameSelector(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// A watch watches the objects of a resource.
type watch struct {
	tracker  *Tracker
	key      watchKey
	resource cluster.Resource // resource of the tracked objects
	stop     context.CancelFunc

	// The following fields are guarded by the tracker.
	err        error                                   // the last failure of the watch
	isReported bool                                    // err was reported
	isListed   bool                                    // its first list is complete
	early      map[kinds.ID]*unstructured.Unstructured // objects that were observed before they were expected
	// objects that decide whether a Service serves, keyed by name; nil for a watch of tracked objects
	related map[string]*unstructured.Unstructured
}

// isOlder reports whether a version of a resource is older than another one.
func isOlder(version, than string) bool { return resourcewatch.IsOlder(version, than) }

// longestPause is the longest pause before a broken watch is restarted.
const longestPause = time.Second

// start returns the watch for a key, and begins it if it is new. Related is nil for a watch of tracked objects.
func (t *Tracker) start(key watchKey, resource cluster.Resource, related map[string]*unstructured.Unstructured) *watch {
	if s := t.watches[key]; s != nil {
		return s
	}
	ctx, stop := context.WithCancel(t.ctx)
	s := &watch{
		tracker:  t,
		key:      key,
		resource: resource,
		stop:     stop,
		early:    map[kinds.ID]*unstructured.Unstructured{},
		related:  related,
	}
	t.watches[key] = s
	objects := t.cluster.Objects.Resource(key.resource).Namespace(key.namespace)
	from := resourcewatch.ListerWatcher[*unstructured.UnstructuredList]{
		List: objects.List, Watch: objects.Watch, Client: t.cluster.Objects, Labels: key.labels, Fields: key.fieldsOnly,
		Trim: trim,
	}
	t.running.Go(func() { resourcewatch.Run(ctx, from, s, longestPause, func(err error) { t.noteError(s, err) }) })
	return s
}

// OnChange is called with an object, or with its last state when it has left the watch.
func (w *watch) OnChange(object *unstructured.Unstructured, exists bool) {
	trim(object)
	if w.related != nil {
		w.observeRelated(object, exists)
	} else {
		w.observe(object, exists)
	}
}

// OnList is called with all objects, at a version of the resource.
func (w *watch) OnList(objects []*unstructured.Unstructured, version string) {
	w.tracker.do(func() { w.err = nil })
	if w.related != nil {
		w.observeRelatedList(objects)
	} else {
		w.observeList(objects, version)
	}
}

// watchObject watches an object, together with all others of its resource and release. An existing
// create-only object may lack the label of the release: it has a watch alone.
func (t *Tracker) watchObject(o *trackedObject, alone bool) {
	id := o.Resource.Scoped(o.Manifest.ID())
	key := watchKey{
		resource: o.Resource.GroupVersionResource,
		labels:   objectmeta.ReleaseLabel + "=" + t.options.Release,
	}
	switch {
	case alone:
		key.labels, key.namespace, key.fieldsOnly = "", id.Namespace, nameSelector(id.Name)
	case t.narrow[key.resource]:
		key.namespace = id.Namespace
	}
	o.watch = t.start(key, o.Resource, nil)
	o.catchUp(t)
}

// catchUp observes an object that its watch has shown before it was expected, since a watch shows it
// only once. An object that a complete list lacks may have lost its label: it gets a watch alone.
func (o *trackedObject) catchUp(t *Tracker) {
	id := o.Resource.Scoped(o.Manifest.ID())
	object, exists := o.watch.early[id]
	delete(o.watch.early, id)
	switch {
	case o.state != unseen:
	case exists:
		t.observe(o, object)
	case o.watch.isListed && o.watch.key.labels != "":
		t.watchObject(o, true)
	}
}

// find returns the tracked object; nil if the watch has shown another one.
func (w *watch) find(object *unstructured.Unstructured) *trackedObject {
	o := w.tracker.objects[w.resource.IDOf(object)]
	if o == nil || o.Resource.GroupVersionResource != w.key.resource {
		return nil
	}
	return o
}

// observe observes an object, or keeps the object until it is expected. An object that has left the watch may only have
// lost its label, so it gets a watch of its own.
func (w *watch) observe(object *unstructured.Unstructured, exists bool) {
	w.tracker.do(func() {
		o := w.find(object)
		switch {
		case o == nil && exists:
			w.early[w.resource.IDOf(object)] = object
		case o == nil:
			delete(w.early, w.resource.IDOf(object))
		case !exists && w.key.labels == "":
			o.observeAbsence(w.tracker, object.GetResourceVersion())
		case !exists && isOlder(object.GetResourceVersion(), o.version): // an earlier object of the same name
		default:
			w.tracker.observe(o, object)
			if !exists && o.state != expected && !o.isDone {
				w.tracker.watchObject(o, true)
			}
		}
	})
}

func (w *watch) observeList(objects []*unstructured.Unstructured, version string) {
	w.tracker.do(func() {
		w.isListed = true
		clear(w.early)
		found := map[*trackedObject]bool{}
		for _, object := range objects {
			if o := w.find(object); o != nil {
				found[o] = true
				w.tracker.observe(o, object)
			} else {
				w.early[w.resource.IDOf(object)] = object
			}
		}
		for _, o := range w.tracker.objects {
			switch {
			case o.watch != w || found[o] || isOlder(version, o.version):
			case w.key.labels == "":
				o.observeAbsence(w.tracker, version)
			case (o.Live != nil || o.state == unseen) && !o.isDone:
				w.tracker.watchObject(o, true)
			}
		}
	})
}

// noteError notes an error of a watch, which is retried by itself. A watch that the user may not start in the whole
// cluster is replaced by watches in the namespaces of the objects.
func (t *Tracker) noteError(s *watch, err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) &&
		!apierrors.IsMethodNotSupported(err) {
		return
	}
	t.do(func() {
		isNew := !s.isReported && !apierrors.IsNotFound(err) // one of several API servers may not know a new kind yet
		s.err, s.isReported = err, s.isReported || isNew
		for _, o := range t.objects {
			switch {
			case o.watch != s && !slices.Contains(t.watchesOf(o.calls), s):
			case o.watch == s && apierrors.IsForbidden(err) && s.key.namespace == "" && o.Resource.Namespaced:
				t.narrow[s.key.resource] = true
				s.stop()
				t.watchObject(o, false)
			case isNew && o.state != expected:
				t.events = append(t.events, Event{Type: Invisible, Object: o.forReport(t)})
			}
		}
	})
}

// whyUnwatched returns why an object, or a Service that it calls, can't be watched; "" if both can.
func (o *trackedObject) whyUnwatched(t *Tracker) string {
	if o.watch != nil && o.watch.err != nil {
		return unknownState("it", o.watch)
	}
	for _, name := range o.calls {
		for _, s := range t.watchesOf([]types.NamespacedName{name}) {
			if s.err != nil {
				return unknownState("Service "+name.String(), s)
			}
		}
	}
	return ""
}

// unknownState returns the message about a failed watch, with the missing right if the watch is forbidden.
func unknownState(what string, s *watch) string {
	if !apierrors.IsForbidden(s.err) {
		return fmt.Sprintf("the state of %s is unknown, since it can't be watched: %s", what,
			printable.Line(s.err.Error()))
	}
	where := "in the whole cluster"
	if s.key.namespace != "" {
		where = "in namespace " + s.key.namespace
	}
	return fmt.Sprintf("the state of %s is unknown, since it may not be watched: allow this user to list and watch "+
		"%s %s", what, s.key.resource.GroupResource(), where)
}

// trimmedCopy returns a copy of an object without fields that readiness does not depend on: its managed fields, and the
// template of its pods, unless an expression of the release defines when it is ready.
func trimmedCopy(object *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	for _, field := range []string{"metadata", "spec"} {
		if fields, isMapping := kept.Object[field].(map[string]any); isMapping {
			kept.Object[field] = maps.Clone(fields)
		}
	}
	trim(kept)
	return kept
}

// trim is trimmedCopy in place.
func trim(value any) {
	object, isObject := value.(*unstructured.Unstructured)
	if !isObject {
		return
	}
	object.SetManagedFields(nil)
	if _, isMarked := object.GetAnnotations()[ready.Annotation]; !isMarked {
		unstructured.RemoveNestedField(object.Object, "spec", "template")
	}
}

// withoutSpec returns an object without its spec, which is most of a large definition.
func withoutSpec(object *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	delete(kept.Object, "spec")
	return kept
}
