package realnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
)

// errNoCRI is the error of a container runtime that runs without its CRI service, which the kubelet needs.
var errNoCRI = errors.New("the CRI service is not loaded")

// awaitCRI waits until the container runtime of the node answers requests of a kubelet.
func (n node) awaitCRI(ctx context.Context, runtime *childprocess.Component) error {
	const interval = 20 * time.Millisecond
	err := wait.PollUntilContextCancel(ctx, interval, true, n.isCRIReady)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoCRI):
		return explainMissingCRI(fmt.Errorf("start the container runtime of %s: %w", n.name(), err), runtime)
	default:
		return runtime.WithLog(fmt.Errorf("the container runtime of %s does not answer: %w", n.name(), err))
	}
}

// isCRIReady sends one request to the container runtime.
func (n node) isCRIReady(ctx context.Context) (bool, error) {
	connection, err := grpc.NewClient("unix://"+n.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer connection.Close()
	// No field of the messages is needed, so the empty message stands for both.
	err = connection.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) == codes.Unimplemented {
		return false, errNoCRI
	}
	return err == nil, nil
}

// explainMissingCRI adds to an error the reason why containerd has not loaded its CRI service: the errors of the
// service's plugins in the log.
func explainMissingCRI(err error, runtime *childprocess.Component) error {
	lines := runtime.LogLines(func(line string) bool {
		return strings.Contains(line, "failed to load plugin") && strings.Contains(line, ".cri")
	})
	advice := ""
	if strings.Contains(lines, "fsnotify watcher: too many open files") {
		advice = `raise the limit of inotify instances, as in "sysctl fs.inotify.max_user_instances=1024"; `
	}
	return fmt.Errorf("%w: %sthe error of %s (whole log: %s):\n%s", err, advice, runtime.Name, runtime.Log, lines)
}
