package leader

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
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

// syncedWithin is how long a readiness probe waits for caches.
const syncedWithin = time.Second

// probes answer the kubelet. They do so before there is a manager: a process that waits for the API server lives.
type probes struct {
	lease   *ElectionLease
	manager atomic.Pointer[ctrl.Manager] // nil until it is set up
}

// serve answers at /healthz and /readyz until ctx ends.
func (p *probes) serve(ctx context.Context, address string) error {
	if address == "" {
		<-ctx.Done()
		return nil
	}
	paths := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"election": p.lease.checkElection},
		"/readyz":  {"caches": p.checkCaches},
	} {
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

// checkCaches fails until the controllers have seen all objects. Those of a replica that waits for the Lease have not
// begun: it is ready once it can take over.
func (p *probes) checkCaches(request *http.Request) error {
	m := p.manager.Load()
	if m == nil {
		return errors.New("the API server did not answer yet")
	}
	ctx, cancel := context.WithTimeout(request.Context(), syncedWithin)
	defer cancel()
	if !(*m).GetCache().WaitForCacheSync(ctx) {
		return errors.New("not all objects were listed yet")
	}
	return nil
}

// awaitServer waits until the API server is ready. Controllers can't be set up before, and a program that ended for want of an
// answer would be started again after longer and longer pauses. It returns early if ctx ends.
func awaitServer(ctx context.Context, connection *rest.Config) error {
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
