package manager_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A trustScene is a control plane with the shipped controller, and a Node that does not belong to a machine.
type trustScene struct {
	*rightsScene
	stranger client.Client // an account with some rights in the namespace
	victim   *corev1.Node
}

// newTrustScene starts the controller for one namespace, and creates an account that may do everything with some
// resources of the namespace.
func newTrustScene(t *testing.T, resources ...string) *trustScene {
	t.Helper()
	s := &trustScene{rightsScene: newRightsScene(t, sandbox.Options{Nodes: sandbox.NoNodes})}
	s.run(s.Namespace)
	s.stranger = s.account("stranger", allOf(resources...))
	s.victim = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"},
		Spec:       corev1.NodeSpec{ProviderID: "cloud://victim"},
	}
	s.MustCreate(s.victim)
	s.victim.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	s.Must(s.Status().Update(t.Context(), s.victim))
	sandboxtest.Eventually(t, "the account has its rights, and the policy is in force", func(ctx context.Context) bool {
		object := s.object(`{apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {name: first}, spec: {providerID: a, ` + providerSpec("{}") + `}}`)
		return isRefused(s.stranger.Create(ctx, object, client.DryRunAll))
	})
	return s
}

// allOf returns all rights on some resources of machines and their infrastructure.
func allOf(resources ...string) rbacv1.PolicyRule {
	groups := []string{"machine.openshift.io", "cluster.x-k8s.io", "infrastructure.runlevel.dev"}
	return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: []string{"*"}}
}

// account returns the client of an account with rights in the namespace.
func (s *trustScene) account(name string, may rbacv1.PolicyRule) client.Client {
	s.Helper()
	connected, err := client.New(s.shared.Account(s, s.Namespace, name, may), client.Options{Scheme: s.Scheme()})
	s.Must(err)
	return connected
}

// providerSpec returns the field of a Machine for an ExternalMachine with a spec.
func providerSpec(spec string) string {
	return `providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine, spec: ` +
		spec + `}}`
}

// isRefused reports whether the policy has refused a request, and reports which right it takes.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'machine-controller-nodes'") &&
		strings.Contains(err.Error(), "the right to delete nodes")
}

// object returns an object of the namespace.
func (s *trustScene) object(text string) *unstructured.Unstructured {
	s.Helper()
	object := &unstructured.Unstructured{}
	s.Must(yaml.Unmarshal([]byte(text), &object.Object))
	object.SetNamespace(s.Namespace)
	return object
}

const (
	openshiftAPI = "apiVersion: machine.openshift.io/v1beta1"
	clusterAPI   = "apiVersion: cluster.x-k8s.io/v1beta2"
	infraAPI     = "apiVersion: infrastructure.runlevel.dev/v1alpha1"

	victimsID        = "providerID: cloud://victim"
	victimsAddresses = "addresses: [{type: InternalIP, address: 10.0.0.7}]"

	referenceToFine = "infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: ExternalMachine, name: " +
		"fine}, bootstrap: {dataSecretName: data}"
	ofSet = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: "
)

