package cli

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// withLogger adds a logger to a context. It logs no errors once the context has ended: after
// Ctrl-C, every request that was sent fails.
func withLogger(ctx context.Context, log klog.Logger) context.Context {
	const wrapper = 1 // skips the frame of untilDone
	return klog.NewContext(ctx, logr.New(untilDone{log.WithCallDepth(wrapper).GetSink(), ctx.Done()}))
}

// An untilDone is a log that drops errors once done is closed.
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
