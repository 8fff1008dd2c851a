package manager_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/runlevel/runlevel/internal/program/leader"
)

// TestBusyControllersEnd ends controllers whose queues are full. A queue that keeps a worker keeps the process, until
// it is killed, and the Lease with it.
func TestBusyControllersEnd(t *testing.T) {
	t.Parallel()
	for range 50 {
		endBusyController(t)
	}
}

// endBusyController ends a controller when it has reconciled a few hundred times, and waits for its end.
func endBusyController(t *testing.T) {
	t.Helper()
	m, err := ctrl.NewManager(&rest.Config{},
		ctrl.Options{Controller: leader.ControllerConfig(), Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	passes := make(chan struct{})
	busy, err := controller.New("busy", m, controller.Options{
		MaxConcurrentReconciles: 20,
		Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			select {
			case passes <- struct{}{}:
			case <-ctx.Done():
			}
			return reconcile.Result{}, nil
		}),
	})
	if err == nil {
		err = busy.Watch(source.Func(func(ctx context.Context,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go func() {
				for i := 0; ctx.Err() == nil; i++ {
					queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint(i)}})
				}
			}()
			return nil
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- busy.Start(ctx) }()
	for range 300 {
		<-passes
	}
	end()
	select {
	case err = <-ended:
	case <-time.After(patience):
		err = errors.New("it is still running")
	}
	if err != nil {
		t.Fatalf("stop the controller: %v", err)
	}
}
