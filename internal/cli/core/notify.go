package core

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/session/notify"
)

// NotifyFlags are the flags for receivers of notifications about a release.
type NotifyFlags struct {
	urlsAndCommands []string // values of the flag, unchanged
	receivers       []notify.Receiver
	sender          *notify.Sender
}

// AddNotify adds --notify.
func AddNotify(command *cobra.Command, f *NotifyFlags) {
	command.Flags().StringArrayVar(&f.urlsAndCommands, "notify", nil,
		"send a CloudEvent when the release has begun, completed or failed, or is blocked: to an http or https "+
			"`URL`, to the URL of an incoming webhook of Slack after slack+, or to the standard input of a shell "+
			"command; may be repeated")
}

// Check parses the flags.
func (f *NotifyFlags) Check() error {
	for _, urlOrCommand := range f.urlsAndCommands {
		receiver, err := notify.ParseReceiver(urlOrCommand)
		if err != nil {
			return Misusef("--notify: %w", err)
		}
		f.receivers = append(f.receivers, receiver)
	}
	return nil
}

// Sender returns a sender of notifications to the receivers that Check has parsed; nil if there are none.
func (f *NotifyFlags) Sender(ctx context.Context, clusterFlags *ClusterFlags) *notify.Sender {
	if len(f.receivers) > 0 {
		f.sender = notify.NewSender(ctx,
			notify.Options{
				Receivers: f.receivers,
				Cluster:   clusterFlags.location.ClusterName(),
				Log:       klog.FromContext(ctx).V(1),
			})
	}
	return f.sender
}

// notifyPatience limits the wait of a command for receivers at its end.
const notifyPatience = 15 * time.Second

// Close waits until all notifications are delivered, and prints a line about those that were not.
func (f *NotifyFlags) Close(progress io.Writer) {
	if err := f.sender.Close(notifyPatience); err != nil {
		fmt.Fprintln(progress, err)
	}
}
