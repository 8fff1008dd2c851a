package session

import (
	"context"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// repairsEvery is the time from one write of repairs to the next.
const repairsEvery = 10 * time.Second

// A repairLog writes repairs to the record.
type repairLog struct {
	run     *run
	wake    chan struct{} // receives an element when there is something to write
	writing sync.WaitGroup

	mu    sync.Mutex
	fresh []record.Repair
}

// startRepairLog begins to write repairs to the record, until ctx ends.
func (r *run) startRepairLog(ctx context.Context, keeping *keep.Options) *repairLog {
	l := &repairLog{run: r, wake: make(chan struct{}, 1)}
	onEvent := keeping.OnEvent
	keeping.OnEvent = func(event keep.Event) {
		if event.Type == keep.Repaired {
			l.add(event)
		}
		if onEvent != nil {
			onEvent(event)
		}
	}
	l.writing.Go(func() { l.writeLoop(ctx) })
	return l
}

// add adds a repair.
func (l *repairLog) add(event keep.Event) {
	message := shortened(strings.TrimSuffix(string(event.Action)+"; "+event.Message, "; "))
	l.mu.Lock()
	l.fresh = append(l.fresh,
		record.Repair{ID: *event.Object, Time: metav1.NewTime(event.Time.Truncate(time.Second)), Message: message})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it is awake already
	}
}

func (l *repairLog) writeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.write(ctx)
		}
		if !object.Pause(ctx, repairsEvery) {
			return
		}
	}
}

// end writes the remaining repairs, once ctx has ended.
func (l *repairLog) end(ctx context.Context) {
	l.writing.Wait()
	l.write(ctx)
}

// write writes the repairs since the last write, while the lock is held. If that fails, they are written with the next
// change of the record.
func (l *repairLog) write(ctx context.Context) {
	l.mu.Lock()
	fresh := l.fresh
	l.fresh = nil
	l.mu.Unlock()
	held, stop := l.run.options.Apply.Lock.Requests(ctx)
	defer stop()
	if len(fresh) == 0 || held.Err() != nil {
		return
	}
	_ = l.run.journal.Note(held, func(known *record.Record) {
		for _, repair := range fresh {
			known.AddRepair(repair)
		}
	})
}
