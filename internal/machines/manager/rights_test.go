package manager_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/leader"
	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

// rare are rights that this test has no use for: where clusters check owner references, and when an event about an
// object that has not changed is repeated.
var rare = []string{"machinedeployments/finalizers", "machinesets/finalizers", "controlplanemachinesets/finalizers",
	"machines/finalizers", "clusters/finalizers", "events"}

// implied are rights that the API server asks for, and that its audit log does not contain: these objects are made by
// an apply, which is a patch.
var implied = []string{"create machines.cluster.x-k8s.io", "create machinesets.cluster.x-k8s.io"}

// TestEachRightIsUsed makes a controller do all it does, with the service account that the payload has, and no more
// rights.
func TestEachRightIsUsed(t *testing.T) {
	t.Parallel()
	s := newRightsScene(t, sandbox.Options{
		AuditPolicy: sandboxtest.AuditAccount(manager.DefaultNamespace, "machine-controller"),
		// Volumes are attached and detached by the test.
		Controllers: []string{"*", "-persistentvolume-attach-detach-controller", "-persistentvolume-binder-controller"},
	})
	address := s.run()

	s.replaceMachines()
	s.drainAMachine()
	s.terminateByHand()
	s.addControlPlane()
	s.addCluster()
	s.drainACluster()
	s.terminateOfClusterByHand()
	s.discoverAnExtension()
	s.deployMachines()
	s.askForMetrics(address)
	machinetest.Await(t, s, &configv1.ClusterOperator{}, client.ObjectKey{Name: "machine-controller"},
		func(o *configv1.ClusterOperator) bool {
			lacksNone := slices.ContainsFunc(o.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
				return c.Type == configv1.OperatorDegraded && c.Status == configv1.ConditionFalse
			})
			return len(o.Status.Versions) == 1 && lacksNone
		})
	for _, role := range []string{
		"machine-controller", "machine-controller-providers",
		"machine-controller-cluster-api", "machine-controller-sets-cluster-api",
		"machine-controller-providers-cluster-api",
		"machine-controller-extensions-cluster-api",
	} {
		for _, name := range sandboxtest.UnusedRights(t, s.shared.Sandbox(t), manifests.Objects(), role, rare...) {
			if !slices.Contains(implied, name) {
				t.Errorf("role %s has the right to %s, which is never used", role, name)
			}
		}
	}
}

// A rightsScene is a control plane on which a controller has the rights of its payload.
type rightsScene struct {
	*machinetest.Fixture
	shared *machinetest.SharedSandbox
}

// newRightsScene creates a control plane of the test's own, with the manifests of the controller but for its
// Deployment.
func newRightsScene(t *testing.T, o sandbox.Options) *rightsScene {
	t.Helper()
	own := machinetest.New(o)
	t.Cleanup(func() { _ = own.Sandbox(t).Stop() })
	s := &rightsScene{Fixture: own.NewFixture(t), shared: own}
	s.applyRoles()
	scheme, err := manager.NewScheme()
	s.Must(err)
	s.Client, err = client.New(s.Config(), client.Options{Scheme: scheme})
	s.Must(err)
	return s
}

// applyRoles applies the manifests but for the Deployment, which this process stands for.
func (s *rightsScene) applyRoles() {
	s.Helper()
	connected := s.shared.Connect(s)
	for _, object := range append(install.Definitions(), manifests.Objects()...) {
		if object.GetKind() != "Deployment" && object.GetKind() != "ClusterOperator" { // which the controller makes
			text, err := yaml.Marshal(object.Object)
			s.Must(err)
			sandboxtest.Apply(s, connected, string(text))
		}
	}
}

