package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/etcdguard/manager"
	machinemanager "github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/leader"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/text/embedded"
)

// A guardSandbox is a sandbox with machine controllers, for guards that each see one namespace.
type guardSandbox struct {
	*machinetest.SharedSandbox
	once sync.Once
}

var shared = newGuardSandbox()

// newGuardSandbox describes a sandbox. The log of its API server has the requests of the guard's service account.
func newGuardSandbox() *guardSandbox {
	policy := sandboxtest.AuditAccount(manager.DefaultNamespace, "etcd-quorum-guard")
	return &guardSandbox{SharedSandbox: machinetest.New(sandbox.Options{AuditPolicy: policy})}
}

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// prepare installs the APIs that a guard needs, and starts a machine controller, which ends with the process. The
// Lease of the controller is long, so that it does not expire on a busy machine.
func (s *guardSandbox) prepare(t *testing.T) {
	t.Helper()
	config := s.Sandbox(t).Config
	s.once.Do(func() {
		s.applyManifests(t)
		go func() {
			_ = machinemanager.Run(context.Background(), config, machinemanager.Options{
				Options:  leader.Options{Namespace: metav1.NamespaceDefault, LeaseDuration: 10 * time.Minute},
				Dialects: []machinemanager.Dialect{machinemanager.OpenShift, machinemanager.ClusterAPI},
			})
		}()
	})
}

// manage runs a machine controller for one API of machines until the test ends, or end is called.
func (s *scene) manage(t *testing.T, config *rest.Config, dialect machinemanager.Dialect) (end func()) {
	return s.run(t, func(ctx context.Context) error {
		return machinemanager.Run(ctx, config, machinemanager.Options{
			Options:  leader.Options{Namespace: metav1.NamespaceDefault, LeaseDuration: 10 * time.Minute},
			Dialects: []machinemanager.Dialect{dialect},
		})
	})
}

// applyManifests applies the manifests of a guard without its Deployment.
func (s *guardSandbox) applyManifests(t *testing.T) {
	t.Helper()
	for _, object := range guardManifests() {
		if kind := object.GetKind(); kind != "Deployment" && kind != "ClusterOperator" { // which the guard makes
			s.apply(t, object)
		}
	}
}

func guardManifests() []*unstructured.Unstructured {
	return embedded.Objects(os.DirFS("../../../manifests/etcd-quorum-guard"), "0000_40_*.yaml")
}

func (s *guardSandbox) apply(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Apply(t, s.Connect(t), string(text))
}

// A scene is a control plane of machines that the test provides, as a person and an etcd operator would: it starts
// them, with a node and an etcd member each, and ends those that were deleted.
type scene struct {
	*etcdCluster
	shared    *guardSandbox
	namespace string
	client    client.Client
	api       *rest.Config // past the gate, as the guard's service account

	mu      sync.Mutex
	numbers map[string]int // numbers of machines
	mayJoin bool           // new machines get a member
}

// newEmptyScene returns a scene without machines, beside others.
func newEmptyScene(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	return newSceneOn(t, shared)
}

func newSceneOn(t *testing.T, own *guardSandbox) *scene {
	t.Helper()
	own.prepare(t)
	etcd := newEtcdCluster(t, &gate{})
	s := &scene{
		etcdCluster: etcd,
		shared:      own,
		namespace:   own.Namespace(t),
		client:      own.Client(t),
		numbers:     map[string]int{},
	}
	s.giveRights(t)
	s.api = s.serveAPI(t)
	s.run(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			// etcd refuses a learner if it has one or if members have just joined: then the call is retried
			_ = s.provide(ctx)
			pause(ctx, 200*time.Millisecond)
		}
		return nil
	})
	return s
}

// newScene returns a scene with three machines of a set, and three members.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := newEmptyScene(t)
	s.addMachines(t)
	return s
}

// addMachines creates a set of three machines, and a member on each.
func (s *scene) addMachines(t *testing.T) {
	t.Helper()
	s.createSet(t)
	s.eventually("three machines run", func(context.Context) error {
		if running := s.machines(isRunning); len(running) != 3 {
			return fmt.Errorf("%v run", running)
		}
		return nil
	})
	s.bootstrap(1, 2, 3)
	s.allowMembers(true)
}

