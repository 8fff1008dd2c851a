// Package manager runs the etcd quorum guard in one process: with leader election, probes, metrics and a
// ClusterOperator. It carries out what package etcdguard decides: changes to the members of etcd, permissions for
// updates in place, and the lifecycle hook that holds machines meanwhile, which package machinehook adds and removes.
//
// The process has no state of its own: it can be killed between any two requests, and continues from the state in etcd
// and the API server.
//
// Start with Run. machines.go reads the machines, steps.go changes the members, updates.go answers requests for updates
// in place; observation.go and metrics.go report the state of the members, to the ClusterOperator and to monitoring.
package manager

import (
	"cmp"
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/etcdguard/members"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
	"github.com/runlevel/runlevel/internal/program/leader"
)

// DefaultNamespace is the namespace of the guard and its Lease.
const DefaultNamespace = "runlevel-etcd"

// programName is the name of the Lease, of the ClusterOperator and of the service account.
const programName = "etcd-quorum-guard"

// Options configure the guard. The zero value guards three voters on Machines of machine.openshift.io.
type Options struct {
	leader.Options // Namespace is also that of guard pods
	// MachineAPI is the group of the machines: OpenShift, if it is empty, or ClusterAPI.
	MachineAPI string
	// Machines selects the machines of the control plane by labels; by the labels of the API if it is empty.
	Machines string
	// Voters is the wanted number of voting members; 0 stands for 3.
	Voters int
	// Endpoints are the endpoints of etcd, such as https://10.0.0.1:2379. If there are none, they are the internal
	// addresses of the nodes of the control plane.
	Endpoints []string
	Etcd      members.Options
	// GuardPods selects the pods that block a drain of a node with a member, by labels; app=guard if it is empty.
	GuardPods string
	// GuardPodsNamespace is the namespace of these pods; Namespace if it is empty.
	GuardPodsNamespace string
}

func (o Options) withDefaults() Options {
	o.MachineAPI = cmp.Or(o.MachineAPI, OpenShift)
	o.Voters = cmp.Or(o.Voters, 3)
	o.Etcd.Patience = cmp.Or(o.Etcd.Patience, members.DefaultPatience)
	o.GuardPods = cmp.Or(o.GuardPods, "app=guard")
	o.GuardPodsNamespace = cmp.Or(o.GuardPodsNamespace, o.Namespace, DefaultNamespace)
	return o
}

// Run runs the guard until ctx ends. It ends with an error when the Lease is lost.
func Run(ctx context.Context, connection *rest.Config, o Options) error {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, machinev1beta1.Install, clusterv1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return err
	}
	program := leader.Program{
		Name: programName, Namespace: DefaultNamespace,
		Manager: ctrl.Options{
			Scheme: scheme,
			// The guard reads from the API server itself; the cache is only for watches of machines.
			Client: client.Options{Cache: &client.CacheOptions{
				DisableFor: []client.Object{&corev1.Pod{}, &corev1.Node{}},
			}},
		},
		SetUp: func(_ context.Context, m ctrl.Manager, isLeader func() bool) (leader.Controllers, error) {
			g, err := setUp(m, isLeader, o.withDefaults())
			if err != nil {
				return leader.Controllers{}, fmt.Errorf("set up the guard: %w", err)
			}
			return g.controllers(), nil
		},
	}
	return program.Run(ctx, connection, o.Options)
}

// controllers returns the metrics and the status of the guard.
func (g *guard) controllers() leader.Controllers {
	return leader.Controllers{
		Metrics: leader.Metrics{
			Leads:   metricPrefix + "leader",
			Collect: g.collect,
			Counted: []prometheus.Collector{g.steps},
		},
		RelatedObjects: []configv1.ObjectReference{
			{Resource: "namespaces", Name: DefaultNamespace},
			{Group: g.options.MachineAPI, Resource: "machines"},
			{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: programName},
		},
		Awaited: g.api.machine, Awaits: "the guard has not seen the machines of the control plane yet",
		Status: func(context.Context) (clusteroperator.Status, error) {
			return g.observation.operatorStatus(g.options.Etcd.Patience)
		},
	}
}
