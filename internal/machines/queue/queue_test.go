package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// isUpper has upper-case items come first.
func isUpper(item string) bool { return item == strings.ToUpper(item) }

// popAll returns all items in the order in which they leave.
func popAll(o *classedOrder[string]) []string {
	var items []string
	for o.Len() > 0 {
		items = append(items, o.Pop())
	}
	return items
}

func TestFirstOnesOvertakeInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	o := newClassedOrder(isUpper)
	for _, item := range []string{"a", "b", "X", "c", "Y"} {
		o.Push(item)
	}
	if got, want := popAll(o), []string{"X", "Y", "a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

func TestAnItemThatIsTouchedMayOvertake(t *testing.T) {
	t.Parallel()
	hasChanged := false
	o := newClassedOrder(func(item string) bool { return isUpper(item) || hasChanged && item == "c" })
	for _, item := range []string{"a", "b", "c", "X"} {
		o.Push(item)
	}
	o.Touch("c") // it is not one of the first yet
	hasChanged = true
	for _, item := range []string{"c", "b", "X", "c"} {
		o.Touch(item)
	}
	if got, want := popAll(o), []string{"X", "c", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	o.Push("b") // it comes back after it left
	if got := popAll(o); !slices.Equal(got, []string{"b"}) {
		t.Errorf("then it is %v, want b", got)
	}
}

// TestOthersDoNotStarve adds first items faster than items are removed. One of ten removed items must be another item.
func TestOthersDoNotStarve(t *testing.T) {
	t.Parallel()
	o := newClassedOrder(isUpper)
	for i := range 5 {
		o.Push(fmt.Sprintf("a%d", i))
	}
	left := 0
	for i := range 5 * (fairness + 1) {
		o.Push(fmt.Sprintf("X%d", 2*i))
		o.Push(fmt.Sprintf("X%d", 2*i+1))
		if strings.HasPrefix(o.Pop(), "a") {
			left++
		}
	}
	if left != 5 {
		t.Errorf("%d of 5 items have left among %d", left, 5*(fairness+1))
	}
}

// TestNoRequestIsLost has many writers add requests, whose class changes all the time, and workers take them: the last
// version of each that was added is seen, and none is worked on twice at once.
func TestNoRequestIsLost(t *testing.T) {
	t.Parallel()
	const keys, writers, workers, adds = 50, 4, 5, 5000
	var versions, seen [keys]atomic.Int64
	var busy [keys]atomic.Bool
	queue := NewQueue(func(reconcile.Request) bool {
		return rand.IntN(2) == 0
	})("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	index := func(request reconcile.Request) (i int) { _, _ = fmt.Sscan(request.Name, &i); return i }
	var working, writing sync.WaitGroup
	for range workers {
		working.Go(func() {
			for request, isOver := queue.Get(); !isOver; request, isOver = queue.Get() {
				i := index(request)
				if busy[i].Swap(true) {
					t.Errorf("%s is worked on twice at once", request.Name)
				}
				seen[i].Store(versions[i].Load())
				busy[i].Store(false)
				queue.Done(request)
			}
		})
	}
	for range writers {
		writing.Go(func() {
			for range adds {
				i := rand.IntN(keys)
				versions[i].Add(1)
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint(i)}})
			}
		})
	}
	writing.Wait()
	queue.ShutDownWithDrain()
	working.Wait()
	for i := range keys {
		if versions[i].Load() != seen[i].Load() {
			t.Errorf("of %d, version %d was seen last, and %d was added", i, seen[i].Load(), versions[i].Load())
		}
	}
}
