package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A trustScene is a control plane with the controller as it is shipped, and a Node that belongs to no machine.
type trustScene struct {
	*rightsScene
	stranger client.Client // an account with some rights in the namespace
	victim   *corev1.Node
}

// newTrustScene starts the controller for one namespace, and creates an account that may do everything with some resources of the namespace.
func newTrustScene(t *testing.T, resources ...string) *trustScene {
	t.Helper()
	own := machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})
	t.Cleanup(func() { _ = own.Sandbox(t).Stop() })
	s := &trustScene{rightsScene: &rightsScene{MachineStage: own, T: t, namespace: own.Namespace(t)}}
	s.applyRoles()
	scheme, err := manager.NewScheme()
	s.must(err)
	s.admin, err = client.New(own.Sandbox(t).Config, client.Options{Scheme: scheme})
	s.must(err)
	s.run(s.namespace)
	may := rbacv1.PolicyRule{
		APIGroups: []string{"machine.openshift.io", "cluster.x-k8s.io", "infrastructure.runlevel.dev"}, Resources: resources, Verbs: []string{"*"},
	}
	s.stranger, err = client.New(own.Account(t, s.namespace, "stranger", may), client.Options{Scheme: scheme})
	s.must(err)
	s.victim = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "victim"}, Spec: corev1.NodeSpec{ProviderID: "cloud://victim"}}
	s.must(s.admin.Create(t.Context(), s.victim))
	s.victim.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	s.must(s.admin.Status().Update(t.Context(), s.victim))
	sandboxtest.Eventually(t, "the account has its rights, and the policy is in force", func(ctx context.Context) bool {
		object := s.object(`{apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {name: first}, spec: {providerID: a, ` + providerSpec("{}") + `}}`)
		return isRefused(s.stranger.Create(ctx, object, client.DryRunAll))
	})
	return s
}

// providerSpec returns the field of a Machine for an ExternalMachine with a spec.
func providerSpec(spec string) string {
	return `providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine, spec: ` + spec + `}}`
}

// isRefused reports whether the policy has refused a request, and says which right it takes.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'machine-controller-nodes'") && strings.Contains(err.Error(), "the right to delete nodes")
}

// object returns an object of the namespace.
func (s *trustScene) object(text string) *unstructured.Unstructured {
	s.Helper()
	object := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal([]byte(text), &object.Object))
	object.SetNamespace(s.namespace)
	return object
}

const (
	openshiftAPI = "apiVersion: machine.openshift.io/v1beta1"
	clusterAPI   = "apiVersion: cluster.x-k8s.io/v1beta2"
	infraAPI     = "apiVersion: infrastructure.runlevel.dev/v1alpha1"

	victimsID        = "providerID: cloud://victim"
	victimsAddresses = "addresses: [{type: InternalIP, address: 10.0.0.7}]"

	referenceToFine = "infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: ExternalMachine, name: fine}, bootstrap: {dataSecretName: data}"
	ofSet           = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: "
)

// refusedObjects are objects that would have the controller take the victim, or create a Node.
func refusedObjects() map[string]string {
	ofClusterAPI := "{clusterName: c, " + victimsID + ", " + referenceToFine + "}"
	return map[string]string{
		"a providerID":                   openshiftAPI + ", kind: Machine, spec: {" + victimsID + ", " + providerSpec("{}") + "}",
		"a providerID in a providerSpec": openshiftAPI + ", kind: Machine, spec: {" + providerSpec("{"+victimsID+"}") + "}",
		"addresses in a providerSpec":    openshiftAPI + ", kind: Machine, spec: {" + providerSpec("{"+victimsAddresses+"}") + "}",
		"a simulated machine":            openshiftAPI + ", kind: Machine, spec: {providerSpec: {value: {" + infraAPI + ", kind: KwokMachine}}}",
		"a providerID in a set":          openshiftAPI + ", kind: MachineSet, spec: {" + ofSet + "{" + victimsID + ", " + providerSpec("{}") + "}}}",
		"addresses in a set":             openshiftAPI + ", kind: MachineSet, spec: {" + ofSet + "{" + providerSpec("{"+victimsAddresses+"}") + "}}}",

		"infrastructure with a providerID": infraAPI + ", kind: ExternalMachine, spec: {" + victimsID + "}",
		"infrastructure with addresses":    infraAPI + ", kind: ExternalMachine, spec: {" + victimsAddresses + "}",
		"simulated infrastructure":         infraAPI + ", kind: KwokMachine, spec: {" + victimsID + "}",
		"new simulated infrastructure":     infraAPI + ", kind: KwokMachine, spec: {}",
		"a template of simulated machines": infraAPI + ", kind: KwokMachineTemplate, spec: {template: {spec: {}}}",

		"Cluster API's Machine":           clusterAPI + ", kind: Machine, spec: " + ofClusterAPI,
		"Cluster API's MachineSet":        clusterAPI + ", kind: MachineSet, spec: {clusterName: c, " + ofSet + ofClusterAPI + "}}",
		"Cluster API's MachineDeployment": clusterAPI + ", kind: MachineDeployment, spec: {clusterName: c, " + ofSet + ofClusterAPI + "}}",
	}
}

