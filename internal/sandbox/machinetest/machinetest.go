// Package machinetest shares one sandbox, which serves the kinds of the machine controller, among the tests of a
// package, and runs controllers on it.
//
// Start with New:
//
//	var shared = machinetest.New(sandbox.Options{})
//
//	func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		f := shared.NewFixture(t)
//		f.MustCreate(…)
package machinetest

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

// patience is the timeout of all waits. No wait that succeeds takes as long.
const patience = 5 * time.Minute

// A SharedSandbox is a sandbox for controllers of machines. It starts when the first test needs it.
type SharedSandbox struct {
	*sandboxtest.SharedSandbox
	definitions string // the folder of definitions
}

// New describes the sandbox of a package's tests. It starts nothing yet.
func New(o sandbox.Options) *SharedSandbox {
	folder, err := writeDefinitions()
	if err != nil {
		panic(fmt.Sprintf("machinetest: write the definitions: %v", err))
	}
	o.CRDs = append(o.CRDs, folder)
	return &SharedSandbox{SharedSandbox: sandboxtest.New(o), definitions: folder}
}

// Run runs the tests of a package, for its TestMain, and stops the sandbox. Controllers log nothing.
func (s *SharedSandbox) Run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	defer func() { _ = os.RemoveAll(s.definitions) }()
	return s.SharedSandbox.Run(m)
}

// writeDefinitions writes the definitions among the manifests into a new folder.
func writeDefinitions() (string, error) {
	folder, err := os.MkdirTemp("", "machine-definitions-")
	if err != nil {
		return "", err
	}
	files, err := fs.Glob(manifests.Files(), "*.crd.yaml")
	for _, file := range files {
		text, readErr := fs.ReadFile(manifests.Files(), file)
		if readErr != nil {
			return "", readErr
		}
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o600); err != nil {
			return "", err
		}
	}
	return folder, err
}

// NewScheme returns a scheme of the kinds that controllers of machines know.
func NewScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, machinev1.Install, machinev1beta1.Install, clusterv1.AddToScheme,
		runtimev1.AddToScheme, v1alpha1.Install,
		controlplanev1alpha1.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// Client returns the admin's client. It reads from the API server, not from a cache.
func (s *SharedSandbox) Client(t testing.TB) client.Client {
	t.Helper()
	c, err := client.New(s.Sandbox(t).Config, client.Options{Scheme: NewScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Kubernetes returns the admin's client of Kubernetes' own kinds.
func (s *SharedSandbox) Kubernetes(t testing.TB) kubernetes.Interface {
	t.Helper()
	return s.SharedSandbox.Client(t)
}

// ManageAs runs controllers in this process until the test ends, or stop is called. The controllers see all namespaces,
// and reach the API server by a configuration of the test.
func (s *SharedSandbox) ManageAs(t testing.TB, rest *rest.Config, setUp func(ctrl.Manager) error) (stop func()) {
	t.Helper()
	return s.manage(t, rest, cache.Options{}, setUp)
}

// ManageIn runs controllers that see the objects of one namespace and cluster-wide objects only.
func (s *SharedSandbox) ManageIn(t testing.TB, namespace string, rest *rest.Config,
	setUp func(ctrl.Manager) error) (stop func()) {
	t.Helper()
	return s.manage(t, rest, cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}, setUp)
}

func (s *SharedSandbox) manage(t testing.TB, rest *rest.Config, seen cache.Options,
	setUp func(ctrl.Manager) error) (stop func()) {
	t.Helper()
	unchecked := true // several tests of a process run controllers of the same name
	manager, err := ctrl.NewManager(rest, ctrl.Options{
		Cache:   seen,
		Scheme:  NewScheme(t),
		Metrics: server.Options{BindAddress: "0"},
		// as the program has it
		Controller: config.Controller{SkipNameValidation: &unchecked, UsePriorityQueue: new(bool)},
	})
	if err == nil {
		err = setUp(manager)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	hasEnded := false
	stop = func() {
		if hasEnded {
			return
		}
		hasEnded = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controllers ended: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// AwaitMachine waits until isWanted returns true for a Machine, and returns the Machine.
func (s *SharedSandbox) AwaitMachine(t testing.TB, namespace, name string, isWanted func(*machinev1beta1.Machine) bool,
) *machinev1beta1.Machine {
	t.Helper()
	return Await(t, s.Client(t), &machinev1beta1.Machine{}, client.ObjectKey{Namespace: namespace, Name: name},
		isWanted)
}

// Await waits until isWanted returns true for an object, and returns the object.
func Await[T client.Object](t testing.TB, reader client.Reader, object T, key client.ObjectKey,
	isWanted func(T) bool) T {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := reader.Get(ctx, key, object)
			return err == nil && isWanted(object), client.IgnoreNotFound(err)
		})
	if err != nil {
		t.Fatalf("%T %s is not as wanted: %v; it is %+v", object, key, err, object)
	}
	return object
}

// AwaitGone waits until an object no longer exists.
func AwaitGone(t testing.TB, reader client.Reader, object client.Object, key client.ObjectKey) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := reader.Get(ctx, key, object)
			return client.IgnoreNotFound(err) == nil && err != nil, client.IgnoreNotFound(err)
		})
	if err != nil {
		t.Fatalf("%T %s is still there: %v; it is %+v", object, key, err, object)
	}
}

// AwaitCollector waits until the garbage collector has observed all objects of a kind: the collector neither orphans
// machines that it has not observed, nor keeps a set for them. It observes objects in order, so AwaitCollector creates
// a last object whose owner does not exist, and waits until the collector deletes that object.
func AwaitCollector(t testing.TB, c client.Client, last client.Object) {
	t.Helper()
	last.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: "00000000-0000-0000-0000-000000000000",
	}})
	if err := c.Create(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	AwaitGone(t, c, last, client.ObjectKeyFromObject(last))
}

// BeforeFirstDelete returns a client configuration that calls a function of the test, with the machine's name, before
// it sends the first deletion of a machine.
func BeforeFirstDelete(config *rest.Config, change func(name string)) *rest.Config {
	var first sync.Once
	return sandboxtest.Before(config, func(request *http.Request) error {
		folder, name := path.Split(request.URL.Path)
		if request.Method == http.MethodDelete && strings.HasSuffix(folder, "/machines/") {
			first.Do(func() { change(name) })
		}
		return nil
	})
}

// NewCluster returns a Cluster c of the namespace, whose infrastructure no controller knows.
func (f *Fixture) NewCluster() *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infra.example.com",
		Kind:     "Rack",
		Name:     "r",
	}
	return cluster
}

// MachineSpec returns a template's spec of machines of the Cluster c: the KwokMachineTemplate small is for their
// infrastructure, and the KwokConfigTemplate plain for their bootstrap data.
func MachineSpec() clusterv1.MachineSpec {
	reference := func(kind, name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: kind, Name: name}
	}
	return clusterv1.MachineSpec{
		ClusterName: "c", InfrastructureRef: reference("KwokMachineTemplate", "small"),
		Bootstrap: clusterv1.Bootstrap{ConfigRef: reference("KwokConfigTemplate", "plain")},
	}
}
