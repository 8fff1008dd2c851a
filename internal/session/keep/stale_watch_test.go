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
	for name, deliver := range map[string]func(*Keeper, *kindWatch, string){
		"the object was deleted": func(_ *Keeper, w *kindWatch, version string) {
			watchHandler{w, ""}.OnChange(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name:            "settings",
				Namespace:       "shop",
				ResourceVersion: version,
			}}, false)
		},
		"a list without it": func(_ *Keeper, w *kindWatch, version string) { watchHandler{w, ""}.OnList(nil, version) },
		"a list of its own": func(_ *Keeper, w *kindWatch, version string) {
			watchHandler{w, "shop"}.OnList(nil, version)
		},
	} {
		for version, want := range map[string]bool{"9": false, "10": true, "11": true} {
			t.Run(name+", as of "+version, func(t *testing.T) {
				w := &kindWatch{resource: cluster.Resource{Kind: "ConfigMap"}}
				o := &objectState{id: id, watch: w, version: "10", phase: keeping}
				k := &Keeper{
					objects: map[kinds.ID]*objectState{id: o},
					queue: workqueue.NewTypedRateLimitingQueue(
						workqueue.DefaultTypedControllerRateLimiter[*objectState]()),
				}
				w.keeper = k
				defer k.queue.ShutDown()
				deliver(k, w, version)
				if o.mayDiffer != want || k.queue.Len() > 0 != want {
					t.Errorf("the object may differ: %t", o.mayDiffer)
				}
			})
		}
	}
}
