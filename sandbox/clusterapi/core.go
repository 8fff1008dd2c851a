package main

import (
	"context"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// userAgent is how the API server's log and managed fields name Cluster API's core.
const userAgent = "cluster-api-controller-manager"

// What Cluster API's core has as defaults of its flags.
const (
	resyncPeriod                = 10 * time.Minute
	remoteConnectionGracePeriod = 50 * time.Second
	remoteQPS, remoteBurst      = 20, 30
)

// runCore runs Cluster API's controller of Clusters, with its connections to them, on the cluster of KUBECONFIG until
// the context or standard input ends.
func runCore(ctx context.Context) error {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return err
	}
	// The payload has no definition of MachinePools, which core would watch.
	if err := feature.MutableGates.Set("MachinePool=false"); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = userAgent
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Cache:   setup.ManagerCacheOptions(scheme, userAgent, corev1.NamespaceAll, resyncPeriod),
		Client:  setup.ManagerClientOptions(),
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := addClusterController(ctx, manager); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	go func() { // it does not outlive the test that has started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	return manager.Start(ctx)
}

func addClusterController(ctx context.Context, manager ctrl.Manager) error {
	if err := index.AddDefaultIndexes(ctx, manager); err != nil {
		return err
	}
	secrets, err := setup.CreateSecretCachingClient(manager)
	if err != nil {
		return err
	}
	connections, err := clustercache.SetupWithManager(ctx, manager, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(userAgent, remoteQPS, remoteBurst),
	}, controller.Options{})
	if err != nil {
		return err
	}
	clusters := &cluster.Reconciler{
		Client: manager.GetClient(), APIReader: manager.GetAPIReader(), ClusterCache: connections,
		RemoteConnectionGracePeriod: remoteConnectionGracePeriod,
	}
	return clusters.SetupWithManager(ctx, manager, controller.Options{})
}
