package realnode

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrNoCRI is the error of a container runtime that runs without its CRI service, which the kubelet needs.
var ErrNoCRI = errors.New("the CRI service is not loaded")

// AwaitCRI waits until the container runtime of the node answers requests of a kubelet.
func (n KubeletNode) AwaitCRI(ctx context.Context) error {
	const interval = 20 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		connection, err := grpc.NewClient("unix://"+n.Socket(),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return false, err
		}
		defer connection.Close()
		// No field of the messages is needed, so the empty message stands for both.
		err = connection.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) == codes.Unimplemented {
			return false, ErrNoCRI
		}
		return err == nil, nil
	})
}