// run runs a controller of some namespaces, or of all, with the token of its service account, until the test ends. It
// returns where it serves metrics.
func (s *rightsScene) run(namespaces ...string) string {
	s.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	s.Must(err)
	address := free.Addr().String()
	s.Must(free.Close())
	accounts := s.shared.Kubernetes(s).CoreV1().ServiceAccounts(manager.DefaultNamespace)
	token, err := accounts.CreateToken(s.Context(), "machine-controller", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	s.Must(err)
	config := rest.AnonymousClientConfig(s.Config())
	config.BearerToken = token.Status.Token
	ended := make(chan error, 1)
	go func() {
		ended <- manager.Run(s.Context(), config, manager.Options{
			Options:  leader.Options{Name: "it", Version: "1.0.0", Metrics: webserver.Serving{Address: address}},
			Dialects: []manager.Dialect{manager.OpenShift, manager.ClusterAPI}, Namespaces: namespaces,
		})
	}()
	s.Cleanup(func() {
		if err := <-ended; err != nil {
			s.Errorf("the controller ended: %v", err)
		}
	})
	return address
}

// template returns the spec of machines on infrastructure of a kind.
func (s *rightsScene) template(kind string) machinev1beta1.MachineSpec {
	return machinev1beta1.MachineSpec{ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"infrastructure.runlevel.dev/v1alpha1","kind":"` + kind + `"}`),
	}}}
}

func (s *rightsScene) patch(object client.Object, merge string) {
	s.Helper()
	s.Must(s.Patch(s.Context(), object, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// replaceMachines lets a set create a machine, deletes its node, and waits until a health check finds the missing node
// and the set replaces the machine.
func (s *rightsScene) replaceMachines() {
	s.Helper()
	labels, replicas := map[string]string{"set": "web"}, int32(1)
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"}}
	set.Spec.Replicas, set.Spec.Selector = &replicas, metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.Labels, set.Spec.Template.Spec = labels, s.template("KwokMachine")
	check := &machinev1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"}}
	check.Spec.Selector = set.Spec.Selector
	s.MustCreate(set)
	s.MustCreate(check)
	var first *machinev1beta1.Machine
	machinetest.Await(s, s, set, client.ObjectKeyFromObject(set), func(set *machinev1beta1.MachineSet) bool {
		var list machinev1beta1.MachineList
		s.Must(s.List(s.Context(), &list, client.InNamespace(s.Namespace)))
		if len(list.Items) == 1 && list.Items[0].Status.NodeRef != nil {
			first = &list.Items[0]
		}
		return first != nil && set.Status.ReadyReplicas == 1
	})
	s.MustDelete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: first.Status.NodeRef.Name}})
	s.AwaitGone(first)
	machinetest.Await(s, s, set, client.ObjectKeyFromObject(set), func(set *machinev1beta1.MachineSet) bool {
		return set.Status.ReadyReplicas == 1
	})
}

// drainAMachine deletes a machine whose node has pods of all sorts. A budget holds one pod for a while.
func (s *rightsScene) drainAMachine() {
	s.Helper()
	name := s.Namespace + "-m"
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec:       s.template("KwokMachine"),
	}
	m.Spec.LifecycleHooks.PreDrain = []machinev1beta1.LifecycleHook{{Name: "One", Owner: "test"},
		{Name: "Two", Owner: "test"}}
	s.MustCreate(m)
	s.AwaitMachine(name, func(m *machinev1beta1.Machine) bool { return m.Status.NodeRef != nil })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace,
		Name:      "web",
		Labels:    map[string]string{"app": "web"},
	}}
	pod.Spec = corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "example"}}}
	s.MustCreate(pod)
	budget := sandboxtest.Apply(s, s.shared.Connect(s),
		`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {namespace: `+s.Namespace+`, name: web},
		spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}`)
	machinetest.Await(s, s, budget, client.ObjectKeyFromObject(budget),
		func(b *unstructured.Unstructured) bool {
			healthy, _, _ := unstructured.NestedInt64(b.Object, "status", "currentHealthy")
			return healthy == 1
		})
	runDaemons(s, s, s.Namespace, name)
	s.MustDelete(m)
	conditionIs := func(conditionType machinev1beta1.ConditionType, status corev1.ConditionStatus) {
		s.Helper()
		s.AwaitMachine(name, func(m *machinev1beta1.Machine) bool {
			return hasCondition(m, conditionType, status)
		})
	}
	s.AwaitMachine(name, func(m *machinev1beta1.Machine) bool {
		return m.Status.Phase != nil && *m.Status.Phase == machinev1beta1.PhaseDeleting
	})
	s.patch(m, `{"spec":{"lifecycleHooks":{"preDrain":[{"name":"Two","owner":"test"}]}}}`)
	s.AwaitMachine(name, func(m *machinev1beta1.Machine) bool {
		return slices.ContainsFunc(m.Status.Conditions, func(c machinev1beta1.Condition) bool {
			return strings.HasSuffix(c.Message, "blocked by: [{Name:Two Owner:test}]")
		})
	})
	s.patch(m, `{"spec":{"lifecycleHooks":null}}`)
	conditionIs(machinev1beta1.MachineDrained, corev1.ConditionFalse)
	s.MustDelete(budget)
	s.AwaitGone(m)
}

// terminateByHand makes a person provide a machine, and end it.
func (s *rightsScene) terminateByHand() {
	s.Helper()
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "by-hand"},
		Spec:       s.template("ExternalMachine"),
	}
	s.MustCreate(m)
	instance := machinetest.Await(s, s, &v1alpha1.ExternalMachine{}, client.ObjectKeyFromObject(m),
		func(i *v1alpha1.ExternalMachine) bool {
			return len(i.Finalizers) > 0
		})
	s.patch(instance, `{"spec":{"providerID":"hand://1"}}`)
	s.AwaitMachine("by-hand", func(m *machinev1beta1.Machine) bool {
		return m.Spec.ProviderID != nil
	})
	s.MustDelete(m)
	machinetest.Await(s, s, instance, client.ObjectKeyFromObject(instance),
		func(i *v1alpha1.ExternalMachine) bool {
			return i.DeletionTimestamp != nil
		})
	s.patch(instance, `{"spec":{"terminated":true}}`)
	s.AwaitGone(m)
}

// addControlPlane makes a set report that there are no machines of the control plane, which the ClusterOperator
// repeats, and deletes it.
func (s *rightsScene) addControlPlane() {
	s.Helper()
	set := &machinev1.ControlPlaneMachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "cluster"}}
	s.Must(yaml.UnmarshalStrict([]byte(`{state: Active, replicas: 3, selector: {matchLabels: {machine.openshift.io/cluster-api-machine-role: master}}, template: {
		machineType: machines_v1beta1_machine_openshift_io, machines_v1beta1_machine_openshift_io: {
			metadata: {labels: {machine.openshift.io/cluster-api-cluster: shop, machine.openshift.io/cluster-api-machine-role: master, machine.openshift.io/cluster-api-machine-type: master}},
			spec: {providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine}}}}}}`),
		&set.Spec))
	s.MustCreate(set)
	machinetest.Await(s, s, set, client.ObjectKeyFromObject(set),
		func(set *machinev1.ControlPlaneMachineSet) bool {
			return meta.IsStatusConditionTrue(set.Status.Conditions, "Degraded") && len(set.Finalizers) > 0
		})
	machinetest.Await(s, s, &configv1.ClusterOperator{}, client.ObjectKey{Name: "machine-controller"},
		func(o *configv1.ClusterOperator) bool {
			return slices.ContainsFunc(o.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
				return c.Type == configv1.OperatorDegraded && c.Reason == manager.ReasonControlPlaneDegraded &&
					strings.Contains(c.Message, s.Namespace+"/cluster (NoReadyMachines: ")
			})
		})
	s.MustDelete(set)
	s.AwaitGone(set)
}

// askForMetrics requests the metrics with a valid token that may not read them.
func (s *rightsScene) askForMetrics(address string) {
	s.Helper()
	asker := s.shared.Account(s, s.Namespace, "asker")
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	s.Must(err)
	request.Header.Set("Authorization", "Bearer "+asker.BearerToken)
	// it has made its certificate itself
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := web.Do(request)
	s.Must(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		s.Errorf("metrics are served to whom they are not to be: %s", answer.Status)
	}
}
