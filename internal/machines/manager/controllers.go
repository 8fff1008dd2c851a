package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/machines/capi"
	clustercontrolplane "github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	clusterhealthcheck "github.com/runlevel/runlevel/internal/machines/capi/healthcheck"
	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment"
	clustermachineset "github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/machines/openshift/healthcheck"
	"github.com/runlevel/runlevel/internal/machines/openshift/machineset"
	"github.com/runlevel/runlevel/internal/machines/openshift/nodelink"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/machines/runtimehook/extensionconfig"
)

// addControllers adds all controllers to a manager.
func addControllers(ctx context.Context, m ctrl.Manager, o Options) error {
	err := errors.Join(kwok.SetupWithManager(m), external.SetupWithManager(m))
	if len(o.Dialects) == 0 || slices.Contains(o.Dialects, OpenShift) {
		err = errors.Join(err,
			nodelink.SetupWithManager(ctx, m),
			healthcheck.SetupWithManager(ctx, m),
			machineset.SetupWithManager(ctx, m),
			controlplane.SetupWithManager(m),
			openshift.SetupWithManager(ctx, m, openshift.Options{Concurrency: o.Concurrency}),
		)
	}
	if slices.Contains(o.Dialects, ClusterAPI) {
		hooks := runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader())
		err = errors.Join(err,
			capi.SetupWithManager(ctx, m, capi.Options{Concurrency: o.Concurrency, Hooks: hooks}),
			clustermachineset.SetupWithManager(m, clustermachineset.Options{}),
			machinedeployment.SetupWithManager(m, hooks),
			clusterhealthcheck.SetupWithManager(ctx, m),
			kwok.SetupConfigsWithManager(m),
			extensionconfig.SetupWithManager(m, extensionconfig.Options{}),
		)
	}
	if hasRunlevelControlPlanes(o.Dialects) {
		err = errors.Join(err, clustercontrolplane.SetupWithManager(m,
			runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader())))
	}
	return err
}

// A Dialect is an API that has Machines, or a part of one.
type Dialect string

// The dialects. Cluster API's is not the default: if its own core controller runs, both would write the same Machines.
const (
	OpenShift  Dialect = "openshift"   // machine.openshift.io
	ClusterAPI Dialect = "cluster-api" // cluster.x-k8s.io
	// ControlPlanes is the part of Cluster API that its own core does not have: RunlevelControlPlanes, beside the
	// core's controllers.
	ControlPlanes Dialect = "cluster-api-control-planes"
)

// hasRunlevelControlPlanes reports whether RunlevelControlPlanes are reconciled.
func hasRunlevelControlPlanes(dialects []Dialect) bool {
	return slices.Contains(dialects, ClusterAPI) || slices.Contains(dialects, ControlPlanes)
}

// checkDialects returns an error if a dialect is unknown.
func checkDialects(dialects []Dialect) error {
	for _, dialect := range dialects {
		if dialect != OpenShift && dialect != ClusterAPI && dialect != ControlPlanes {
			return fmt.Errorf("unknown dialect %q: write %s, %s or %s, or several with commas between them",
				dialect, OpenShift, ClusterAPI, ControlPlanes)
		}
	}
	return nil
}