// refusedObjects are objects that would have the controller take the victim, or create a Node.
func refusedObjects() map[string]string {
	ofClusterAPI := "{clusterName: c, " + victimsID + ", " + referenceToFine + "}"
	return map[string]string{
		"a providerID": openshiftAPI + ", kind: Machine, spec: {" + victimsID + ", " +
			providerSpec("{}") + "}",
		"a providerID in a providerSpec": openshiftAPI + ", kind: Machine, spec: {" + providerSpec("{"+victimsID+"}") +
			"}",
		"addresses in a providerSpec": openshiftAPI + ", kind: Machine, spec: {" +
			providerSpec("{"+victimsAddresses+"}") + "}",
		"a simulated machine": openshiftAPI + ", kind: Machine, spec: {providerSpec: {value: {" + infraAPI +
			", kind: KwokMachine}}}",
		"a providerID in a set": openshiftAPI + ", kind: MachineSet, spec: {" + ofSet + "{" + victimsID +
			", " + providerSpec("{}") + "}}}",
		"addresses in a set": openshiftAPI + ", kind: MachineSet, spec: {" + ofSet + "{" +
			providerSpec("{"+victimsAddresses+"}") + "}}}",

		"a providerID in a control plane": controlPlane("{" + victimsID + ", " + providerSpec("{}") + "}"),
		"addresses in a failure domain": controlPlane("{providerSpec: {value: {" + infraAPI +
			", kind: ExternalMachine, failureDomains: [{" +
			victimsAddresses + "}]}}}"),

		"infrastructure with a providerID": infraAPI + ", kind: ExternalMachine, spec: {" + victimsID + "}",
		"infrastructure with addresses":    infraAPI + ", kind: ExternalMachine, spec: {" + victimsAddresses + "}",
		"simulated infrastructure":         infraAPI + ", kind: KwokMachine, spec: {" + victimsID + "}",
		"new simulated infrastructure":     infraAPI + ", kind: KwokMachine, spec: {}",
		"a template of simulated machines": infraAPI + ", kind: KwokMachineTemplate, spec: {template: {spec: {}}}",

		"Cluster API's Machine": clusterAPI + ", kind: Machine, spec: " + ofClusterAPI,
		"Cluster API's MachineSet": clusterAPI + ", kind: MachineSet, spec: {clusterName: c, " + ofSet +
			ofClusterAPI + "}}",
		"Cluster API's MachineDeployment": clusterAPI + ", kind: MachineDeployment, spec: {clusterName: c, " + ofSet +
			ofClusterAPI + "}}",
	}
}

// controlPlane returns a ControlPlaneMachineSet with a template.
func controlPlane(spec string) string {
	labels := "{a: b, machine.openshift.io/cluster-api-cluster: c, machine.openshift.io/cluster-api-machine-role: " +
		"master, " +
		"machine.openshift.io/cluster-api-machine-type: master}"
	return "apiVersion: machine.openshift.io/v1, kind: ControlPlaneMachineSet, metadata: {name: cluster}, spec: " +
		"{replicas: 3, " +
		"selector: {matchLabels: {a: b}}, template: {machineType: machines_v1beta1_machine_openshift_io, " +
		"machines_v1beta1_machine_openshift_io: {metadata: {labels: " + labels + "}, spec: " + spec + "}}}"
}

// refusedPatches are changes that would have the controller take the victim for machines that the account has created.
func (s *trustScene) refusedPatches() map[string][2]string {
	external, machine, ofClusterAPI := infraAPI+", kind: ExternalMachine", openshiftAPI+", kind: Machine", clusterAPI+
		", kind: Machine"
	return map[string][2]string{
		"addresses of infrastructure":    {external, "spec: {" + victimsAddresses + "}"},
		"a providerID of infrastructure": {external, "spec: {" + victimsID + "}"},
		"the end of infrastructure":      {external, "spec: {terminated: true}"},
		"the status of infrastructure":   {external, "status: {" + victimsAddresses + "}"},
		"a providerID of a Machine":      {machine, "spec: {" + victimsID + "}"},
		"the nodeRef of a Machine": {machine,
			fmt.Sprintf("status: {nodeRef: {kind: Node, name: victim, uid: %s}}", s.victim.UID)},
		"the addresses of a Machine":  {machine, "status: {" + victimsAddresses + "}"},
		"a providerID of Cluster API": {ofClusterAPI, "spec: {" + victimsID + "}"},
		"the nodeRef of Cluster API":  {ofClusterAPI, "status: {nodeRef: {name: victim}}"},
	}
}

