package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Options configure a Sender.
type Options struct {
	Receivers []Receiver
	Folder    string      // files of more receivers, one each, which Send reads for each event; "" for none
	Cluster   string      // the name of the cluster, for the readers of events; "" if the name is unknown
	Log       logr.Logger // logs events that could not be delivered; the zero value drops these messages
}

// A Sender delivers events in order to each receiver, independently of the others. A nil Sender delivers no events.
type Sender struct {
	options Options
	client  *http.Client
	ctx     context.Context // context of the deliveries
	cancel  context.CancelCauseFunc
	sending sync.WaitGroup

	mu       sync.Mutex // guards the following fields, and each outbox
	outboxes map[Receiver]*outbox
	isEnded  bool
}

// NewSender returns a Sender, which delivers events until Close, also after the end of ctx.
func NewSender(ctx context.Context, o Options) *Sender {
	s := &Sender{options: o, client: newClient(), outboxes: map[Receiver]*outbox{}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// maxQueued limits the events that wait for one receiver. Send drops the others.
const maxQueued = 16

// An outbox contains the events for one receiver.
type outbox struct {
	queue chan CloudEvent
	lost  int // events that were not delivered
	err   error
}

// Send queues an event for all receivers, and does not wait for its delivery.
func (s *Sender) Send(event Event, server string, now time.Time) {
	if s == nil {
		return
	}
	event.Cluster = s.options.Cluster
	document := newCloudEvent(event, server, now)
	receivers := s.receivers() // reads files, so the lock is not held yet
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEnded {
		return
	}
	for _, receiver := range receivers {
		box := s.outboxes[receiver]
		if box == nil {
			box = &outbox{queue: make(chan CloudEvent, maxQueued)}
			s.outboxes[receiver] = box
			s.sending.Go(func() { s.run(receiver, box) })
		}
		select {
		case box.queue <- document:
		default:
			s.recordLoss(receiver, box, errors.New("too many events wait for the receiver"))
		}
	}
}

// receivers returns the receivers of the options and those of the folder.
func (s *Sender) receivers() []Receiver {
	if s.options.Folder == "" {
		return s.options.Receivers
	}
	receivers, err := ReadFolder(s.options.Folder)
	if err != nil {
		s.options.Log.Info("not all receivers of notifications are known", "reason", err.Error())
	}
	return slices.Concat(s.options.Receivers, receivers)
}

// run delivers the events for a receiver.
func (s *Sender) run(receiver Receiver, box *outbox) {
	for event := range box.queue {
		if err := receiver.deliver(s.ctx, s.client, event); err != nil {
			s.mu.Lock()
			s.recordLoss(receiver, box, err)
			s.mu.Unlock()
		}
	}
}

// recordLoss records and logs that an event could not be delivered. The caller holds the lock.
func (s *Sender) recordLoss(receiver Receiver, box *outbox, cause error) {
	box.lost, box.err = box.lost+1, cause
	s.options.Log.Info("an event could not be delivered", "receiver", receiver.String(), "reason", cause.Error())
}

// errClosed is the cause of the end of deliveries.
var errClosed = errors.New("the receiver has not accepted the event in time")

// Close waits until all events are delivered, for up to patience. Its error names the receivers that missed events.
func (s *Sender) Close(patience time.Duration) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.isEnded = true
	for _, box := range s.outboxes {
		close(box.queue)
	}
	s.mu.Unlock()
	stop := time.AfterFunc(patience, func() { s.cancel(errClosed) })
	s.sending.Wait()
	stop.Stop()
	s.cancel(nil)
	var lost []string
	for receiver, box := range s.outboxes {
		if box.lost > 0 {
			lost = append(lost, fmt.Sprintf("%s did not get %s: %s", receiver,
				printable.Count(box.lost, "notification"), printable.Line(box.err.Error())))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	return errors.New(strings.Join(lost, "; "))
}