// refusedPatches are changes that would have the controller take the victim for machines that the account has created.
func (s *trustScene) refusedPatches() map[string][2]string {
	external, machine, ofClusterAPI := infraAPI+", kind: ExternalMachine", openshiftAPI+", kind: Machine", clusterAPI+", kind: Machine"
	return map[string][2]string{
		"addresses of infrastructure":    {external, "spec: {" + victimsAddresses + "}"},
		"a providerID of infrastructure": {external, "spec: {" + victimsID + "}"},
		"the end of infrastructure":      {external, "spec: {terminated: true}"},
		"the status of infrastructure":   {external, "status: {" + victimsAddresses + "}"},
		"a providerID of a Machine":      {machine, "spec: {" + victimsID + "}"},
		"the nodeRef of a Machine":       {machine, fmt.Sprintf("status: {nodeRef: {kind: Node, name: victim, uid: %s}}", s.victim.UID)},
		"the addresses of a Machine":     {machine, "status: {" + victimsAddresses + "}"},
		"a providerID of Cluster API":    {ofClusterAPI, "spec: {" + victimsID + "}"},
		"the nodeRef of Cluster API":     {ofClusterAPI, "status: {nodeRef: {name: victim}}"},
	}
}

// TestNoNodeIsTakenWithoutARightOnNodes has an account with all rights on the machines and infrastructure of a namespace try to take
// a Node of no machine. Then an administrator creates a Machine for that Node.
func TestNoNodeIsTakenWithoutARightOnNodes(t *testing.T) {
	t.Parallel()
	s := newTrustScene(t, "machines", "machines/status", "machinesets", "machinedeployments",
		"externalmachines", "externalmachines/status", "kwokmachines", "externalmachinetemplates", "kwokmachinetemplates")
	cluster := "{" + clusterAPI + ", kind: Cluster, metadata: {name: c}, spec: {infrastructureRef: {apiGroup: a.b, kind: Any, name: any}}}"
	s.must(s.admin.Create(t.Context(), s.object(cluster)))
	for _, text := range []string{
		openshiftAPI + ", kind: Machine, spec: {" + providerSpec("{description: of the account}") + "}",
		clusterAPI + ", kind: Machine, spec: {clusterName: c, " + referenceToFine + "}",
	} {
		s.must(s.stranger.Create(t.Context(), s.object("{metadata: {name: fine}, "+text+"}")))
	}
	outside := s.object("{metadata: {name: outside}, " + openshiftAPI + ", kind: Machine, spec: {" + providerSpec("{}") + "}}")
	outside.SetNamespace(s.Namespace(t))
	s.must(s.admin.Create(t.Context(), outside))
	s.AwaitMachine(t, s.namespace, "fine", func(m *machinev1beta1.Machine) bool { return m.Status.Phase != nil })
	for what, text := range refusedObjects() {
		if err := s.stranger.Create(t.Context(), s.object("{metadata: {name: victim}, "+text+"}")); !isRefused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range s.refusedPatches() {
		object, patch := s.object("{metadata: {name: fine}, "+change[0]+"}"), client.RawPatch(types.MergePatchType, s.json("{"+change[1]+"}"))
		err := s.stranger.Patch(t.Context(), object, patch)
		if strings.HasPrefix(change[1], "status") {
			err = s.stranger.Status().Patch(t.Context(), object, patch)
		}
		if !isRefused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if t.Failed() {
		return
	}
	s.must(s.admin.Create(t.Context(), s.object("{metadata: {name: adopts}, "+openshiftAPI+", kind: Machine, spec: {"+providerSpec("{"+victimsID+"}")+"}}")))
	s.AwaitMachine(t, s.namespace, "adopts", func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && m.Status.NodeRef.UID == s.victim.UID
	})
	s.must(s.admin.Get(t.Context(), client.ObjectKeyFromObject(outside), outside))
	if len(outside.GetFinalizers()) > 0 || outside.Object["status"] != nil {
		t.Errorf("a Machine of a namespace that is not the controller's was reconciled: %v", outside.Object)
	}
}

func (s *trustScene) json(text string) []byte {
	s.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	s.must(err)
	return data
}
