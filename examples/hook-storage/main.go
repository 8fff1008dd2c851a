// Command hook-storage keeps the machines of a cluster from being terminated until the volumes of their nodes are
// detached: a volume that was not detached before its node ended can't be attached elsewhere for minutes, or is
// damaged.
//
// It is an example of a controller that implements a lifecycle hook with package machinehook, which does everything
// except decide when the hook may be removed. main has the connection; storage is the hook. Volumes of pods that a
// drain leaves, those of DaemonSets, hold the machine as well: leave them out if your cluster has such.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/runlevel/runlevel/pkg/machinehook"
)

func main() {
	isClusterAPI := flag.Bool("cluster-api", false, "serve Machines of Cluster API instead of OpenShift's")
	namespace := flag.String("namespace", "hook-storage", "the namespace of the Lease for leader election")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	var machines client.Object = &machinev1beta1.Machine{}
	if *isClusterAPI {
		machines = &clusterv1.Machine{}
	}
	config, err := ctrl.GetConfig()
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), config, machines, *namespace)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hook-storage:", err)
		os.Exit(1)
	}
}

// run serves the hook until ctx ends.
func run(ctx context.Context, config *rest.Config, machines client.Object, namespace string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, machinev1beta1.Install,
		clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "hook-storage", LeaderElectionNamespace: namespace,
	})
	if err != nil {
		return err
	}
	if err := storage(machines, mgr.GetAPIReader()).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// storage is the hook that waits until no volume is attached to the node of a machine.
func storage(machines client.Object, cluster client.Reader) machinehook.Hook {
	return machinehook.Hook{
		Name: "WaitForStorageDetach", Owner: "hook-storage", Stage: machinehook.BeforeTerminate, Machine: machines,
		Act: func(ctx context.Context, m machinehook.HeldMachine) (machinehook.HookAnswer, error) {
			var attachments storagev1.VolumeAttachmentList
			if err := cluster.List(ctx, &attachments); err != nil {
				return machinehook.HookAnswer{}, fmt.Errorf("list VolumeAttachments: %w", err)
			}
			var attached []string
			for _, a := range attachments.Items {
				if m.NodeName != "" && a.Spec.NodeName == m.NodeName {
					attached = append(attached, a.Name)
				}
			}
			if len(attached) > 0 {
				return machinehook.HookAnswer{Message: "waiting for these VolumeAttachments to be deleted: " +
					strings.Join(attached, ", ")}, nil
			}
			return machinehook.HookAnswer{IsDone: true}, nil
		},
	}
}
