package manager

import (
	"context"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/pkg/infra/external"
	"github.com/runlevel/runlevel/pkg/infra/kwok"
	"github.com/runlevel/runlevel/pkg/machine/capi"
	"github.com/runlevel/runlevel/pkg/machine/capi/machinedeployment"
	clustermachineset "github.com/runlevel/runlevel/pkg/machine/capi/machineset"
	"github.com/runlevel/runlevel/pkg/machine/openshift"
	"github.com/runlevel/runlevel/pkg/machine/openshift/healthcheck"
	"github.com/runlevel/runlevel/pkg/machine/openshift/machineset"
	"github.com/runlevel/runlevel/pkg/machine/openshift/nodelink"
	"github.com/runlevel/runlevel/pkg/runtimehook"
	"github.com/runlevel/runlevel/pkg/runtimehook/extensionconfig"
)

// setUp adds a controller to a manager.
type setUp func(context.Context, ctrl.Manager) error

// addControllers adds all controllers to a manager.
func addControllers(ctx context.Context, m ctrl.Manager, o Options) error {
	all := []setUp{
		func(_ context.Context, m ctrl.Manager) error { return kwok.SetupWithManager(m) },
		func(_ context.Context, m ctrl.Manager) error { return external.SetupWithManager(m) },
	}
	if slices.Contains(o.Dialects, OpenShift) {
		all = append(all, openshiftControllers(o)...)
	}
	if slices.Contains(o.Dialects, ClusterAPI) {
		all = append(all, clusterAPIControllers(m, o)...)
	}
	for _, add := range all {
		if err := add(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func openshiftControllers(o Options) []setUp {
	return []setUp{
		(&nodelink.NodeLinkReconciler{}).SetupWithManager,
		(&healthcheck.MachineHealthCheckReconciler{}).SetupWithManager,
		func(ctx context.Context, m ctrl.Manager) error {
			return machineset.SetupWithManager(ctx, m, machineset.Options{})
		},
		func(ctx context.Context, m ctrl.Manager) error {
			return openshift.SetupWithManager(ctx, m, openshift.MachineOptions{Concurrency: o.Concurrency})
		},
	}
}

func clusterAPIControllers(m ctrl.Manager, o Options) []setUp {
	hooks := runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader())
	return []setUp{
		func(ctx context.Context, m ctrl.Manager) error {
			return capi.SetupWithManager(ctx, m, capi.ClusterAPIOptions{Concurrency: o.Concurrency, Hooks: hooks})
		},
		func(_ context.Context, m ctrl.Manager) error {
			return clustermachineset.SetupWithManager(m, clustermachineset.ClusterMachineSetOptions{})
		},
		func(_ context.Context, m ctrl.Manager) error { return machinedeployment.SetupWithManager(m, hooks) },
		func(_ context.Context, m ctrl.Manager) error { return kwok.SetupConfigsWithManager(m) },
		func(_ context.Context, m ctrl.Manager) error {
			return extensionconfig.SetupWithManager(m, extensionconfig.DiscoveryOptions{})
		},
	}
}
