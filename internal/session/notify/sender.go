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
	Folder    string      // with more receivers, in a file each, which is read at each event; "" for none
	Cluster   string      // the name of the cluster, for the readers of events; "" if it is not known
	Log       logr.Logger // of events that could not be delivered; the zero value drops them
}

// A Sender delivers events to receivers, to each in order, and to one independent of the others. A nil Sender delivers
// none.
type Sender struct {
	options Options
	client  *http.Client
	ctx     context.Context // of the deliveries
	cancel  context.CancelCauseFunc
	sending sync.WaitGroup

	mu      sync.Mutex
	outs    map[Receiver]*outbox
	isEnded bool
}

// NewSender returns a Sender. It delivers events after the end of ctx, too, until Close.
func NewSender(ctx context.Context, o Options) *Sender {
	s := &Sender{options: o, client: newClient(), outs: map[Receiver]*outbox{}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// mostQueued is how many events wait for a receiver. Others are lost.
const mostQueued = 16

// An outbox is the events for one receiver.
type outbox struct {
	queue chan CloudEvent
	lost  int // events that were not delivered
	err   error
}

// Send has an event delivered to all receivers. It does not wait.
func (s *Sender) Send(event Event, server string, now time.Time) {
	if s == nil {
		return
	}
	event.Cluster = s.options.Cluster
	document := newCloudEvent(event, server, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, receiver := range s.receivers() {
		if s.isEnded {
			return
		}
		out := s.outs[receiver]
		if out == nil {
			out = &outbox{queue: make(chan CloudEvent, mostQueued)}
			s.outs[receiver] = out
			s.sending.Go(func() { s.run(receiver, out) })
		}
		select {
		case out.queue <- document:
		default:
			s.lose(receiver, out, errors.New("too many events wait for it"))
		}
	}
}

// receivers returns the receivers of the options and those of the folder.
func (s *Sender) receivers() []Receiver {
	if s.options.Folder == "" {
		return s.options.Receivers
	}
	found, err := ReadFolder(s.options.Folder)
	if err != nil {
		s.options.Log.Info("not all receivers of notifications are known", "reason", err.Error())
	}
	return slices.Concat(s.options.Receivers, found)
}

// run delivers the events for a receiver.
func (s *Sender) run(receiver Receiver, out *outbox) {
	for event := range out.queue {
		if err := receiver.deliver(s.ctx, s.client, event); err != nil {
			s.mu.Lock()
			s.lose(receiver, out, err)
			s.mu.Unlock()
		}
	}
}

// lose notes that an event could not be delivered. The caller holds the lock.
func (s *Sender) lose(receiver Receiver, out *outbox, cause error) {
	out.lost, out.err = out.lost+1, cause
	s.options.Log.Info("an event could not be delivered", "receiver", receiver.String(), "reason", cause.Error())
}

// errClosed is the cause of the end of deliveries.
var errClosed = errors.New("it has not taken the event in time")

// Close waits until all events are delivered, for up to patience. It returns an error that names the receivers which
// have not got all events.
func (s *Sender) Close(patience time.Duration) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.isEnded = true
	for _, out := range s.outs {
		close(out.queue)
	}
	s.mu.Unlock()
	stop := time.AfterFunc(patience, func() { s.cancel(errClosed) })
	s.sending.Wait()
	stop.Stop()
	s.cancel(nil)
	var lost []string
	for receiver, out := range s.outs {
		if out.lost > 0 {
			lost = append(lost, fmt.Sprintf("%s did not get %s: %s", receiver,
				printable.Count(out.lost, "notification"), printable.Line(out.err.Error())))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	return errors.New(strings.Join(lost, "; "))
}
