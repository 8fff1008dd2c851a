package install

import (
	"bytes"
	"flag"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
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

// definitions are the files of definitions, with their paths in the module github.com/openshift/api. That of
// ClusterVersion has the fields of all feature gates, and no annotation of its feature set.
var definitions = map[string]string{
	"0000_00_runlevel_01_clusteroperators.crd.yaml": "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml",
	"0000_00_runlevel_01_clusterversions.crd.yaml":  "0000_00_cluster-version-operator_01_clusterversions-CustomNoUpgrade.crd.yaml",
}

func TestDefinitionsAreThoseOfTheModule(t *testing.T) {
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(strings.TrimSpace(string(found)), "config", "v1", "zz_generated.crd-manifests")
	for file, origin := range definitions {
		want, err := os.ReadFile(filepath.Join(module, origin))
		if err != nil {
			t.Fatal(err)
		}
		want = bytes.Replace(want, []byte("    release.openshift.io/feature-set: CustomNoUpgrade\n"), nil, 1)
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

func TestDefinitionsOfTheOperator(t *testing.T) {
	want := []string{"clusteroperators.config.openshift.io", "clusterversions.config.openshift.io"}
	if diff := cmp.Diff(want, names(Definitions())); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

// "kubectl apply" and "runlevel install" apply the files from top to bottom.
func TestObjectsAreInDependencyOrder(t *testing.T) {
	var kinds []string
	for _, object := range Objects() {
		kinds = append(kinds, object.GetKind())
	}
	kinds = slices.Compact(kinds)
	for _, before := range [][2]string{
		{"Namespace", "ServiceAccount"}, {"CustomResourceDefinition", "Deployment"},
		{"ServiceAccount", "ClusterRoleBinding"}, {"ClusterRoleBinding", "Deployment"}, {"NetworkPolicy", "Deployment"},
	} {
		first, second := slices.Index(kinds, before[0]), slices.Index(kinds, before[1])
		if first < 0 || second < first {
			t.Errorf("%s does not come before %s: %v", before[0], before[1], kinds)
		}
	}
}

// A release filtered for the profile of the definitions must have the other objects, too.
func TestAllObjectsAreOfTheProfileOfTheDefinitions(t *testing.T) {
	const profile = "include.release.openshift.io/self-managed-high-availability"
	for _, object := range append(Objects(), Monitoring()...) {
		if object.GetAnnotations()[profile] != "true" {
			t.Errorf("%s %s lacks the annotation %s", object.GetKind(), object.GetName(), profile)
		}
	}
}

func TestObjectsHaveTheLabelOfTheirApplication(t *testing.T) {
	for _, object := range Objects() {
		if object.GetKind() != "CustomResourceDefinition" &&
			object.GetLabels()["app.kubernetes.io/part-of"] != "runlevel" {
			t.Errorf("%s %s lacks the label app.kubernetes.io/part-of", object.GetKind(), object.GetName())
		}
	}
}

// A kustomization contains the fields of kustomization.yaml that the test reads.
type kustomization struct {
	Resources []string
	Images    []struct{ Name, NewName, NewTag, Digest string }
	Patches   []struct{ Patch string }
}

func TestKustomizationHasEveryFile(t *testing.T) {
	files, err := fs.Glob(Files(), "0000_*")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, read[kustomization](t, "kustomization.yaml").Resources); diff != "" {
		t.Errorf("resources of kustomization.yaml (-files +listed):\n%s", diff)
	}
	files, err = fs.Glob(Files(), "monitoring/0000_*")
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = path.Base(files[i])
	}
	if diff := cmp.Diff(files, read[kustomization](t, "monitoring/kustomization.yaml").Resources); diff != "" {
		t.Errorf("resources of monitoring/kustomization.yaml (-files +listed):\n%s", diff)
	}
}

// A release with these objects can be applied without the Prometheus operator only if the objects can be left out.
func TestMonitoringCanBeLeftOut(t *testing.T) {
	for _, object := range Monitoring() {
		if object.GetAnnotations()["exclude.release.openshift.io/without-monitoring"] != "true" {
			t.Errorf("%s %s is not annotated so", object.GetKind(), object.GetName())
		}
	}
}

// Neither kustomize nor a build of a release reports an image without a use.
func TestImageHasOneName(t *testing.T) {
	container := operatorContainer(t)
	image, _ := container["image"].(string)
	repository, _, _ := strings.Cut(image, ":")
	if listed := read[kustomization](t, "kustomization.yaml").Images; len(listed) != 1 || listed[0].Name != repository {
		t.Errorf("kustomization.yaml sets the images %v, and the Deployment has %s", listed, image)
	}
	references := read[struct {
		Spec struct {
			Tags []struct {
				Name string
				From struct{ Name string }
			}
		}
	}](t, "image-references")
	if tags := references.Spec.Tags; len(tags) != 1 || tags[0].Name != "runlevel" || tags[0].From.Name != image {
		t.Errorf("image-references has %v, and the Deployment %s", tags, image)
	}
}

// The patch of kustomization.yaml replaces an argument by its place.
func TestKustomizationReplacesTheRelease(t *testing.T) {
	patches := read[kustomization](t, "kustomization.yaml").Patches
	if len(patches) != 1 {
		t.Fatalf("%d patches", len(patches))
	}
	var operations []struct{ Op, Path, Value string }
	if err := yaml.Unmarshal([]byte(patches[0].Patch), &operations); err != nil {
		t.Fatal(err)
	}
	args, _, _ := unstructured.NestedStringSlice(operatorContainer(t), "args")
	if len(operations) != 1 || operations[0].Path != "/spec/template/spec/containers/0/args/0" ||
		!strings.HasPrefix(args[0], "--release-image=") {
		t.Errorf("the patch %v does not replace the release of the arguments %q", operations, args)
	}
}

// A pod may have an address of either family.
func TestDeploymentListensAtAnyAddress(t *testing.T) {
	args, _, _ := unstructured.NestedStringSlice(operatorContainer(t), "args")
	for _, address := range []string{"10.0.0.1", "fd00::1"} {
		for _, name := range []string{"--listen=", "--metrics-listen="} {
			i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, name) })
			text := strings.ReplaceAll(strings.TrimPrefix(args[i], name), "$(POD_IP)", address)
			if host, _, err := net.SplitHostPort(text); host != address {
				t.Errorf("%s%s: %v", name, text, err)
			}
		}
	}
}

func TestFilesAreNumbered(t *testing.T) {
	files, _ := fs.Glob(Files(), "0000_*")
	for _, file := range files {
		if !regexp.MustCompile(`^0000_00_runlevel_\d\d_[a-z]+(\.crd)?\.yaml$`).MatchString(file) {
			t.Errorf("%s", file)
		}
	}
}

// operatorContainer returns the only container of the Deployment.
func operatorContainer(t *testing.T) map[string]any {
	t.Helper()
	objects := Objects()
	deployment := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment"
	})]
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%d containers, %v", len(containers), err)
	}
	return containers[0].(map[string]any)
}

func read[T any](t *testing.T, file string) T {
	t.Helper()
	var value T
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func names(objects []*unstructured.Unstructured) []string {
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names
}
