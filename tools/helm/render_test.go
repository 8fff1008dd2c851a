package helm

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/manifests"
)

// objects are objects by their names.
type objects map[kinds.ID]map[string]any

// template runs "helm template" with a chart, and with the value that the operator's chart requires. The version of
// Kubernetes that Helm assumes in tests is too old.
func template(t *testing.T, name string, arguments ...string) (string, error) {
	t.Helper()
	all := []string{"template", "test", write(t, name, "v0.1.0"), "--kube-version=1.37.0",
		"--namespace=" + namespaceOf(name)}
	if name == operator {
		all = append(all, "--set=release=/")
	}
	return helm(t, append(all, arguments...)...)
}

// render returns what "helm template" prints of a chart.
func render(t *testing.T, name string, arguments ...string) objects {
	t.Helper()
	out, err := template(t, name, arguments...)
	if err != nil {
		t.Fatal(err, out)
	}
	return parse(t, []byte(out))
}

func parse(t *testing.T, text []byte) objects {
	t.Helper()
	found := objects{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 1<<20)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found.add(object)
	}
}

// add adds an object, without the annotation that a chart adds to definitions.
func (o objects) add(object *unstructured.Unstructured) {
	if annotations := object.GetAnnotations(); annotations["helm.sh/resource-policy"] == "keep" {
		delete(annotations, "helm.sh/resource-policy")
		object.SetAnnotations(annotations)
		if object.GetKind() != "CustomResourceDefinition" {
			object.SetKind("kept " + object.GetKind()) // which no manifest is
		}
	}
	o[kinds.IDOf(object)] = object.Object
}

// remove removes objects that must be there.
func (o objects) remove(t *testing.T, keys ...kinds.ID) {
	t.Helper()
	for _, id := range keys {
		if o[id] == nil {
			t.Errorf("no %s", id)
		}
		delete(o, id)
	}
}

func namespace(name string) kinds.ID { return kinds.NewID(kinds.Namespace, "", name) }

// kustomize returns what "kubectl kustomize" prints of folders.
func kustomize(t *testing.T, folders ...string) objects {
	t.Helper()
	var text []byte
	for _, folder := range folders {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
			filepath.Join("..", "..", folder))
		if err != nil {
			t.Fatal(err)
		}
		one, err := resources.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), one...)
	}
	return parse(t, bytes.ReplaceAll(text, []byte("registry.example/runlevel:v0.1.0"), []byte(imageOf("v0.1.0"))))
}

// sameText compares texts, but for the line ends that kustomize doubles in folded ones.
var sameText = cmp.Comparer(func(a, b string) bool {
	return strings.ReplaceAll(a, "\n\n ", "\n ") == strings.ReplaceAll(b, "\n\n ", "\n ")
})

func TestOperatorChartIsTheKustomization(t *testing.T) {
	want := kustomize(t, "install")
	want.remove(t, namespace("runlevel-system"))
	if diff := cmp.Diff(want, render(t, operator), sameText); diff != "" {
		t.Errorf("(-kubectl kustomize install, +helm template)\n%s", diff)
	}
	want = kustomize(t, "install", "install/monitoring")
	want.remove(t, namespace("runlevel-system"))
	if diff := cmp.Diff(want, render(t, operator, "--set=monitoring=true"), sameText); diff != "" {
		t.Errorf("with monitoring: (-kubectl kustomize, +helm template)\n%s", diff)
	}
}

func TestMachinesChartIsTheManifests(t *testing.T) {
	want := objects{}
	for _, object := range append(manifests.Objects(), manifests.Monitoring()...) {
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("registry.example/runlevel:placeholder"), []byte(imageOf("v0.1.0")))
		text = bytes.ReplaceAll(text, []byte("0.0.1-snapshot"), []byte("0.1.0"))
		maps.Copy(want, parse(t, text))
	}
	want.remove(t, namespace(machines), kinds.NewID(kinds.ClusterOperator, "", "machine-controller"))
	if diff := cmp.Diff(want, render(t, machines, "--set=monitoring=true")); diff != "" {
		t.Errorf("(-manifests, +helm template)\n%s", diff)
	}
}

// What Helm reports beside errors of the templates, such as unknown fields of Chart.yaml, is a warning.
func TestLint(t *testing.T) {
	for name, set := range map[string]string{operator: "release=/", machines: "replicas=1"} {
		path := write(t, name, "v0.1.0-rc.1")
		if out, err := helm(t, "lint", "--strict", "--namespace="+namespaceOf(name), path, "--set="+set); err != nil {
			t.Error(err, out)
		}
	}
}

