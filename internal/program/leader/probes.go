package leader

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/runlevel/runlevel/internal/program/startup"
)

// syncedWithin is how long a readiness probe waits for caches.
const syncedWithin = time.Second

// checks are the probes of a replica. They are served before the manager exists.
type checks struct {
	lease   *ElectionLease
	manager atomic.Pointer[ctrl.Manager] // nil until it is set up
}

// probes returns the checks by their names.
func (c *checks) probes() startup.Probes {
	return startup.Probes{
		Alive: map[string]healthz.Checker{"election": c.lease.checkElection},
		Ready: map[string]healthz.Checker{"caches": c.checkCaches},
	}
}

// checkCaches fails until the caches are synced. A replica that waits for the Lease has not started its controllers: it is
// ready once it can take over.
func (c *checks) checkCaches(request *http.Request) error {
	m := c.manager.Load()
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