// TestNoNodeIsTakenWithoutARightOnNodes has an account with all rights on the machines and infrastructure of a
// namespace try to take a Node of no machine. Then an administrator creates a Machine for that Node.
func TestNoNodeIsTakenWithoutARightOnNodes(t *testing.T) {
	t.Parallel()
	s := newTrustScene(t, "machines", "machines/status", "machinesets", "machinedeployments", "controlplanemachinesets",
		"externalmachines", "externalmachines/status", "kwokmachines", "externalmachinetemplates",
		"kwokmachinetemplates")
	cluster := "{" + clusterAPI +
		", kind: Cluster, metadata: {name: c}, spec: {infrastructureRef: {apiGroup: a.b, kind: Any, name: any}}}"
	s.Must(s.Create(t.Context(), s.object(cluster)))
	for _, text := range []string{
		openshiftAPI + ", kind: Machine, spec: {" + providerSpec("{description: of the account}") + "}",
		clusterAPI + ", kind: Machine, spec: {clusterName: c, " + referenceToFine + "}",
	} {
		s.Must(s.stranger.Create(t.Context(), s.object("{metadata: {name: fine}, "+text+"}")))
	}
	outside := s.object("{metadata: {name: outside}, " + openshiftAPI + ", kind: Machine, spec: {" +
		providerSpec("{}") + "}}")
	outside.SetNamespace(s.shared.Namespace(t))
	s.MustCreate(outside)
	s.AwaitMachine("fine", func(m *machinev1beta1.Machine) bool { return m.Status.Phase != nil })
	odd := "{metadata: {name: odd}, " + openshiftAPI + ", kind: Machine, spec: {providerSpec: {value: {" + infraAPI +
		", kind: RackMachine, spec: any, failureDomains: any}}}}"
	s.Must(s.stranger.Create(t.Context(), s.object(odd), client.DryRunAll)) // the provider refuses this object
	for what, text := range refusedObjects() {
		if !strings.Contains(text, "metadata: {name: ") {
			text = "metadata: {name: victim}, " + text
		}
		if err := s.stranger.Create(t.Context(), s.object("{"+text+"}")); !isRefused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range s.refusedPatches() {
		object, patch := s.object("{metadata: {name: fine}, "+change[0]+"}"),
			client.RawPatch(types.MergePatchType, s.json("{"+change[1]+"}"))
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
	s.Must(s.Create(t.Context(),
		s.object("{metadata: {name: adopts}, "+openshiftAPI+", kind: Machine, spec: {"+providerSpec("{"+victimsID+"}")+
			"}}")))
	s.AwaitMachine("adopts", func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && m.Status.NodeRef.UID == s.victim.UID
	})
	s.Must(s.Get(t.Context(), client.ObjectKeyFromObject(outside), outside))
	if len(outside.GetFinalizers()) > 0 || outside.Object["status"] != nil {
		t.Errorf("Machine of another namespace: got %v, want no finalizers and no status", outside.Object)
	}
}

func (s *trustScene) json(text string) []byte {
	s.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	s.Must(err)
	return data
}

// TestAccountsWithOneRight has accounts with the rights of a machine hook, of a provider or of an editor of
// ExtensionConfigs try more.
func TestAccountsWithOneRight(t *testing.T) {
	t.Parallel()
	s := newTrustScene(t, "machines")
	s.Must(s.stranger.Create(t.Context(),
		s.object("{metadata: {name: fine}, "+openshiftAPI+", kind: Machine, spec: {"+providerSpec("{}")+"}}")))
	hook := s.account("hook", rbacv1.PolicyRule{
		APIGroups: []string{"machine.openshift.io"},
		Resources: []string{"machines"},
		Verbs:     []string{"get", "patch"},
	})
	t.Run("a hook", func(t *testing.T) {
		machine := s.object("{metadata: {name: fine}, " + openshiftAPI + ", kind: Machine}")
		change := func(text string) error {
			return hook.Patch(t.Context(), machine, client.RawPatch(types.MergePatchType, s.json(text)))
		}
		sandboxtest.Eventually(t, "the hook is set", func(context.Context) bool {
			return change("{spec: {lifecycleHooks: {preDrain: [{name: Backup, owner: shop}]}}}") == nil
		})
		if err := change("{spec: {" + victimsID + "}}"); !isRefused(err) {
			t.Errorf("a providerID: %v", err)
		}
	})
	for group, also := range map[string]string{"infrastructure.cluster.x-k8s.io": "",
		"rack.example.com": documentedBinding(t)} {
		t.Run("a user and a provider of "+group, func(t *testing.T) {
			sandboxtest.Apply(t, s.shared.Connect(t), strings.ReplaceAll(rackMachines, "GROUP", group))
			if also != "" {
				sandboxtest.Apply(t, s.shared.Connect(t), also)
			}
			name, _, _ := strings.Cut(group, ".")
			rights := func(resources ...string) rbacv1.PolicyRule {
				return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"*"}}
			}
			user, provider := s.account(name+"-user", rights("rackmachines")),
				s.account(name+"-provider", rights("rackmachines", "rackmachines/status"))
			odd := "{metadata: {name: odd}, apiVersion: " + group +
				"/v1, kind: RackMachine, spec: {template: ubuntu, providerSpec: any}}"
			sandboxtest.Eventually(t, "the user creates a machine", func(context.Context) bool {
				return user.Create(t.Context(), s.object(odd)) == nil
			})
			identified := func(by client.Client) error {
				return by.Create(t.Context(),
					s.object("{metadata: {generateName: r-}, apiVersion: "+group+"/v1, kind: RackMachine, spec: {"+
						victimsID+"}}"))
			}
			sandboxtest.Eventually(t, "the provider sets a providerID", func(context.Context) bool {
				return identified(provider) == nil
			})
			sandboxtest.Eventually(t, "the user can't", func(context.Context) bool {
				return isRefused(identified(user))
			})
		})
	}
	t.Run("an editor of ExtensionConfigs", func(t *testing.T) {
		s.extensionsOnly(t)
	})
}

