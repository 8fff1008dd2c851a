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

// Probes are what the kubelet is answered with: the checks of /healthz and of /readyz, by name.
type Probes struct {
	Alive, Ready map[string]healthz.Checker
}

// Serve answers at an address until ctx ends; an empty one is none. It needs no manager: a program that waits for the API
// server has none yet, and is alive.
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
		Server: &http.Server{Addr: address, Handler: paths, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16},
	}
	return server.Start(ctx)
}

// AwaitServer waits until the API server is ready. Controllers can't be set up before, and a program that ended for want of an
// answer would be started again after longer and longer pauses. It returns early if ctx ends.
func AwaitServer(ctx context.Context, connection *rest.Config) error {
	connection = rest.CopyConfig(connection)
	connection.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return err
	}
	isTold := false
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) { // fails only at the end of ctx
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
		if err == nil || apierrors.IsForbidden(err) { // to those without the right to ask; and at first to all, until the server has read its roles
			_, err = client.Discovery().ServerGroups()
		}
		if err == nil || apierrors.IsUnauthorized(err) { // which is an answer
			return true, nil
		}
		if !isTold && ctx.Err() == nil {
			ctrl.Log.Info("waiting for the API server", "reason", err.Error())
			isTold = true
		}
		return false, nil
	})
	return nil
}
