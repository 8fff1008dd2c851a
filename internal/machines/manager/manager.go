// Package manager runs the machine controllers in one process: with leader election, probes, metrics, and a
// ClusterOperator that reports their standing. It decides nothing about machines: the controllers do.
//
// Start with Run. controllers.go has the list of controllers, metrics.go the metrics, and conditions.go the conditions
// of the ClusterOperator.
package manager

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
	"github.com/runlevel/runlevel/internal/program/leader"
)

// DefaultNamespace is the namespace of the controller and its Lease.
const DefaultNamespace = "runlevel-machines"

// programName is the name of the Lease, of the ClusterOperator and of the service account.
const programName = "machine-controller"

// Options configure the controllers. The zero value works.
type Options struct {
	leader.Options
	// Concurrency limits how many Machines are reconciled at once; 0 means 20.
	Concurrency int
	// Dialects are the APIs whose Machines are reconciled; OpenShift's alone if there are none.
	Dialects []Dialect
	// Namespaces are those whose objects are reconciled; all if there are none.
	Namespaces []string
}

// Run runs the controllers until ctx ends. It ends with an error when the Lease is lost.
func Run(ctx context.Context, connection *rest.Config, o Options) error {
	if err := checkDialects(o.Dialects); err != nil {
		return err
	}
	scheme, err := NewScheme()
	if err != nil {
		return err
	}
	namespaces := map[string]cache.Config{}
	for _, namespace := range o.Namespaces {
		namespaces[namespace] = cache.Config{}
	}
	program := leader.Program{
		Name: programName, Namespace: DefaultNamespace,
		Manager: ctrl.Options{
			Scheme: scheme,
			Cache: cache.Options{
				ByObject:          map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: trimNode}},
				DefaultNamespaces: namespaces,
			},
			// Pods would be most of the cache. Draining lists the pods of one node.
			Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}}}},
		},
		SetUp: func(ctx context.Context, m ctrl.Manager, _ func() bool) (leader.Controllers, error) {
			if err := addControllers(ctx, m, o); err != nil {
				return leader.Controllers{}, fmt.Errorf("add the controllers: %w", err)
			}
			return leader.Controllers{
				Metrics: leader.Metrics{
					Leads: "runlevel_machine_leader",
					Collect: func(metrics chan<- prometheus.Metric) {
						collect(ctx, m.GetClient(), o.Dialects, metrics)
					},
				},
				RelatedObjects: relatedObjects(o.Dialects),
				Awaited:        &machinev1beta1.Machine{}, Awaits: "the controllers have not seen all machines yet",
				Status: func(ctx context.Context) (clusteroperator.Status, error) {
					return readStatus(ctx, m.GetClient(), o.Dialects)
				},
			}, nil
		},
	}
	return program.Run(ctx, connection, o.Options)
}

// NewScheme returns a scheme with the kinds that the controllers use.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, configv1.Install, machinev1.Install,
		machinev1beta1.Install, clusterv1.AddToScheme,
		runtimev1.AddToScheme, v1alpha1.Install, controlplanev1alpha1.Install)
	return scheme, kinds.AddToScheme(scheme)
}

// trimNode removes the fields of a cached Node that no controller reads: most of the Node.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return object, nil
}
