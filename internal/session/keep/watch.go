package keep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A kindWatch watches the objects of one kind in the whole cluster, or in each namespace of the release if a watch of
// the whole cluster is forbidden.
type kindWatch struct {
	keeper   *Keeper
	resource cluster.Resource

	errs map[string]error // namespace -> error of its broken watch; only for the holder of lockedObjects
}

// longestWatchPause is the longest pause before a failed watch restarts.
const longestWatchPause = 15 * time.Second

// run watches until ctx ends.
func (w *kindWatch) run(ctx context.Context) {
	whole, stop := context.WithCancel(ctx)
	defer stop()
	isForbidden := w.watchIn(whole, metav1.NamespaceAll, stop)
	if !isForbidden || ctx.Err() != nil {
		return
	}
	var running sync.WaitGroup
	for namespace := range w.namespaces() {
		running.Go(func() { w.watchIn(ctx, namespace, func() {}) })
	}
	running.Wait()
}

// namespaces returns the namespaces to watch from now on, one by one. Each watch starts with the error of the
// watch of the whole cluster.
func (w *kindWatch) namespaces() map[string]bool {
	locked := w.keeper.lock()
	defer locked.unlock()
	before, namespaces := w.errs[metav1.NamespaceAll], map[string]bool{}
	delete(w.errs, metav1.NamespaceAll)
	for id, o := range locked.byID {
		if o.watch != w {
			continue
		}
		namespaces[id.Namespace] = true
		if before != nil {
			w.errs[id.Namespace] = before
		}
	}
	return namespaces
}

// watchIn watches in one namespace, or in all. If a watch of the whole cluster is forbidden, from the start or later,
// it calls stop and returns: the user may have the right in the namespaces of the release.
func (w *kindWatch) watchIn(ctx context.Context, namespace string, stop func()) (isForbidden bool) {
	objects := w.keeper.cluster.Metadata.Resource(w.resource.GroupVersionResource).Namespace(namespace)
	source := resourcewatch.ListerWatcher[*metav1.PartialObjectMetadataList]{
		List: objects.List, Client: w.keeper.cluster.Metadata,
		Labels: objectmeta.ReleaseLabel + "=" + w.keeper.options.Apply.Release,
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			opened, err := objects.Watch(ctx, options)
			if err == nil { // a successful list is not enough: the user may lack the right to watch
				w.reportRecovered(namespace)
			}
			return opened, err
		},
	}
	resourcewatch.Run(ctx, source, watchHandler{w, namespace}, longestWatchPause, func(err error) {
		if apierrors.IsForbidden(err) && namespace == metav1.NamespaceAll && w.resource.Namespaced {
			isForbidden = true
			stop()
			return
		}
		if err != nil { // a watch that has ended without an error restarts
			w.reportBroken(namespace, err)
		}
	})
	return isForbidden
}

// A watchHandler handles the events of one watch.
type watchHandler struct {
	*kindWatch
	namespace string
}

// OnChange handles a change of an object.
func (h watchHandler) OnChange(object *metav1.PartialObjectMetadata, exists bool) {
	if exists {
		h.keeper.observe(h.resource.IDOf(object), objectmeta.Of(h.resource, object))
		return
	}
	locked := h.keeper.lock()
	defer locked.unlock()
	if o := locked.byID[h.resource.IDOf(object)]; o != nil {
		locked.observeAbsence(o, object.ResourceVersion)
	}
}

// OnList handles a list of all existing objects: the other objects do not exist any more.
func (h watchHandler) OnList(objects []*metav1.PartialObjectMetadata, version string) {
	existing := map[kinds.ID]bool{}
	for _, object := range objects {
		existing[h.resource.IDOf(object)] = true
		h.keeper.observe(h.resource.IDOf(object), objectmeta.Of(h.resource, object))
	}
	locked := h.keeper.lock()
	defer locked.unlock()
	for id, o := range locked.byID {
		isWatched := o.watch == h.kindWatch && (h.namespace == metav1.NamespaceAll || h.namespace == id.Namespace)
		if isWatched && !existing[id] {
			locked.observeAbsence(o, version)
		}
	}
}

// reportBroken reports once that changes of a kind are not seen any more.
func (w *kindWatch) reportBroken(namespace string, err error) {
	locked := w.keeper.lock()
	isNew := w.errs[namespace] == nil
	w.errs[namespace] = err
	locked.unlock()
	if isNew {
		w.keeper.emit(Event{
			Type:    Unwatched,
			Message: fmt.Sprintf("changes of %s are not seen: %s", w.title(namespace), whyBroken(err)),
		})
	}
}

// isBroken reports whether changes of a kind in a namespace are not seen.
func (*lockedObjects) isBroken(w *kindWatch, namespace string) bool {
	return w.errs[metav1.NamespaceAll] != nil || w.errs[namespace] != nil
}

// reportRecovered reports that changes of a kind are seen again.
func (w *kindWatch) reportRecovered(namespace string) {
	locked := w.keeper.lock()
	wasBroken := w.errs[namespace] != nil
	delete(w.errs, namespace)
	locked.unlock()
	if wasBroken {
		w.keeper.emit(Event{Type: Watched, Message: "changes of " + w.title(namespace) + " are seen again"})
	}
}

func (w *kindWatch) title(namespace string) string {
	title := w.resource.GroupResource().String()
	if namespace != metav1.NamespaceAll {
		title += " in namespace " + namespace
	}
	return title
}

// whyBroken returns why changes are not seen, in a line.
func whyBroken(err error) string {
	var status *apierrors.StatusError // client-go wraps the server's status
	switch {
	case apierrors.IsForbidden(err):
		return "allow this user to list and watch them"
	case errors.As(err, &status):
		err = status
	}
	return printable.Line(err.Error())
}