// documentedBinding is the binding of docs/providers.md, by which a provider has its kind protected.
func documentedBinding(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "kind: ValidatingAdmissionPolicyBinding\n")
	binding, _, isFound := strings.Cut(rest, "```")
	if !isFound {
		t.Fatal("docs/providers.md has no binding")
	}
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n" + binding
}

const rackMachines = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rackmachines.GROUP, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: GROUP
  names: {kind: RackMachine, plural: rackmachines, singular: rackmachine, listKind: RackMachineList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}},
     schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// extensionsOnly has an account that may only write ExtensionConfigs name a Secret with a certificate authority: the
// controller reads it no more than the account does.
func (s *trustScene) extensionsOnly(t *testing.T) {
	t.Helper()
	editor := s.account("extensions",
		rbacv1.PolicyRule{APIGroups: []string{"any"}, Resources: []string{"any"}, Verbs: []string{"get"}})
	object := metav1.ObjectMeta{Name: "extensions"}
	s.MustCreate(&rbacv1.ClusterRole{ObjectMeta: object, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"runtime.cluster.x-k8s.io"},
			Resources: []string{"extensionconfigs"},
			Verbs:     []string{"*"},
		},
	}})
	s.MustCreate(&rbacv1.ClusterRoleBinding{
		ObjectMeta: object, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: object.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: "extensions"}},
	})
	secret := &corev1.Secret{
		ObjectMeta: s.named("password"),
		Data:       map[string][]byte{"ca.crt": runtimehooktest.New(t).CA()},
	}
	s.MustCreate(secret)
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "ext", Annotations: map[string]string{
		runtimev1.InjectCAFromSecretAnnotation: s.Namespace + "/" + secret.Name,
	}}}
	config.Spec.ClientConfig.URL = "https://127.0.0.1:1"
	sandboxtest.Eventually(t, "the ExtensionConfig is created", func(context.Context) bool {
		return editor.Create(t.Context(), config) == nil
	})
	config = machinetest.Await(t, editor, config, client.ObjectKeyFromObject(config),
		func(c *runtimev1.ExtensionConfig) bool {
			condition := meta.FindStatusCondition(c.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
			return condition != nil && strings.Contains(condition.Message, "the controller has no right to read it")
		})
	if len(config.Spec.ClientConfig.CABundle) > 0 {
		t.Error("the ExtensionConfig has the Secret's ca.crt")
	}
	machine := s.object("{metadata: {name: fine}, " + openshiftAPI + ", kind: Machine}")
	if err := editor.Delete(t.Context(), machine); !apierrors.IsForbidden(err) {
		t.Errorf("a Machine is deleted: %v", err)
	}
}
