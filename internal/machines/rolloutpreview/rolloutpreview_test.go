package rolloutpreview_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

var stage = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// deployment is a MachineDeployment with its maxSurge, maxUnavailable, version and template.
const deployment = `apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: web}
spec:
  clusterName: c
  replicas: 3
  selector: {matchLabels: {role: web}}
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: %d, maxUnavailable: %d}}}
  template:
    metadata: {labels: {role: web}}
    spec:
      clusterName: c
      version: %s
      bootstrap: {dataSecretName: none}
      infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: KwokMachineTemplate, name: %s}
`

const large = "---\napiVersion: infrastructure.runlevel.dev/v1alpha1\nkind: KwokMachineTemplate\nmetadata: {name: " +
	"large}\nspec: {template: {spec: {startAfter: 5s}}}\n"

// newDeployment creates the deployment with a set of three machines of version v1, as controllers leave them.
func newDeployment(t *testing.T) *scene {
	t.Helper()
	s := &scene{stage.NewFixture(t)}
	create := func(object client.Object) {
		object.SetNamespace(s.Namespace)
		s.MustCreate(object)
	}
	small := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(
		[]byte(strings.NewReplacer("large", "small", "startAfter: 5s", "").Replace(large[len("---\n"):])),
		&small.Object,
	); err != nil {
		t.Fatal(err)
	}
	create(small)
	d := &clusterv1.MachineDeployment{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, deployment, 1, 0, "v1", "small"), d); err != nil {
		t.Fatal(err)
	}
	create(d)
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}}}
	set.Spec = clusterv1.MachineSetSpec{
		ClusterName: "c",
		Replicas:    ptr.To[int32](3),
		Selector:    d.Spec.Selector,
		Template:    d.Spec.Template,
	}
	create(set)
	for _, name := range []string{"m1", "m2", "m3"} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet")),
			}}}
		m.Spec = d.Spec.Template.Spec
		m.Spec.InfrastructureRef.Kind = "KwokMachine"
		create(m)
		before := m.DeepCopy()
		m.Status.NodeRef.Name = name
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type:   clusterv1.MachineAvailableCondition,
			Status: metav1.ConditionTrue,
			Reason: clusterv1.MachineAvailableReason,
		})
		s.Must(s.Client.Status().Patch(t.Context(), m, client.MergeFrom(before)))
	}
	return s
}

// deploymentQuery is the query for the MachineDeployment of a scene.
var deploymentQuery = rolloutpreview.Query{Kind: rolloutpreview.DeploymentKind, Name: "web"}

// previewDeployment makes the preview of a wanted deployment.
func (s *scene) previewDeployment(extension rolloutpreview.ExtensionQuery,
	wanted string) *rolloutpreview.DeploymentPreview {
	s.Helper()
	q := deploymentQuery
	q.Extension = extension
	p, err := s.makePreview(q, wanted)
	s.Must(err)
	return p.(*rolloutpreview.DeploymentPreview)
}

