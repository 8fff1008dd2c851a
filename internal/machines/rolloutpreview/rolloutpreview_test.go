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

// deployment is a MachineDeployment with its version, its template, and how many machines may be too many and too few.
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

// newMachines makes the deployment with a set of three machines of version v1, as controllers leave them, and returns
// its namespace.
func newMachines(t *testing.T) string {
	t.Helper()
	namespace, c := stage.Namespace(t), stage.Client(t)
	create := func(object client.Object) {
		t.Helper()
		object.SetNamespace(namespace)
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
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
		if err := c.Status().Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	return namespace
}

// TestPreviews compares what is shown of rollouts: in place, with a change that the extension does not cover, without
// an extension, and with one that does not answer.
func TestPreviews(t *testing.T) {
	namespace := newMachines(t)
	extension := runtimehooktest.New(t)
	const handler = `{"name":"%s","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"%s"}}`
	extension.Answer("Discovery",
		fmt.Sprintf(`{"status":"Success","handlers":[`+handler+`,`+handler+`]}`, "can", "CanUpdateMachineSet", "do",
			"UpdateMachine"))
	extension.Answer("CanUpdateMachineSet",
		`{"status":"Success","machineSetPatch":{"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9zcGVjL3RlbXBsYXRlL3NwZWMvdmVyc2lvbiIsInZhbHVlIjoidjIifV0="}}`)
	head := "MachineDeployment " + namespace + "/web\n"
	for name, test := range map[string]struct {
		wanted       string
		hasExtension bool
		url          string
		want         string
	}{
		"nothing changes": {
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
		q := rolloutpreview.PreviewQuery{Namespace: namespace, Extension: rolloutpreview.ExtensionQuery{URL: test.url}}
		if test.hasExtension {
			q.Extension.URL, q.Extension.CA = extension.ClientConfig().URL, extension.CA()
		}
		var err error
		if q.Wanted, err = rolloutpreview.Read("new.yaml", []byte(test.wanted), "web"); err != nil {
			t.Fatal(err)
		}
		p, err := rolloutpreview.Preview(t.Context(), stage.Connect(t), q)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := strings.Join(p.Lines(), "\n"); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(test.want, got))
		}
	}
	config := extension.Register(t, stage.Client(t), namespace)
	if got, want := previewOf(t, namespace, fmt.Sprintf(deployment, 0, 1, "v2", "small")), "not asked: extension "+
		namespace+" is not discovered yet"; !strings.Contains(got, want) {
		t.Errorf("with an ExtensionConfig that is new: %s, want %s", got, want)
	}
	runtimehooktest.Discover(t, stage.Client(t), config, runtimev1.FailurePolicyFail, "CanUpdateMachineSet",
		"UpdateMachine")
	if got, want := previewOf(t, namespace, fmt.Sprintf(deployment, 0, 1, "v2", "small")), "  updated in place by "+
		"extension canupdatemachineset."+namespace+"\n"; !strings.Contains(got, want) {
		t.Errorf("with an ExtensionConfig: %s, want %s", got, want)
	}
	q := rolloutpreview.PreviewQuery{Namespace: namespace}
	q.Wanted, _ = rolloutpreview.Read("new.yaml", fmt.Appendf(nil, deployment, 1, 0, "v2", "large"), "web")
	_, err := rolloutpreview.Preview(t.Context(), stage.Connect(t), q)
	if want := "KwokMachineTemplate large is neither in new.yaml nor on the cluster: add it to new.yaml"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// previewOf previews a wanted deployment with the extensions of the cluster.
func previewOf(t *testing.T, namespace, wanted string) string {
	t.Helper()
	q := rolloutpreview.PreviewQuery{Namespace: namespace}
	var err error
	if q.Wanted, err = rolloutpreview.Read("new.yaml", []byte(wanted), "web"); err != nil {
		t.Fatal(err)
	}
	p, err := rolloutpreview.Preview(t.Context(), stage.Connect(t), q)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(p.Lines(), "\n")
}

// TestFilesThatAreRefused names the document and the field.
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	valid := fmt.Sprintf(deployment, 1, 0, "v2", "small")
	for text, want := range map[string]string{
		"":               "new.yaml has no MachineDeployment web: write it as it is to be",
		large:            "new.yaml has no MachineDeployment web: write it as it is to be",
		valid + "---\n{": "new.yaml, document 2: ",
		valid +
			"---\napiVersion: v1\nkind: Secret": `new.yaml, document 2: kind: it is "Secret", which is neither a MachineDeployment nor a template`,
		valid + "---\n" + valid: "new.yaml, document 2: it is the MachineDeployment once more: leave one",
		strings.Replace(valid, "replicas: 3", "replicsa: 3",
			1): `new.yaml, document 1: MachineDeployment web: unknown field "spec.replicsa"`,
		strings.Replace(valid, "replicas: 3", "replicas: all", 1): "new.yaml, document 1: MachineDeployment web: " +
			"json: cannot unmarshal string into Go struct field MachineDeploymentSpec.spec.replicas",
		strings.Replace(valid, "maxSurge: 1", "maxSurge: 0", 1): "new.yaml, document 1: MachineDeployment web: " +
			"spec.rollout.strategy.rollingUpdate: maxSurge and maxUnavailable are both 0",
		strings.Replace(valid, "name: web", "name: other", 1): "new.yaml, document 1: it is a MachineDeployment " +
			"other of cluster.x-k8s.io/v1beta2: write MachineDeployment web of",
	} {
		if _, err := rolloutpreview.Read("new.yaml", []byte(text), "web"); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
