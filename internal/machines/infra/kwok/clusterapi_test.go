package kwok_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// own creates a Machine of Cluster API, and makes it the owner of an object, as the controller of Machines does.
func own(f *machinetest.Fixture, object client.Object) {
	f.Helper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace:    object.GetNamespace(),
		GenerateName: "owner-",
	}}
	machine.Spec.ClusterName = "c"
	machine.Spec.Bootstrap.DataSecretName = ptr.To("secret")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group, Kind: "KwokMachine", Name: object.GetName(),
	}
	f.MustCreate(machine)
	f.MustGet(object)
	before := object.DeepCopyObject().(client.Object)
	object.SetOwnerReferences(
		[]metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))},
	)
	f.Must(f.Patch(f.Context(), object, client.MergeFrom(before)))
}

// A set of Cluster API makes infrastructure before the Machine that it is for.
func TestAKwokMachineWaitsForItsMachine(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(kwok.SetupWithManager)
	machine := machineIn(f.Namespace, "cloned", v1alpha1.KwokMachineSpec{})
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	key, node := client.ObjectKeyFromObject(machine), client.ObjectKey{Name: machine.Name}
	f.MustCreate(machine)
	machinetest.Await(f, f, machine, key, isReady("WaitingForMachine"))
	if err := f.Get(t.Context(), node, &corev1.Node{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("there is a Node: %v", err)
	}
	own(f, machine)
	machinetest.Await(f, f, machine, key, isReady("Running"))
	// it is linked
	f.MustPatch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, `{"metadata":{"annotations":{%q:"m"}}}`,
		clusterv1.MachineAnnotation)
	f.MustDelete(machine)
	f.AwaitGone(machine)
	if err := f.Get(t.Context(), node, &corev1.Node{}); err != nil {
		t.Errorf("its Node, which the controller of Machines deletes: %v", err)
	}
}

func TestAKwokConfigMakesASecret(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(kwok.SetupConfigsWithManager)
	config := &v1alpha1.KwokConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace,
			Name:      "a",
			Labels:    map[string]string{clusterv1.ClusterNameLabel: "c"},
		},
		Spec: v1alpha1.KwokConfigSpec{Data: "#cloud-config"},
	}
	key := client.ObjectKeyFromObject(config)
	f.MustCreate(config)
	machinetest.Await(f, f, config, key, func(k *v1alpha1.KwokConfig) bool {
		ready := meta.FindStatusCondition(k.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == "WaitingForMachine" && !k.Status.Initialization.DataSecretCreated
	})
	own(f, config)
	machinetest.Await(f, f, config, key, func(k *v1alpha1.KwokConfig) bool {
		return k.Status.Initialization.DataSecretCreated
	})
	secret := &corev1.Secret{}
	f.Must(f.Get(t.Context(), f.Key(config.Status.DataSecretName), secret))
	if string(secret.Data["value"]) != "#cloud-config" || secret.Type != clusterv1.ClusterSecretType ||
		secret.Labels[clusterv1.ClusterNameLabel] != "c" || !metav1.IsControlledBy(secret, config) {
		t.Errorf("Secret: got %+v, want one of the config, with #cloud-config, and the label of cluster c", secret)
	}
}

func TestTemplatesStayAsTheyAre(t *testing.T) {
	f := shared.NewFixture(t)
	template := &v1alpha1.KwokMachineTemplate{ObjectMeta: f.Meta("t")}
	template.Spec.Template.Spec.Node.KubeletVersion = "v1.36.0"
	f.MustCreate(template)
	template.Spec.Template.Spec.Node.KubeletVersion = "v1.37.0"
	if err := f.Update(t.Context(), template); err == nil ||
		!strings.Contains(err.Error(), "make another KwokMachineTemplate") {
		t.Errorf("a change of a template: %v", err)
	}
	named := &v1alpha1.KwokMachineTemplate{ObjectMeta: f.Meta("named")}
	named.Spec.Template.Spec.ProviderID = "kwok://a"
	if err := f.Create(t.Context(), named); err == nil || !strings.Contains(err.Error(), "is for one machine") {
		t.Errorf("a template with a providerID: %v", err)
	}
	external := &v1alpha1.ExternalMachineTemplate{ObjectMeta: f.Meta("t")}
	external.Spec.Template.Spec.Description = "a blade"
	f.MustCreate(external)
}
