package manifests

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "copy the definitions from the module that has them")

// definitions are the files of definitions, and where the module github.com/openshift/api has them.
var definitions = map[string]string{
	"0000_30_machine-controller_01_controlplanemachinesets.crd.yaml": "v1/zz_generated.crd-manifests/0000_10_control-plane-machine-set_01_controlplanemachinesets-Default.crd.yaml",
	"0000_30_machine-controller_01_machines.crd.yaml":                "v1beta1/zz_generated.crd-manifests/0000_10_machine-api_01_machines-Default.crd.yaml",
	"0000_30_machine-controller_01_machinesets.crd.yaml":             "v1beta1/zz_generated.crd-manifests/0000_10_machine-api_01_machinesets-Default.crd.yaml",
	"0000_30_machine-controller_01_machinehealthchecks.crd.yaml":     "v1beta1/zz_generated.crd-manifests/0000_10_machine-api_01_machinehealthchecks.crd.yaml",
}

// clusterAPI are the files of Cluster API's definitions, and where the module sigs.k8s.io/cluster-api has them.
var clusterAPI = map[string]string{
	"0000_30_machine-controller_01_cluster-api-clusters.crd.yaml":            "cluster.x-k8s.io_clusters.yaml",
	"0000_30_machine-controller_01_cluster-api-extensionconfigs.crd.yaml":    "runtime.cluster.x-k8s.io_extensionconfigs.yaml",
	"0000_30_machine-controller_01_cluster-api-machinedeployments.crd.yaml":  "cluster.x-k8s.io_machinedeployments.yaml",
	"0000_30_machine-controller_01_cluster-api-machinedrainrules.crd.yaml":   "cluster.x-k8s.io_machinedrainrules.yaml",
	"0000_30_machine-controller_01_cluster-api-machinehealthchecks.crd.yaml": "cluster.x-k8s.io_machinehealthchecks.yaml",
	"0000_30_machine-controller_01_cluster-api-machines.crd.yaml":            "cluster.x-k8s.io_machines.yaml",
	"0000_30_machine-controller_01_cluster-api-machinesets.crd.yaml":         "cluster.x-k8s.io_machinesets.yaml",
}

func TestDefinitionsAreThoseOfTheModule(t *testing.T) {
	found, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/openshift/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(strings.TrimSpace(string(found)), "machine")
	compareDefinitions(t, module, definitions, func(definition []byte) []byte {
		return withLabelSelector(t, forAllFeatureSets(definition))
	})
}

// withLabelSelector returns the definition of MachineSets with the field status.labelSelector, from which the scale
// subresource has its selector. OpenShift has the field since April 2026. The module that Runlevel imports is older:
// its definition has the path of the field, but not the field, so the API server would drop the value.
func withLabelSelector(t *testing.T, definition []byte) []byte {
	t.Helper()
	if !bytes.Contains(definition, []byte("  name: machinesets.machine.openshift.io\n")) {
		return definition
	}
	if bytes.Contains(definition, []byte("\n              labelSelector:\n")) {
		t.Fatal("the module has status.labelSelector of MachineSets by now: remove withLabelSelector, and have " +
			"package machineset write the field of its type")
	}
	const next = "              observedGeneration:\n"
	const field = `              labelSelector:
                description: |-
                  labelSelector is spec.selector as text. Autoscalers read it from
                  the scale subresource.
                type: string
`
	return bytes.Replace(definition, []byte(next), []byte(field+next), 1)
}

// The module is not one that Runlevel is built of, so it may have to be downloaded.
func TestDefinitionsAreThoseOfTheModuleOfClusterAPI(t *testing.T) {
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/cluster-api")
	download.Dir = "clusterapi"
	text, err := download.Output()
	if err != nil {
		t.Skip("Cluster API's module can't be downloaded here:", err, string(text))
	}
	var module struct{ Dir string }
	if err := yaml.Unmarshal(text, &module); err != nil {
		t.Fatal(err)
	}
	compareDefinitions(t, filepath.Join(module.Dir, "core", "config", "crd", "bases"), clusterAPI, forOneVersion)
}

// compareDefinitions compares the files of definitions with those of a module, as they are after a change.
func compareDefinitions(t *testing.T, module string, definitions map[string]string, change func([]byte) []byte) {
	t.Helper()
	for file, origin := range definitions {
		text, err := os.ReadFile(filepath.Join(module, origin))
		if err != nil {
			t.Fatal(err)
		}
		want := change(text)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not the module's (\"make generate\" copies it): (-want +got)\n%s", file, diff)
		}
	}
}

// forAllFeatureSets returns the default definition without the annotation that leaves it out where another feature
// set is chosen: the module has one for each, and they differ in fields that nothing here reads.
func forAllFeatureSets(definition []byte) []byte {
	return bytes.Replace(definition, []byte("    release.openshift.io/feature-set: Default\n"), nil, 1)
}

