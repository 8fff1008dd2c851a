// Package lock is the lock of a release: a Lease that one process at a time holds, kept by client-go's leader election.
// A process that holds it may write the objects of the release.
//
// The lock is a fence, too: a process that was asleep while another one held the Lease finds out before its next write
// (Hold.Check). The record of the release is package record's.
//
// Start with Lock.Acquire, in election.go.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// The reasons of this package's failures.
const (
	ReasonHeld   = "ReleaseLocked"     // another process holds the lock
	ReasonLost   = "ReleaseLockLost"   // this process no longer holds the lock
	ReasonDenied = "ReleaseLockDenied" // rights are missing
	ReasonFailed = "ReleaseLockFailed" // the server gave no answer, or refused a request
)

// Label is on the Lease and on the record of each release. Its value is the release's name. The objects of
// a release have another label, so that no tool takes Lease and record for a part of the release.
const Label = "runlevel.dev/record"

// A Lock is the lock of one release.
type Lock struct {
	Client    kubernetes.Interface
	Namespace string
	Release   string
	// Now returns the time, preferably of the server's clock. Nil means this machine's clock.
	Now func() time.Time
}

// New returns the lock of a release whose record is in a namespace, by the clock of the API server.
func New(c *cluster.Cluster, namespace, release string) Lock {
	return Lock{Client: c.Client, Namespace: namespace, Release: release, Now: c.Now}
}

// Name returns the name of a release's Lease, and of its record.
func Name(release string) string { return "runlevel-release-" + release }

// ReleaseOf returns the release of the name of a Lease or record.
func ReleaseOf(name string) string { return strings.TrimPrefix(name, Name("")) }

// CheckRelease returns an error if the name of a release is not valid in names and labels of objects.
func CheckRelease(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("release name %q: use up to 63 lower-case letters, digits and dashes, with a letter or "+
			"digit at both ends", name)
	}
	return nil
}

// Options configure the acquisition of a lock.
type Options struct {
	// Holder is the name of this process, unique at any time. The default is NewHolder's.
	Holder string
	// Container is the beginning of the names of all processes of this process's container, of which one runs after
	// the other. The lock of an earlier process is free, since that process has ended. Container is empty if it is not
	// known.
	Container string
	// Keeps marks the holder as a process that keeps the release in place, and so may hold the lock for long.
	Keeps bool
	// Duration is the time that the lock outlives a dead holder, in whole seconds. Zero means half a minute.
	Duration time.Duration
	// Wait waits until the holder releases the lock. Otherwise Acquire returns a HeldError.
	Wait bool
	// OnHeld is called once if another process holds the lock, before Acquire waits until the lock is free, or
	// until the holder has renewed it and so is alive.
	OnHeld func(Holder)
}

// keeping is the suffix of a holder that keeps the release in place.
const keeping = " (watching)"

// KeeperEnd describes how a user ends a process that keeps a release in place, and so holds the lock.
const KeeperEnd = `stopping it ("apply --watch" ends with Ctrl-C); an operator applies what spec.desiredUpdate of the ClusterVersion requests`

// withDefaults returns options with defaults for empty fields.
func (o Options) withDefaults() Options {
	o.Holder = cmp.Or(o.Holder, NewHolder(o.Container))
	if o.Keeps {
		o.Holder += keeping
	}
	if o.Duration <= 0 {
		o.Duration = 30 * time.Second
	}
	if rest := o.Duration % time.Second; rest > 0 { // a Lease counts seconds
		o.Duration += time.Second - rest
	}
	if o.OnHeld == nil {
		o.OnHeld = func(Holder) {}
	}
	return o
}

// NewHolder returns a name for a holder: its container or, without one, user, host and process. A random part makes it
// unique, because in containers every user is root, and every process has the number 1.
func NewHolder(container string) string {
	if container != "" {
		return container + "_" + rand.String(5)
	}
	userName, hostName := os.Getenv("USER"), "unknown"
	if current, err := user.Current(); err == nil {
		userName = current.Username
	}
	if name, err := os.Hostname(); err == nil {
		hostName = name
	}
	return fmt.Sprintf("%s@%s:%d-%s", userName, hostName, os.Getpid(), rand.String(5))
}

