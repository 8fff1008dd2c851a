package keep

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// If an event of a watch is older than the last check of the object, it is ignored: an API server may be behind another
// one.
func TestOutdatedEventsAreIgnored(t *testing.T) {
	id := kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
	for name, deliver := range map[string]func(*kindWatch, string){
		"the object was deleted": func(w *kindWatch, version string) {
			watchHandler{w, ""}.OnChange(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name:            "settings",
				Namespace:       "shop",
				ResourceVersion: version,
			}}, false)
		},
		"a list without it": func(w *kindWatch, version string) { watchHandler{w, ""}.OnList(nil, version) },
		"a list of its own": func(w *kindWatch, version string) {
			watchHandler{w, "shop"}.OnList(nil, version)
		},
	} {
		for version, want := range map[string]bool{"9": false, "10": true, "11": true} {
			t.Run(name+", as of "+version, func(t *testing.T) {
				w := &kindWatch{resource: cluster.Resource{Kind: "ConfigMap"}}
				o := &objectState{id: id, watch: w, live: liveState{version: "10"}, phase: keeping}
				queue := workqueue.NewTypedRateLimitingQueue(
					workqueue.DefaultTypedControllerRateLimiter[*objectState]())
				defer queue.ShutDown()
				w.keeper = &Keeper{guarded: lockedObjects{queue: queue, byID: map[kinds.ID]*objectState{id: o}}}
				deliver(w, version)
				if got, isQueued := o.live.mayDiffer, queue.Len() > 0; got != want || isQueued != want {
					t.Errorf("the object may differ: %t, and is queued: %t; want %t for both", got, isQueued, want)
				}
			})
		}
	}
}
