package object

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/pkg/payload"
)

// inThisRunFor is how long a failure may come from servers that have not seen yet what
// this run has written.
const inThisRunFor = time.Minute

// atFirstFor is the same for a failure that is most likely one for good: servers see a changed
// definition after a moment.
const atFirstFor = 5 * time.Second

// Heals says whether a failure may go away by itself.
func (k *knowledge) Heals(m *payload.Manifest, err error) bool {
	switch remedyFor(err).heals {
	case byItself:
		return true
	case inThisRun:
		return k.hasWritten(m.GroupVersionKind().Group)
	case atFirst:
		return k.hasWrittenWithin(atFirstFor, m.GroupVersionKind().Group)
	default:
		return false
	}
}

// WantedPause is how long the server wants to be left alone.
func WantedPause(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// hasWritten says whether this run has just written the definition, or the APIService, of
// a group.
func (k *knowledge) hasWritten(group string) bool { return k.hasWrittenWithin(inThisRunFor, group) }

func (k *knowledge) hasWrittenWithin(recently time.Duration, group string) bool {
	written, found := k.written.Load(group)
	return found && time.Since(written.(time.Time)) < recently
}

// IsNoAnswer is for a server that has too much to do, or is not there.
func IsNoAnswer(err error) bool {
	return isConnection(err) || remedyFor(err).reason == ClusterOverloaded
}

// Pause waits, unless the context ends before. It reports whether it has waited.
func Pause(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Backoff is how long to wait after a failure: half a second, then longer and longer.
func Backoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 15 * time.Second}
}