// forOneVersion returns a definition of Cluster API that serves the stored version only, since there is no webhook
// here that converts to others. It has the annotations of these manifests, and the label by which the version is found.
func forOneVersion(definition []byte) []byte {
	const metadata = `  annotations:
    capability.openshift.io/name: MachineAPI+ClusterAPI
    controller-gen.kubebuilder.io/version: v0.21.0
    include.release.openshift.io/self-managed-high-availability: "true"
  labels:
    cluster.x-k8s.io/v1beta2: v1beta2
`
	return []byte(strings.NewReplacer(
		"  annotations:\n    controller-gen.kubebuilder.io/version: v0.21.0\n", metadata,
		"    served: true\n    storage: false\n", "    served: false\n    storage: false\n",
	).Replace(string(definition)))
}

// A release is applied level by level, and within a component file by file.
func TestFilesAreNumbered(t *testing.T) {
	files, err := fs.Glob(Files(), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !regexp.MustCompile(`^0000_30_machine-controller_\d\d_[a-z-]+(\.crd)?\.yaml$`).MatchString(file) {
			t.Errorf("%s", file)
		}
	}
}

func TestObjectsAreInDependencyOrder(t *testing.T) {
	var kinds []string
	for _, object := range Objects() {
		kinds = append(kinds, object.GetKind())
	}
	kinds = slices.Compact(kinds)
	for _, before := range [][2]string{
		{"Namespace", "ServiceAccount"}, {"CustomResourceDefinition", "ValidatingAdmissionPolicy"},
		{"ServiceAccount", "ClusterRoleBinding"}, {"ClusterRoleBinding", "Deployment"}, {"NetworkPolicy", "Deployment"},
		{"ValidatingAdmissionPolicyBinding", "Deployment"}, {"Deployment", "ClusterOperator"},
	} {
		first, second := slices.Index(kinds, before[0]), slices.Index(kinds, before[1])
		if first < 0 || second < first {
			t.Errorf("%s does not come before %s: %v", before[0], before[1], kinds)
		}
	}
}

// forClusterAPI matches the names of objects that only Cluster API's kinds need.
var forClusterAPI = regexp.MustCompile(`\.cluster\.x-k8s\.io$|^kwokconfig|machinetemplates\.|-cluster-api$`)

// forControlPlanes matches the names of objects that RunlevelControlPlanes need, also beside Cluster API's own
// controllers.
var forControlPlanes = regexp.MustCompile(`controlplane\.runlevel\.dev$|-controlplanes-cluster-api$|-kubeconfigs$`)

// A cluster without the capability gets none of the objects. The objects that only Cluster API's kinds need can be left
// out alone, for clusters where another controller serves these kinds.
func TestAllObjectsAreOfOneCapabilityAndProfile(t *testing.T) {
	for _, object := range append(Objects(), Monitoring()...) {
		capability := "MachineAPI"
		if forClusterAPI.MatchString(object.GetName()) {
			capability = "MachineAPI+ClusterAPI"
		}
		if forControlPlanes.MatchString(object.GetName()) {
			capability = "MachineAPI+ClusterAPIControlPlanes"
		}
		for name, want := range map[string]string{
			"capability.openshift.io/name":                                capability,
			"include.release.openshift.io/self-managed-high-availability": "true",
		} {
			if got := object.GetAnnotations()[name]; got != want {
				t.Errorf("%s %s has %s: %q, want %q", object.GetKind(), object.GetName(), name, got, want)
			}
		}
	}
}

func TestObjectsHaveThePartOfLabel(t *testing.T) {
	for _, object := range append(Objects(), Monitoring()...) {
		if object.GetKind() != "CustomResourceDefinition" &&
			object.GetLabels()["app.kubernetes.io/part-of"] != "runlevel" {
			t.Errorf("%s %s lacks the label app.kubernetes.io/part-of", object.GetKind(), object.GetName())
		}
	}
}

// A release with them can be applied without the Prometheus operator only if they can be left out.
func TestMonitoringCanBeLeftOut(t *testing.T) {
	for _, object := range Monitoring() {
		if object.GetAnnotations()["exclude.release.openshift.io/without-monitoring"] != "true" {
			t.Errorf("%s %s is not annotated so", object.GetKind(), object.GetName())
		}
	}
}

// In a release, the image and the version are replaced where they stand as a build of releases expects them.
func TestABuildOfAReleaseFindsImageAndVersion(t *testing.T) {
	objects := Objects()
	deployment := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment"
	})]
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatal(containers, err)
	}
	image := containers[0].(map[string]any)["image"]
	text, err := fs.ReadFile(Files(), "image-references")
	if err != nil {
		t.Fatal(err)
	}
	var references struct {
		Spec struct {
			Tags []struct{ From struct{ Name string } }
		}
	}
	if err := yaml.Unmarshal(text, &references); err != nil {
		t.Fatal(err)
	}
	if tags := references.Spec.Tags; len(tags) != 1 || tags[0].From.Name != image {
		t.Errorf("image-references has %v, and the Deployment %s", tags, image)
	}
	for _, file := range []string{"0000_30_machine-controller_06_deployment.yaml",
		"0000_30_machine-controller_07_clusteroperator.yaml"} {
		if text, err := fs.ReadFile(Files(), file); err != nil || !bytes.Contains(text, []byte(": 0.0.1-snapshot\n")) {
			t.Errorf("%s does not have the version of the release: %v", file, err)
		}
	}
}
