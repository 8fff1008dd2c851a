// Package manager runs the etcd quorum guard in one process: with leader election, probes, metrics and a ClusterOperator.
// It carries out what package etcdguard decides: changes to the members of etcd, and the lifecycle hook that holds machines
// meanwhile, which package hook adds and removes.
//
// It remembers nothing that matters: it can be killed between any two requests, and goes on from what etcd and the API
// server have.
//
// Run is the call to start from. machines.go reads the machines, steps.go has the members follow them, status.go and
// metrics.go say how they stand.
package manager

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/runlevel/runlevel/pkg/clusteroperator"
	"github.com/runlevel/runlevel/pkg/etcdguard/members"
	"github.com/runlevel/runlevel/pkg/leader"
	"github.com/runlevel/runlevel/pkg/metricsserver"
	"github.com/runlevel/runlevel/pkg/probes"
)

// DefaultNamespace is where the guard is, and its Lease.
const DefaultNamespace = "runlevel-etcd"

// programName is the name of the Lease, of the ClusterOperator and of the service account.
const programName = "etcd-quorum-guard"

// Options say what is guarded. The zero value guards three voters on Machines of machine.openshift.io.
type Options struct {
	Namespace string // of the Lease and of guard pods; DefaultNamespace if it is empty
	Name      string // of this process, as the holder of the Lease; its host name if it is empty
	Version   string // of the release, which the ClusterOperator reports
	Listen    string // the address of /healthz and /readyz; empty for none
	Metrics   metricsserver.Serving
	// LeaseDuration is how long the Lease outlives a leader that died; 15 seconds if it is 0.
	LeaseDuration time.Duration
	// MachineAPI is the group of the machines: OpenShift, if it is empty, or ClusterAPI.
	MachineAPI string
	// Machines selects the machines of the control plane by labels; those that the API has for it if it is empty.
	Machines string
	// Voters is how many voting members the cluster is to have; 3 if it is 0.
	Voters int
	// Endpoints are where etcd is found, such as https://10.0.0.1:2379. If there are none, it is at the internal addresses
	// of the machines and nodes of the control plane.
	Endpoints []string
	Etcd      members.Options
	// GuardPods selects the pods that keep a drain from a node with a member, by labels; app=guard if it is empty.
	GuardPods string
	// GuardPodsNamespace is where they are; Namespace if it is empty.
	GuardPodsNamespace string
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 15*time.Second)
	o.MachineAPI = cmp.Or(o.MachineAPI, OpenShift)
	o.Voters = cmp.Or(o.Voters, 3)
	o.Etcd.Patience = cmp.Or(o.Etcd.Patience, members.DefaultPatience)
	o.GuardPods = cmp.Or(o.GuardPods, "app=guard")
	o.GuardPodsNamespace = cmp.Or(o.GuardPodsNamespace, o.Namespace)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	return o
}

// Run runs the guard until ctx ends. It ends with an error when the Lease is lost.
func Run(ctx context.Context, connection *rest.Config, o Options) error {
	o = o.withDefaults()
	connection = rest.CopyConfig(connection)
	connection.QPS = -1 // the API server's own flow control says how much is too much
	lease, err := leader.New(connection, leader.Options{
		Namespace: o.Namespace, Name: programName, Replica: o.Name, Duration: o.LeaseDuration,
	})
	if err != nil {
		return fmt.Errorf("prepare leader election: %w", err)
	}
	p := probes.New(lease)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.Serve(ctx, o.Listen) })
	group.Go(func() error { return run(ctx, connection, o, lease, p) })
	return group.Wait()
}

// run sets up the guard once the API server answers, and runs it.
func run(ctx context.Context, connection *rest.Config, o Options, lease *leader.ElectionLease, p *probes.Probes) error {
	if err := probes.AwaitServer(ctx, connection); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	denials := &clusteroperator.Denials{}
	m, err := newManager(denials.Watch(lease.Fence(connection)), lease)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	g, err := setUp(m, lease.IsHeld, o)
	if err != nil {
		return fmt.Errorf("set up the guard: %w", err)
	}
	if err := addMetrics(m, g); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	r, err := newReporter(connection, m, denials, g)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if err := m.Add(r); err != nil {
		return err
	}
	p.Watch(m)
	return m.Start(ctx)
}

// newScheme returns the kinds that the guard knows.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, machinev1beta1.Install, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func newManager(connection *rest.Config, lease *leader.ElectionLease) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			SkipNameValidation: ptr.To(true),     // a process may have one guard after another
			CacheSyncTimeout:   1000 * time.Hour, // machines may not be served yet, or not be allowed to be listed: both may come
			UsePriorityQueue:   ptr.To(false),    // it may keep a process from its end (kubernetes-sigs/controller-runtime#3538)
		},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		// What is decided on is read from the API server itself; the cache only tells of changes of machines.
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}, &corev1.Node{}}}},
		Metrics: server.Options{BindAddress: "0"}, // which package metricsserver serves
	}
	lease.Configure(&options)
	return ctrl.NewManager(connection, options)
}