// guardOptions are those of a guard of the scene's own: nodes of other scenes have members, too.
func (s *scene) guardOptions() manager.Options {
	options := manager.Options{Options: leader.Options{Namespace: s.namespace}, Etcd: s.options}
	for number := 1; number < 10; number++ {
		options.Endpoints = append(options.Endpoints, s.ClientURL(number))
	}
	return options
}

func isRunning(m *machinev1beta1.Machine) bool {
	return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning
}

func hasHook(m *machinev1beta1.Machine) bool {
	return slices.Contains(m.Spec.LifecycleHooks.PreDrain,
		machinev1beta1.LifecycleHook{Name: "EtcdQuorumOperator", Owner: "clusteroperator/etcd"})
}

// run runs a function until the test ends, or stop is called.
func (s *scene) run(t *testing.T, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := do(ctx)
		if err != nil {
			t.Logf("the function ended: %v", err)
		}
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the function ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// serveAPI serves the API server past the gate, to the guard's service account. It shows the machines of the scene as
// those of all namespaces, since a guard serves its hook on all machines that there are; and no ClusterOperators: there
// is one for all guards.
func (s *scene) serveAPI(t *testing.T) *rest.Config {
	t.Helper()
	accounts := s.shared.Kubernetes(t).CoreV1().ServiceAccounts(manager.DefaultNamespace)
	token, err := accounts.CreateToken(t.Context(), "etcd-quorum-guard", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.shared.Sandbox(t).Config)
	config.BearerToken = token.Status.Token
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if all, ok := strings.CutSuffix(r.Out.URL.Path, "/machines"); ok && !strings.Contains(all, "/namespaces/") {
				r.Out.URL.Path = all + "/namespaces/" + s.namespace + "/machines"
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      discard,
	}
	paths := http.NewServeMux()
	paths.Handle("/", s.gate.pass(proxy, describeAPI))
	paths.Handle("/apis/config.openshift.io/", http.NotFoundHandler())
	server := httptest.NewUnstartedServer(paths)
	server.Config.ErrorLog = discard
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

// giveRights gives the guard's service account the rights that it has in its own namespace in that of the test.
func (s *scene) giveRights(t *testing.T) {
	t.Helper()
	for _, object := range guardManifests() {
		if kind := object.GetKind(); kind == "Role" || kind == "RoleBinding" {
			object.SetNamespace(s.namespace)
			s.shared.apply(t, object)
		}
	}
}

// machines returns the names of machines.
func (s *scene) machines(isMeant func(*machinev1beta1.Machine) bool) []string {
	var list machinev1beta1.MachineList
	if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, m := range list.Items {
		if isMeant(&m) {
			names = append(names, m.Name)
		}
	}
	return names
}

// awaitHooks waits until a number of machines have the hook and none lacks it.
func (s *scene) awaitHooks(count int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d machines have the hook", count), func(context.Context) error {
		with := s.machines(hasHook)
		without := s.machines(func(m *machinev1beta1.Machine) bool { return !hasHook(m) })
		if len(with) != count || len(without) > 0 {
			return fmt.Errorf("%v have it, %v lack it", with, without)
		}
		return nil
	})
}

// delete deletes a machine.
func (s *scene) delete(number int) {
	s.Helper()
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.machine(number)}}
	if err := s.client.Delete(s.Context(), m); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) awaitMachineGone(number int) {
	s.Helper()
	machinetest.AwaitGone(s.TB, s.client, &machinev1beta1.Machine{},
		client.ObjectKey{Namespace: s.namespace, Name: s.machine(number)})
}

// awaitHeld waits until the hook reports why it holds a machine.
func (s *scene) awaitHeld(number int, reason string) {
	s.Helper()
	s.shared.AwaitMachine(s.TB, s.namespace, s.machine(number), func(m *machinev1beta1.Machine) bool {
		return strings.Contains(m.Annotations["pre-drain.hook.machine.runlevel.dev/EtcdQuorumOperator"], reason)
	})
}
