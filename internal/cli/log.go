package cli

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// logging gives a context the log, which says nothing of what fails because the context ends:
// after Ctrl-C that is every request that is on its way, and no fault.
func logging(ctx context.Context, log klog.Logger) context.Context {
	const ourself = 1 // the call in between, which is not where the line comes from
	return klog.NewContext(ctx, logr.New(untilDone{log.WithCallDepth(ourself).GetSink(), ctx.Done()}))
}

// An untilDone is a log without errors once something is done.
type untilDone struct {
	logr.LogSink
	done <-chan struct{}
}

func (u untilDone) Error(err error, message string, keysAndValues ...any) {
	select {
	case <-u.done:
	default:
		u.LogSink.Error(err, message, keysAndValues...)
	}
}

func (u untilDone) Info(level int, message string, keysAndValues ...any) {
	u.LogSink.Info(level, message, keysAndValues...)
}

func (u untilDone) WithValues(keysAndValues ...any) logr.LogSink {
	return untilDone{u.LogSink.WithValues(keysAndValues...), u.done}
}

func (u untilDone) WithName(name string) logr.LogSink {
	return untilDone{u.LogSink.WithName(name), u.done}
}
