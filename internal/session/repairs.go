package session

import (
	"context"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// repairsEvery is how long it is from one write of repairs to the next.
const repairsEvery = 10 * time.Second

// A repairLog writes to the record what is repaired.
type repairLog struct {
	rollout *rollout
	wake    chan struct{} // gets one when there is something to write
	writing sync.WaitGroup

	mu    sync.Mutex
	fresh []record.Repair
}

// startRepairLog begins to write to the record what is repaired, until ctx ends.
func startRepairLog(ctx context.Context, r *rollout, keeping *keep.Options) *repairLog {
	l := &repairLog{rollout: r, wake: make(chan struct{}, 1)}
	tell := keeping.Tell
	keeping.Tell = func(event keep.Event) {
		if event.Type == keep.Repaired {
			l.take(event)
		}
		if tell != nil {
			tell(event)
		}
	}
	l.writing.Go(func() { l.run(ctx) })
	return l
}

// take takes in a repair.
func (l *repairLog) take(event keep.Event) {
	message := shortened(strings.TrimSuffix(string(event.Action)+"; "+event.Message, "; "))
	l.mu.Lock()
	l.fresh = append(l.fresh, record.Repair{ID: *event.Object, Time: metav1.NewTime(event.Time.Truncate(time.Second)), Message: message})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it is awake already
	}
}

func (l *repairLog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.write(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(repairsEvery):
		}
	}
}

// end writes what is not written yet, once ctx has ended.
func (l *repairLog) end(ctx context.Context) {
	l.writing.Wait()
	l.write(ctx)
}

// write writes what was repaired since the last write, while the lock is held. What can't be written is written with the
// next change of the record.
func (l *repairLog) write(ctx context.Context) {
	l.mu.Lock()
	fresh := l.fresh
	l.fresh = nil
	l.mu.Unlock()
	held, stop := l.rollout.options.Apply.Lock.Requests(ctx)
	defer stop()
	if len(fresh) == 0 || held.Err() != nil {
		return
	}
	_ = l.rollout.journal.Note(held, func(known *record.Record) {
		for _, repair := range fresh {
			known.AddRepair(repair)
		}
	})
}