// IsEarlier reports whether the holder of a Lease is an earlier process of a container than holder self.
func IsEarlier(holder, container, self string) bool {
	return container != "" && holder != self && strings.HasPrefix(holder, container+"_")
}

// deadline returns the time after which a holder gives up to renew the lock. The deadline and one retry leave at least
// a fifth of the duration to end the work before another process may begin.
func (o Options) deadline() time.Duration { return o.Duration * 2 / 3 }

// retry returns the interval at which a holder renews the lock, and other processes read it.
func (o Options) retry() time.Duration { return o.Duration / 10 }

// A Holder is the process that holds a lock.
type Holder struct {
	Name     string
	Since    time.Time
	Renewed  time.Time     // the time of the last renewal
	Duration time.Duration // the time that the lock outlives its last renewal
}

// IsDead reports whether the holder has not renewed the lock in time.
func (h Holder) IsDead(now time.Time) bool { return now.Sub(h.Renewed) > h.Duration }

// Keeps reports whether the holder keeps the release in place.
func (h Holder) Keeps() bool { return strings.HasSuffix(h.Name, keeping) }

func holderOf(r *resourcelock.LeaderElectionRecord) Holder {
	return Holder{
		Name:     r.HolderIdentity,
		Since:    r.AcquireTime.Time,
		Renewed:  r.RenewTime.Time,
		Duration: time.Duration(r.LeaseDurationSeconds) * time.Second,
	}
}

// ErrLost is wrapped by the error of a lost lock, which is also the cause for the end of a Hold's context.
var ErrLost = &reason.Error{Reason: ReasonLost, Message: "the lock is lost"}

// A takenError is the error of a lock that was lost to another process.
type takenError struct{ error }

func (t takenError) Unwrap() error { return t.error }

// IsTaken reports whether a lock was lost to another process, and not because the server did not answer for
// too long.
func IsTaken(err error) bool { return errors.As(err, new(takenError)) }

// A HeldError is returned when another process holds the lock, and is alive.
type HeldError struct {
	Release string
	Holder  Holder
	Age     time.Duration // since the holder has acquired the lock
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("release %q is locked by %s since %s (%s ago)",
		e.Release, printable.Line(e.Holder.Name), e.Holder.Since.UTC().Format(time.RFC3339),
		duration.HumanDuration(max(0, e.Age)))
}

// Unwrap returns an error with the reason.
func (e *HeldError) Unwrap() error {
	return &reason.Error{Reason: ReasonHeld, Message: "another process holds the lock"}
}

// Holder returns the process that holds the lock, dead or alive; nil if the lock is free.
func (l Lock) Holder(ctx context.Context) (*Holder, error) {
	last, err := l.Last(ctx)
	if last == nil || last.Name == "" {
		return nil, err
	}
	return last, nil
}

// Last is like Holder. If the lock was released, the holder has no name, and Renewed is the time of the release. It
// returns nil if the lock was never acquired.
func (l Lock) Last(ctx context.Context) (*Holder, error) {
	if err := CheckRelease(l.Release); err != nil {
		return nil, err
	}
	found, err := l.Client.CoordinationV1().Leases(l.Namespace).Get(ctx, Name(l.Release), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, l.leaseFailure("get", err)
	}
	holder := holderOf(resourcelock.LeaseSpecToLeaderElectionRecord(&found.Spec))
	return &holder, nil
}

func (l Lock) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// leaseFailure returns the error of a request for the Lease.
func (l Lock) leaseFailure(verb string, err error) error {
	return l.failure(fmt.Sprintf("%s leases.coordination.k8s.io %s in namespace %q", verb, Name(l.Release),
		l.Namespace), err)
}

// failure returns the error of a request, with the missing right.
func (l Lock) failure(request string, err error) error {
	if errors.As(err, new(*reason.Error)) {
		return err
	}
	cause := ReasonFailed
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		cause = ReasonDenied
	}
	return &reason.Error{
		Reason:  cause,
		Message: fmt.Sprintf("release %q: %s", l.Release, request),
		Err:     printable.Error(err),
	}
}
