package besidecore

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/leader"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// runControllers runs the machine controller for a part of Cluster API until the test ends.
func runControllers(t *testing.T, dialect manager.Dialect) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- manager.Run(ctx, shared.Sandbox(t).Config, manager.Options{
			Options: leader.Options{Namespace: metav1.NamespaceDefault}, Dialects: []manager.Dialect{dialect},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("the machine controller has ended:", err)
		}
	})
}

// addAuthority gives a control plane the address of the sandbox's API server, and the CA that signs certificates of its
// clients.
func addAuthority(f *machinetest.Fixture, plane *v1alpha1.RunlevelControlPlane) {
	f.Helper()
	authority := &corev1.Secret{
		ObjectMeta: f.Meta("c-ca"),
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{},
	}
	authority.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	for key, file := range map[string]string{corev1.TLSCertKey: "ca.crt", corev1.TLSPrivateKeyKey: "ca.key"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(shared.Sandbox(f).Kubeconfig), "pki", file))
		f.Must(err)
		authority.Data[key] = text
	}
	f.MustCreate(authority)
	server, err := url.Parse(shared.Sandbox(f).Config.Host)
	f.Must(err)
	host, port, err := net.SplitHostPort(server.Host)
	f.Must(err)
	number, err := strconv.Atoi(port)
	f.Must(err)
	plane.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: host, Port: int32(number)}
}

// awaitCounts waits until core reports so many replicas of the control plane: desired, there, ready, available and up
// to date.
func awaitCounts(f *machinetest.Fixture, wanted string) {
	f.Helper()
	cluster, counts := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}, ""
	err := wait.PollUntilContextTimeout(f.Context(), time.Second/10, patience, true,
		func(context.Context) (bool, error) {
			f.MustGet(cluster)
			s := ptr.Deref(cluster.Status.ControlPlane, clusterv1.ClusterControlPlaneStatus{})
			build := func(count *int32) int32 { return ptr.Deref(count, -1) }
			counts = fmt.Sprint(build(s.DesiredReplicas), build(s.Replicas), build(s.ReadyReplicas),
				build(s.AvailableReplicas),
				build(s.UpToDateReplicas))
			return counts == wanted, nil
		})
	if err != nil {
		f.Fatalf("core counts the replicas %s, not %s: %v", counts, wanted, err)
	}
}

// TestBesideCore makes the machine controller run the control plane of a Cluster, and core decide by it whether the
// Cluster is available, and delete it with the Cluster.
func TestBesideCore(t *testing.T) {
	runCore(t)
	applyDefinitions(t)
	runControllers(t, manager.ClusterAPI)
	f := newFixture(t)
	cluster, plane := newControlPlane(f)
	addAuthority(f, plane)
	config := &infrav1.KwokConfigTemplate{ObjectMeta: f.Meta("plain")}
	config.Spec.Template.Spec.Data = "#cloud-config"
	f.MustCreate(cluster, plane, config, &infrav1.KwokMachineTemplate{ObjectMeta: f.Meta("small")})
	awaitCluster(f, map[string]string{
		clusterv1.ClusterControlPlaneInitializedCondition:      "True Initialized",
		clusterv1.ClusterControlPlaneAvailableCondition:        "True Available",
		clusterv1.ClusterControlPlaneMachinesReadyCondition:    "True Ready",
		clusterv1.ClusterControlPlaneMachinesUpToDateCondition: "True UpToDate",
		clusterv1.ClusterRemoteConnectionProbeCondition:        "True ProbeSucceeded",
		clusterv1.ClusterRollingOutCondition:                   "False NotRollingOut",
		clusterv1.ClusterScalingUpCondition:                    "False NotScalingUp",
		clusterv1.ClusterAvailableCondition:                    "True Available",
	})
	awaitCounts(f, "3 3 3 3 3")
	var machines clusterv1.MachineList
	f.MustList(&machines)
	// Two controllers that disagree would write the owners again and again.
	_ = wait.PollUntilContextTimeout(t.Context(), time.Second/20, time.Second, true,
		func(context.Context) (bool, error) {
			f.MustGet(plane)
			if owners := plane.OwnerReferences; len(owners) != 1 || owners[0].UID != cluster.UID ||
				ptr.Deref(owners[0].Controller, false) {
				t.Fatalf("the control plane has the owners %+v", owners)
			}
			return false, nil
		})

	f.MustDelete(cluster)
	f.AwaitGone(plane)
	f.AwaitGone(cluster)
	for i := range machines.Items {
		f.AwaitGone(&machines.Items[i])
	}
}
