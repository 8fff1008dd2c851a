// Package queue orders the work queue of a controller of Machines: machines whose deletion only has to be completed
// come before all others. Among many deletions, a machine whose last hook was removed is then deleted soon, and does
// not wait until each of the others has begun.
//
// The queue is client-go's rate limiting work queue, which owns concurrency, deduplication and shutdown. This package
// has only the order of the items in it, and the pauses before retries. Start with Options.
package queue

import (
	"container/list"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Concurrency limits how many machines are reconciled at once. A reconciliation waits only for the API server.
const Concurrency = 20

// A failure is retried after RetrySoon, and then after twice as long each time, up to RetrySeldom: an administrator who
// raises a quota, or creates a missing template, does not wait longer.
const RetrySoon, RetrySeldom = 250 * time.Millisecond, time.Minute

// ConflictPause is the pause before a retry after a conflict.
const ConflictPause = 100 * time.Millisecond

// Options returns the options of a controller of machines, in whose queue some requests overtake others.
func Options(concurrency int, isFirst func(reconcile.Request) bool) controller.Options {
	o := Backoff(concurrency, RetrySoon)
	o.NewQueue = NewQueue(isFirst)
	return o
}

// Backoff returns the options of a controller without such requests, which retries a failure after soon at first.
func Backoff(concurrency int, soon time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soon,
			max(soon, RetrySeldom)),
	}
}

// fairness limits how many items in a row may overtake a waiting one.
const fairness = 9

// NewQueue returns the option NewQueue of a controller. isFirst reports whether a request overtakes others. It is
// called when a request is added and when it is added again while it waits, under the lock of the queue: it must
// neither wait nor use the queue.
func NewQueue(isFirst func(reconcile.Request) bool) func(string,
	workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string,
		limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
			Name:  name,
			Queue: newClassedOrder(isFirst),
		})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name:  name,
			Queue: ordered,
		})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
	}
}

// A classedOrder is the items of a work queue in two classes. Each class is first in, first out.
type classedOrder[T comparable] struct {
	isFirst      func(T) bool
	first, later *list.List
	waiting      map[T]*list.Element // those in later
	overtaken    int                 // items of first in a row that went before one in later
}

func newClassedOrder[T comparable](isFirst func(T) bool) *classedOrder[T] {
	return &classedOrder[T]{isFirst: isFirst, first: list.New(), later: list.New(), waiting: map[T]*list.Element{}}
}

// Push implements workqueue.Queue.
func (o *classedOrder[T]) Push(item T) {
	if o.isFirst(item) {
		o.first.PushBack(item)
		return
	}
	o.waiting[item] = o.later.PushBack(item)
}

// Touch implements workqueue.Queue. A touched item may have become one of the first class.
func (o *classedOrder[T]) Touch(item T) {
	if element, ok := o.waiting[item]; ok && o.isFirst(item) {
		o.later.Remove(element)
		delete(o.waiting, item)
		o.first.PushBack(item)
	}
}

// Len implements workqueue.Queue.
func (o *classedOrder[T]) Len() int { return o.first.Len() + o.later.Len() }

// Pop implements workqueue.Queue.
func (o *classedOrder[T]) Pop() T {
	from := o.first
	if from.Len() == 0 || o.later.Len() > 0 && o.overtaken == fairness {
		from = o.later
	}
	if from == o.first && o.later.Len() > 0 {
		o.overtaken++
	} else {
		o.overtaken = 0
	}
	item := from.Remove(from.Front()).(T)
	if from == o.later {
		delete(o.waiting, item)
	}
	return item
}
