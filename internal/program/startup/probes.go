package startup

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Probes are the checks of /healthz and of /readyz, by name.
type Probes struct {
	Alive, Ready map[string]healthz.Checker
}

// Serve serves the probes at an address, unless it is empty, until ctx ends. It needs no manager: a program that waits
// for the API server has none yet, and is alive.
func (p Probes) Serve(ctx context.Context, address string) error {
	if address == "" {
		<-ctx.Done()
		return nil
	}
	paths := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": p.Alive, "/readyz": p.Ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		paths.Handle(path, handler)
		paths.Handle(path+"/", handler)
	}
	server := &manager.Server{
		Name: "health probe", ShutdownTimeout: ptr.To(time.Second),
		Server: &http.Server{
			Addr:              address,
			Handler:           paths,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    1 << 16,
		},
	}
	return server.Start(ctx)
}

// AwaitServer waits until the API server is ready. Controllers can't be set up before, and a program that exits because
// the server is not ready would be restarted after longer and longer pauses. It returns early if ctx ends.
func AwaitServer(ctx context.Context, connection *rest.Config) error {
	connection = rest.CopyConfig(connection)
	connection.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return err
	}
	isReported := false
	// fails only at the end of ctx
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
		// for users without the right; and at first for all, until the server has loaded its roles
		if err == nil || apierrors.IsForbidden(err) {
			_, err = client.Discovery().ServerGroups()
		}
		if err == nil || apierrors.IsUnauthorized(err) { // Unauthorized is a response, too
			return true, nil
		}
		if !isReported && ctx.Err() == nil {
			ctrl.Log.Info("waiting for the API server", "reason", err.Error())
			isReported = true
		}
		return false, nil
	})
	return nil
}
