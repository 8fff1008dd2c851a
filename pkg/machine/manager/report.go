package manager

import (
	"context"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/pkg/clusteroperator"
)

// newReporter returns what writes the ClusterOperator of the controllers.
func newReporter(connection *rest.Config, m ctrl.Manager, d *clusteroperator.Denials, version string) (*clusteroperator.StatusReporter, error) {
	return clusteroperator.NewReporter(connection, clusteroperator.ReporterOptions{
		Name: programName, Namespace: DefaultNamespace, Version: version, RelatedObjects: relatedObjects, Denials: d,
		Stand: func(ctx context.Context) (clusteroperator.ControllerStanding, error) { return stand(ctx, m.GetCache()) },
	})
}

// stand returns how the controllers stand, from the machines in the cache.
func stand(ctx context.Context, c cache.Cache) (clusteroperator.ControllerStanding, error) {
	informer, err := c.GetInformer(ctx, &machinev1beta1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil || !informer.HasSynced() { // the kind may not be served yet
		return clusteroperator.ControllerStanding{Awaits: "the controllers have not seen all machines yet"}, nil
	}
	var machines machinev1beta1.MachineList
	if err := c.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return clusteroperator.ControllerStanding{}, fmt.Errorf("list machines: %w", err)
	}
	return standing(machines.Items), nil
}
