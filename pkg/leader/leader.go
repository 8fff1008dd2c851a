// Package leader elects one of several replicas of a controller, by a Lease, and keeps one that has lost it from writing: a
// replica that was asleep, while another one took over, finds out too late from the election itself.
//
// It is for programs of controller-runtime. The lock of a release, which outlives its process, is package lock's.
//
// New is the call to start from.
package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Options say which Lease elects the leader. All have to be set.
type Options struct {
	Namespace string
	Name      string // of the Lease
	Replica   string // the holder, which is given a suffix: two processes of one name are two replicas
	Duration  time.Duration
}

// renewDeadline is how long a leader tries to renew its Lease until it gives up: less than another one waits.
func (o Options) renewDeadline() time.Duration { return o.Duration * 2 / 3 }

// An ElectionLease is the lock of leader election. It notes when it was last renewed.
type ElectionLease struct {
	resourcelock.Interface
	options Options
	renewed atomic.Int64 // in nanoseconds since 1970, before the request was sent; 0 if it is not held
	asked   atomic.Int64 // when a request was sent last; 0 if none was
}

// New returns a Lease that is not held yet.
func New(connection *rest.Config, o Options) (*ElectionLease, error) {
	connection = rest.CopyConfig(connection)
	connection.Timeout = o.renewDeadline() / 2
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, err
	}
	return &ElectionLease{options: o, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Replica + "_" + rand.String(8)},
	}}, nil
}

// Configure has a manager run its controllers while it holds the Lease.
func (l *ElectionLease) Configure(o *ctrl.Options) {
	o.LeaderElection = true
	o.LeaderElectionID = l.options.Name
	o.LeaderElectionResourceLockInterface = l
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration = &l.options.Duration
	o.RenewDeadline = ptr.To(l.options.renewDeadline())
	o.RetryPeriod = ptr.To(l.options.Duration / 10)
}

// Get reads the Lease.
func (l *ElectionLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.asked.Store(time.Now().UnixNano())
	return l.Interface.Get(ctx)
}

// CheckElection is a probe. It fails when the election hangs: a leader and a replica that waits ask for the Lease all the
// time, whether there is an answer or not.
func (l *ElectionLease) CheckElection(*http.Request) error {
	asked := l.asked.Load()
	silent := time.Since(time.Unix(0, asked))
	if asked == 0 || silent < 4*l.options.renewDeadline() {
		return nil
	}
	return fmt.Errorf("no request for the Lease was sent for %s", silent.Round(time.Second))
}

// Create makes the Lease.
func (l *ElectionLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update acquires, renews or releases the Lease.
func (l *ElectionLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *ElectionLease) note(record resourcelock.LeaderElectionRecord, send func() error) error {
	begun := time.Now().UnixNano()
	l.asked.Store(begun)
	err := send()
	switch {
	case err != nil:
	case record.HolderIdentity == l.Identity():
		l.renewed.Store(begun)
	default:
		l.renewed.Store(0)
	}
	return err
}

// IsHeld returns whether the Lease was renewed so lately that no other replica can have taken it.
func (l *ElectionLease) IsHeld() bool {
	return time.Since(time.Unix(0, l.renewed.Load())) < l.options.renewDeadline()
}

// ErrFenced is why nothing is written without the Lease.
var ErrFenced = errors.New("the Lease was not renewed in time, so that another replica may be at work: nothing is written")

// Fence returns a connection that writes only while the Lease is held.
func (l *ElectionLease) Fence(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet && !l.IsHeld() {
				return nil, ErrFenced
			}
			return next.RoundTrip(request)
		})
	})
	return connection
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