// Each value changes the output where a user expects it.
func TestValues(t *testing.T) {
	for _, test := range []struct {
		chart  string
		values string
		want   string // in the output
	}{
		{operator, "image.repository=mirror.example:5000/runlevel",
			"image: " + strings.Replace(imageOf("v0.1.0"), "registry.example", "mirror.example:5000", 1) + "\n"},
		{operator, "image.tag=v0.1.1", "image: registry.example/runlevel:v0.1.1\n"},
		{operator, "image.digest=" + digest, "image: registry.example/runlevel@" + digest + "\n"},
		{operator, "image.tag=mine,image.digest=" + digest, "image: registry.example/runlevel@" + digest + "\n"},
		{operator, "image.pullPolicy=Always", "imagePullPolicy: Always\n"},
		{operator, "imagePullSecrets[0].name=registry", "imagePullSecrets:\n      - name: registry\n"},
		{operator, "release=example/shop@" + digest, "- --release-image=example/shop@" + digest + "\n"},
		{operator, "release=/shop", "- --payload-dir=/shop\n        - --config="},
		{operator, "settings.wait-for=ready", `operator.yaml: "wait-for: ready"`},
		{operator, "settings.wait-for=ready", "annotations:\n        runlevel.dev/settings: "},
		{operator, `applyRules=[{"verbs": ["get"], "resources": ["pods"]}]`,
			"rules:\n- resources:\n  - pods\n  verbs:\n  - get\n\n---"},
		{operator, "replicas=2", "replicas: 2\n"},
		{operator, "resources.limits.memory=1Gi", "memory: 1Gi\n          requests:\n            cpu: 20m\n"},
		{operator, "nodeSelector.disk=ssd", "nodeSelector:\n        disk: ssd\n        kubernetes.io/os: linux\n"},
		{operator, "tolerations[0].operator=Exists", "tolerations:\n      - operator: Exists\n      volumes:"},
		{operator, "labels.release=prometheus,monitoring=true", "release: prometheus\n  name: runlevel-operator\n"},
		{operator, "labels.app\\.kubernetes\\.io/name=mine",
			"      labels:\n        app.kubernetes.io/name: runlevel-operator\n"},
		{operator, "annotations.team=shop", "      annotations:\n        team: shop\n"},
		{machines, "settings.namespaces=shop", `machine-controller.yaml: "namespaces: shop"`},
	} {
		t.Run(test.values, func(t *testing.T) {
			t.Parallel()
			flag := "--set"
			if strings.Contains(test.values, "{") {
				flag = "--set-json"
			}
			out, err := template(t, test.chart, flag, test.values)
			if err != nil || !strings.Contains(out, test.want) {
				t.Errorf("got %v, want %q in\n%s", err, test.want, out)
			}
		})
	}
}

// Labels and annotations are on each object, also on those that no manifest has.
func TestLabelsAndAnnotations(t *testing.T) {
	values := "--set=monitoring=true,settings.a=b,labels.team=x,annotations.team=x"
	for id, object := range render(t, operator, values) {
		o := unstructured.Unstructured{Object: object}
		if o.GetLabels()["team"] != "x" || o.GetAnnotations()["team"] != "x" {
			t.Errorf("%s has labels %v and annotations %v", id, o.GetLabels(), o.GetAnnotations())
		}
	}
}

// A chart that depends on this one turns it on and off with a condition, mostly "enabled".
func TestChartIsADependency(t *testing.T) {
	parent := t.TempDir()
	const text = `{apiVersion: v2, name: parent, version: 1.0.0, dependencies: [
		{name: runlevel-operator, version: 0.1.0, condition: runlevel-operator.enabled}]}`
	if err := errors.Join(os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte(text), 0o600),
		os.CopyFS(filepath.Join(parent, "charts", operator), os.DirFS(write(t, operator, "v0.1.0")))); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"true": true, "false": false} {
		out, err := helm(t, "template", "test", parent, "--kube-version=1.37.0", inSystem,
			"--set=global.a=b,runlevel-operator.release=/,runlevel-operator.enabled="+value)
		if err != nil || strings.Contains(out, "kind: Deployment\n") != want {
			t.Errorf("enabled=%s: got error %v\n%s", value, err, out)
		}
	}
}

// Where Cluster API's own controllers run, its definitions are theirs.
func TestMachinesChartWithoutClusterAPI(t *testing.T) {
	for id := range render(t, machines, "--set=capabilities={MachineAPI}") {
		if strings.HasSuffix(id.Name, ".cluster.x-k8s.io") || strings.Contains(id.Name, "cluster-api") {
			t.Errorf("the chart has %s", id)
		}
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	for _, test := range []struct{ chart, values, want string }{
		{operator, "replica=2", "additional properties 'replica' not allowed"},
		{operator, "image.version=2", "at '/image': additional properties 'version' not allowed"},
		{operator, "replicas=-1", "at '/replicas': minimum"},
		{operator, "replicas=two", "at '/replicas': got string, want integer"},
		{operator, "image.digest=sha256:1", "at '/image/digest': 'sha256:1' does not match pattern"},
		{operator, "image.repository=registry.example/r:v1", "at '/image/repository': 'registry.example/r:v1'"},
		{operator, "image.tag= x", "at '/image/tag': ' x' does not match pattern"},
		{operator, "image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"},
		{operator, "release=null", "release is missing: set it to an image by its digest"},
		{operator, "release=", "release is missing: set it to an image by its digest"},
		{operator, "release=registry.example/shop:latest", "at '/release': 'registry.example/shop:latest' does not"},
		{operator, "release=/a b", "at '/release': '/a b' does not match pattern"},
		{operator, "settings.feature-gates={a,b}", "at '/settings/feature-gates': got array"},
		{operator, "tolerations[0].opertor=Exists", "additional properties 'opertor' not allowed"},
		{operator, "applyRules[0].resources[0]=pods,applyRules[0].verb[0]=get",
			"additional properties 'verb' not allowed"},
		{machines, "release=/", "additional properties 'release' not allowed"},
		{machines, "capabilities={ClusterAPI}", "at '/capabilities': no items match contains schema"},
	} {
		t.Run(test.values, func(t *testing.T) {
			t.Parallel()
			out, err := template(t, test.chart, "--set", test.values)
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("got error %v, want %q in\n%s", err, test.want, out)
			}
		})
	}
}

func TestAnotherNamespaceIsRefused(t *testing.T) {
	out, err := template(t, operator, "--namespace=default")
	const want = `in namespace runlevel-system: use "--namespace runlevel-system --create-namespace"`
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("got error %v, want %q in\n%s", err, want, out)
	}
}
