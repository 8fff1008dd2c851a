package keep

import (
	"testing"

	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/pkg/kinds"
)

// What a watch tells late, of a time before we have looked at an object, says nothing of it: an
// API server may be behind another one.
func TestWhatIsToldLateSaysNothing(t *testing.T) {
	id := kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
	for name, tell := range map[string]func(*Keeper, *view, string){
		"that it is gone":   func(k *Keeper, _ *view, version string) { k.miss(id, version) },
		"a list without it": func(k *Keeper, v *view, version string) { k.missOthers(&scene{view: v}, nil, version) },
		"a list of its own": func(k *Keeper, v *view, version string) {
			k.missOthers(&scene{view: v, namespace: "shop"}, nil, version)
		},
	} {
		for version, want := range map[string]bool{"9": false, "10": true, "11": true} {
			t.Run(name+", as of "+version, func(t *testing.T) {
				v := &view{}
				o := &kept{id: id, view: v, version: "10", isKept: true}
				k := &Keeper{objects: map[kinds.ID]*kept{id: o}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[*kept]())}
				defer k.queue.ShutDown()
				tell(k, v, version)
				if o.isSuspect != want || k.queue.Len() > 0 != want {
					t.Errorf("it is asked for: %t", o.isSuspect)
				}
			})
		}
	}
}