// TestDeploymentPreviews compares the previews of rollouts: in place, with a change that the extension does not cover,
// without an extension, and with an extension that does not answer.
func TestDeploymentPreviews(t *testing.T) {
	s := newDeployment(t)
	extension, covering := versionExtension(t)
	const head = "MachineDeployment web\n"
	for name, test := range map[string]struct {
		wanted       string
		hasExtension bool
		url          string
		want         string
	}{
		"no change": {
			wanted: fmt.Sprintf(deployment, 1, 1, "v1", "small"),
			want:   head + "no machine is updated or replaced: the changed fields are updated on the existing machines",
		},
		"replicas are left to an " +
			"autoscaler": {wanted: strings.NewReplacer("  replicas: 3\n", "", "{name: web}\n",
			`{name: web, annotations: {
			cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: "1", cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: "5"}}`+"\n",
		).Replace(fmt.Sprintf(deployment, 1, 1, "v1", "small")), want: head + "no machine is updated or replaced"},
		"in place": {wanted: fmt.Sprintf(deployment, 0, 1, "v2", "small"), hasExtension: true,
			want: head + `MachineSet web-1, machines: 3
  changes: Version v1, v2 required
  updated in place by extension can.extension

  1  update in place  m1  (3 available, 2 needed)
  2  update in place  m2  (3 available, 2 needed)
  3  update in place  m3  (3 available, 2 needed)
updated in place: 3, created: 0, deleted: 0`},
		"not covered": {wanted: fmt.Sprintf(deployment, 0, 2, "v2", "large") + large, hasExtension: true,
			want: head + `MachineSet web-1, machines: 3
  changes: Version v1, v2 required
  changes: KwokMachine is not up-to-date
  replaced: infrastructureMachineTemplate spec.template.spec.startAfter is not covered by extension can.extension

  1  delete           m1  (3 available, 1 needed)
  1  delete           m2  (3 available, 1 needed)
  2  create           new 1`},
		"no extension": {wanted: fmt.Sprintf(deployment, 1, 0, "v2", "small"),
			want: head + `MachineSet web-1, machines: 3
  changes: Version v1, v2 required
  replaced: no extension serves the hook CanUpdateMachineSet in this namespace

  1  create           new 1  (3 machines, 4 allowed)
  2  delete           m1  (`},
		"no answer": {wanted: fmt.Sprintf(deployment, 1, 0, "v2", "small"),
			url: "https://" + runtimehooktest.FreeAddress(t), want: head + `MachineSet web-1, machines: 3
  changes: Version v1, v2 required
not asked: extension extension can't be reached at 127.0.0.1:`},
	} {
		query := rolloutpreview.ExtensionQuery{URL: test.url}
		if test.hasExtension {
			query = covering
		}
		if got := s.textOf(s.previewDeployment(query, test.wanted)); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(test.want, got))
		}
	}
	s.testRegisteredExtension(extension)
	_, err := s.makePreview(deploymentQuery, fmt.Sprintf(deployment, 1, 0, "v2", "large"))
	const want = "KwokMachineTemplate large is neither in new.yaml nor on the cluster: add it to new.yaml"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// testRegisteredExtension previews rollouts with an ExtensionConfig, before and after its handlers are discovered.
func (s *scene) testRegisteredExtension(extension *runtimehooktest.Extension) {
	s.Helper()
	wanted := fmt.Sprintf(deployment, 0, 1, "v2", "small")
	config := extension.Register(s, s.Client, s.Namespace)
	got := s.textOf(s.previewDeployment(rolloutpreview.ExtensionQuery{}, wanted))
	if want := "not asked: extension " + s.Namespace + " is not discovered yet"; !strings.Contains(got, want) {
		s.Errorf("with a new ExtensionConfig: got %s, want %s", got, want)
	}
	runtimehooktest.Discover(s, s.Client, config, runtimev1.FailurePolicyFail, "CanUpdateMachineSet", "UpdateMachine")
	got = s.textOf(s.previewDeployment(rolloutpreview.ExtensionQuery{}, wanted))
	want := "  updated in place by extension canupdatemachineset." + s.Namespace + "\n"
	if !strings.Contains(got, want) {
		s.Errorf("with an ExtensionConfig: got %s, want %s", got, want)
	}
}

// TestReadRefusesDeployments checks that errors name the document and the field.
func TestReadRefusesDeployments(t *testing.T) {
	valid := fmt.Sprintf(deployment, 1, 0, "v2", "small")
	testRefusals(t, deploymentQuery, map[string]string{
		"":               "new.yaml does not contain MachineDeployment web of cluster.x-k8s.io/v1beta2",
		large:            "new.yaml does not contain MachineDeployment web of cluster.x-k8s.io/v1beta2",
		valid + "---\n{": "new.yaml, document 2: ",
		valid + "---\napiVersion: v1\nkind: Secret": `new.yaml, document 2: kind "Secret" is neither a ` +
			`MachineDeployment nor a template`,
		valid + "---\n" + valid: "new.yaml, document 2: MachineDeployment web is defined twice",
		strings.Replace(valid, "replicas: 3", "replicsa: 3", 1): "new.yaml, document 1: MachineDeployment web: " +
			`unknown field "spec.replicsa"`,
		strings.Replace(valid, "replicas: 3", "replicas: all", 1): "new.yaml, document 1: MachineDeployment web: " +
			"json: cannot unmarshal string into Go struct field MachineDeploymentSpec.spec.replicas",
		strings.Replace(valid, "maxSurge: 1", "maxSurge: 0", 1): "new.yaml, document 1: MachineDeployment web: " +
			"spec.rollout.strategy.rollingUpdate: maxSurge and maxUnavailable are both 0",
		strings.Replace(valid, "name: web", "name: other", 1): "new.yaml, document 1: unexpected MachineDeployment " +
			"other of cluster.x-k8s.io/v1beta2, expected MachineDeployment web of cluster.x-k8s.io/v1beta2",
	})
}
