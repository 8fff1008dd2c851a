package besidecore

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// registerExtension runs Cluster API's test extension, for the namespace of a test.
func registerExtension(f *machinetest.Fixture, t *testing.T) {
	f.Helper()
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}}
	config.Spec.ClientConfig = runtimehooktest.StartProcess(t, clusterAPI(t, "extension"))
	config.Spec.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{"kubernetes.io/metadata.name": f.Namespace},
	}
	f.MustCreate(config)
	f.DeleteAfterwards(config)
	machinetest.Await(f, f, config, f.Key(config.Name), func(c *runtimev1.ExtensionConfig) bool {
		return conditionText(c.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition) == "True Discovered"
	})
}

// addTemplates adds templates of DevMachines and KubeadmConfigs.
func addTemplates(f *machinetest.Fixture, name, machine, config string) {
	f.Helper()
	f.MustCreate(newObject(f, devInfrastructure, "DevMachineTemplate", name, "{template: {spec: "+machine+"}}"),
		newObject(f, kubeadmBootstrap, "KubeadmConfigTemplate", name, "{template: {spec: "+config+"}}"))
}

func refer(version schema.GroupVersion, kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: version.Group, Kind: kind, Name: name}
}

// machinesOf returns the names and UIDs of all Machines of a namespace.
func machinesOf(f *machinetest.Fixture) map[string]string {
	f.Helper()
	var list clusterv1.MachineList
	f.MustList(&list)
	found := map[string]string{}
	for _, m := range list.Items {
		found[m.Name] = string(m.UID)
	}
	return found
}

// rollOut changes the version and the templates of a control plane, and waits until all of its machines have them.
func rollOut(f *machinetest.Fixture, plane *v1alpha1.RunlevelControlPlane, version, templates string) {
	f.Helper()
	f.MustPatch(plane, `{"spec":{"version":%q,"machineTemplate":{"spec":{
		"infrastructureRef":{"name":%[2]q},"bootstrap":{"configRef":{"name":%[2]q}}}}}}`, version, templates)
	machinetest.Await(f, f, plane, f.Key(plane.Name), func(p *v1alpha1.RunlevelControlPlane) bool {
		s := p.Status
		return s.ObservedGeneration == p.Generation && s.Version == version && ptr.Deref(s.UpToDateReplicas, 0) == 3 &&
			ptr.Deref(s.AvailableReplicas, 0) == 3 && ptr.Deref(s.Replicas, 0) == 3
	})
}

// TestClusterAPIsTestExtension updates a control plane in place by Cluster API's test extension. That takes changes of
// a Machine's version, of the timeout of a DevMachine, and of files and the image of etcd of a KubeadmConfig; no other
// kinds, and no other fields.
func TestClusterAPIsTestExtension(t *testing.T) {
	runCore(t)
	applyDefinitions(t)
	runControllers(t, manager.ClusterAPI)
	updateByTestExtension(t)
}

// updateByTestExtension updates a control plane in place, and then makes a change that the extension cannot apply.
func updateByTestExtension(t *testing.T) {
	t.Helper()
	f := newFixture(t)
	registerExtension(f, t)
	provide(f)
	cluster, plane := newControlPlane(f)
	plane.Spec.MachineTemplate.Spec.InfrastructureRef = refer(devInfrastructure, "DevMachineTemplate", "first")
	plane.Spec.MachineTemplate.Spec.Bootstrap.ConfigRef = refer(kubeadmBootstrap, "KubeadmConfigTemplate", "first")
	addTemplates(f, "first", "{backend: {docker: {customImage: one, bootstrapTimeout: 3m0s}}}",
		"{clusterConfiguration: {etcd: {local: {imageTag: 3.6.4}}}}")
	addAuthority(f, plane)
	f.MustCreate(cluster, plane)
	awaitCounts(f, "3 3 3 3 3")
	before := machinesOf(f)

	addTemplates(f, "second", "{backend: {docker: {customImage: one, bootstrapTimeout: 5m0s}}}",
		"{clusterConfiguration: {etcd: {local: {imageTag: 3.6.8}}}, files: [{path: /etc/motd, content: hello}]}")
	rollOut(f, plane, "v1.36.3", "second")
	// One machine is new, since there is one more during a rollout, and the others are updated in place.
	updated := maps.Clone(before)
	maps.DeleteFunc(updated, func(name, uid string) bool { return machinesOf(f)[name] != uid })
	if len(updated) != 2 {
		t.Errorf("of the machines %v, %v are left, not two", before, updated)
	}
	for name := range updated {
		config := newObject(f, kubeadmBootstrap, "KubeadmConfig", name, "{}")
		f.MustGet(config)
		if text := fmt.Sprint(config.Object["spec"]); !strings.Contains(text, "3.6.8") ||
			!strings.Contains(text, "/etc/motd") {
			t.Errorf("KubeadmConfig %s has not been updated: %s", name, text)
		}
	}
	awaitCluster(f, map[string]string{clusterv1.ClusterControlPlaneMachinesUpToDateCondition: "True UpToDate"})

	addTemplates(f, "third", "{backend: {docker: {customImage: two, bootstrapTimeout: 5m0s}}}",
		"{clusterConfiguration: {etcd: {local: {imageTag: 3.6.8}}}, files: [{path: /etc/motd, content: hello}]}")
	rollOut(f, plane, "v1.36.3", "third")
	for name, uid := range machinesOf(f) {
		if updated[name] == uid {
			t.Errorf("machine %s was not replaced, but the extension can't change its image", name)
		}
	}
}
