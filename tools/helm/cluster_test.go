package helm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/setup"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

const inSystem = "--namespace=runlevel-system"

const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

// deployment returns the Deployment of the operator.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployments := shared.Client(t).AppsV1().Deployments("runlevel-system")
	found, err := deployments.Get(t.Context(), operator, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// checkOperator checks what the Deployment of the operator runs.
func checkOperator(t *testing.T, replicas int32, image, release string) {
	t.Helper()
	found := deployment(t)
	container := found.Spec.Template.Spec.Containers[0]
	if *found.Spec.Replicas != replicas || container.Image != image || container.Args[0] != release {
		t.Errorf("%d replicas of %s with %s, want %d of %s with %s", *found.Spec.Replicas, container.Image,
			container.Args[0], replicas, image, release)
	}
}

// exists returns the objects of a list that the cluster has.
func exists(t *testing.T, keys []kinds.ID) []kinds.ID {
	t.Helper()
	c := shared.Connect(t)
	var found []kinds.ID
	for _, id := range keys {
		if _, err := c.Get(t.Context(), id); err == nil {
			found = append(found, id)
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	return found
}

// A user installs the operator, changes its values, upgrades it, returns to the first revision, and uninstalls it.
func TestOperator(t *testing.T) {
	v1, v2 := write(t, operator, "v0.1.0"), write(t, operator, "v0.2.0")
	file := filepath.Join(v2, "manifests", "0000_00_runlevel_06_deployment.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("limits: {memory: 512Mi}"), []byte("limits: {memory: 900Mi}"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	mustHelm(t, "install", "runlevel", v1, inSystem, "--create-namespace", "--wait", "--set=replicas=2,release=/")
	checkOperator(t, 2, imageOf("v0.1.0"), "--payload-dir=/")
	c := shared.Connect(t)
	sandboxtest.Apply(t, c, `{apiVersion: config.openshift.io/v1, kind: ClusterVersion, metadata: {name: version},
		spec: {clusterID: 00000000-0000-0000-0000-000000000001}}`)

	mustHelm(t, "upgrade", "runlevel", v1, inSystem, "--wait", "--reuse-values", "--set=settings.wait-for=ready",
		"--set=release=registry.example/shop@"+digest,
		`--set-json=applyRules=[{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]`)
	checkOperator(t, 2, imageOf("v0.1.0"), "--release-image=registry.example/shop@"+digest)
	checkSettings(t, "wait-for: ready")
	pods := deployment(t).Spec.Template.Annotations["runlevel.dev/settings"]
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}
	role, err := c.Client.RbacV1().ClusterRoles().Get(t.Context(), "runlevel-operator-apply", metav1.GetOptions{})
	if err != nil || len(role.Rules) != 1 || role.Rules[0].String() != rule.String() {
		t.Errorf("rules %v, %v", role.Rules, err)
	}

	mustHelm(t, "upgrade", "runlevel", v2, inSystem, "--wait", "--reset-then-reuse-values",
		"--set=settings.wait-for=upstream")
	checkOperator(t, 2, imageOf("v0.2.0"), "--release-image=registry.example/shop@"+digest)
	template := deployment(t).Spec.Template
	if got := template.Spec.Containers[0].Resources.Limits.Memory().String(); got != "900Mi" {
		t.Errorf("the limit of memory is %s, want that of the new chart", got)
	}
	if template.Annotations["runlevel.dev/settings"] == pods {
		t.Error("a changed setting does not replace the pods")
	}
	mustHelm(t, "rollback", "runlevel", "1", inSystem, "--wait")
	checkOperator(t, 2, imageOf("v0.1.0"), "--payload-dir=/")
	if found := deployment(t).Spec.Template.Annotations["runlevel.dev/settings"]; found != "" {
		t.Error("the pods have the annotation of settings that were removed")
	}

	mustHelm(t, "uninstall", "runlevel", inSystem, "--wait")
	all := []kinds.ID{kinds.NewID(kinds.ClusterVersion, "", "version"),
		kinds.NewID(kinds.ConfigMap, "runlevel-system", operator)}
	for _, object := range install.Objects() {
		all = append(all, kinds.IDOf(object))
	}
	want := []kinds.ID{
		kinds.NewID(kinds.ClusterVersion, "", "version"), namespace("runlevel-system"),
		kinds.NewID(kinds.CustomResourceDefinition, "", "clusteroperators.config.openshift.io"),
		kinds.NewID(kinds.CustomResourceDefinition, "", "clusterversions.config.openshift.io"),
	}
	if diff := cmp.Diff(want, exists(t, all)); diff != "" {
		t.Errorf("objects after helm uninstall (-want +got):\n%s", diff)
	}
}

// On OpenShift, the operator would work on the objects of the cluster-version operator.
func TestClusterVersionOperatorRuns(t *testing.T) {
	c := shared.Connect(t)
	const format = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: cluster-version-operator, namespace: %[1]s},
		spec: {replicas: %[2]d, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {
			containers: [{name: operator, image: registry.example/cvo}]}}}}`
	const theirs = "openshift-cluster-version"
	sandboxtest.Apply(t, c, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", theirs))
	sandboxtest.Apply(t, c, fmt.Sprintf(format, theirs, 1))
	install := []string{"install", "runlevel", write(t, operator, "v0.1.0"), inSystem, "--create-namespace",
		"--dry-run=server", "--take-ownership", "--set=release=/"}
	if out, err := onCluster(t, install...); err == nil || !strings.Contains(out, "the cluster-version operator runs") {
		t.Errorf("got error %v\n%s", err, out)
	}
	sandboxtest.Apply(t, c, fmt.Sprintf(format, theirs, 0))
	mustHelm(t, install...)
}

// maxRelease is three quarters of what the API server allows for the Secret in which Helm stores a revision.
const maxRelease = 768 << 10

// The chart of the machine controller has megabytes of definitions, which Helm stores with each revision.
func TestMachines(t *testing.T) {
	const inMachines = "--namespace=" + machines
	mustHelm(t, "install", "machines", write(t, machines, "v0.1.0"), inMachines, "--create-namespace", "--wait")
	c := shared.Connect(t)
	for _, secret := range revisions(t, machines) {
		if size := len(secret.Data["release"]); size > maxRelease {
			t.Errorf("Helm's Secret %s has %d bytes, want at most %d", secret.Name, size, maxRelease)
		}
	}
	const machine = `{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine,
		metadata: {name: web-4, namespace: default}, spec: {}}`
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		object := sandboxtest.ParseObject(t, machine)
		resource, err := c.Find(ctx, object.GroupVersionKind())
		if err == nil {
			_, err = c.Apply(ctx, resource, object, 0)
		}
		return err
	})
	mustHelm(t, "upgrade", "machines", write(t, machines, "v0.2.0"), inMachines, "--wait",
		"--set=settings.namespaces=default", "--set=capabilities={MachineAPI}")
	mustHelm(t, "rollback", "machines", "1", inMachines, "--wait")
	mustHelm(t, "uninstall", "machines", inMachines, "--wait")

	all := []kinds.ID{kinds.NewID(kinds.ConfigMap, machines, "machine-controller")}
	want := []kinds.ID{kinds.IDOf(sandboxtest.ParseObject(t, machine))}
	all = append(all, want...)
	for _, object := range manifests.Objects() {
		switch object.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			want = append(want, kinds.IDOf(object))
			fallthrough
		default:
			all = append(all, kinds.IDOf(object))
		case "ClusterOperator": // which the controller creates where its kind is served
		}
	}
	if diff := cmp.Diff(want, exists(t, all)); diff != "" {
		t.Errorf("objects after helm uninstall (-want +got):\n%s", diff)
	}
}

// revisions returns Helm's Secrets of a namespace.
func revisions(t *testing.T, namespace string) []corev1.Secret {
	t.Helper()
	found, err := shared.Client(t).CoreV1().Secrets(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil || len(found.Items) == 0 {
		t.Fatalf("%d Secrets of Helm, %v", len(found.Items), err)
	}
	return found.Items
}

// A user gives an operator of "runlevel install" to Helm, as in docs/install.md. If "runlevel install" changes it
// afterwards, Helm does not revert that without being asked.
func TestExistingInstallation(t *testing.T) {
	installer := setup.Installer{
		Cluster: shared.Connect(t), OnChange: func(setup.Change) {}, OnWarning: func([]string) {},
	}
	program := setup.Program{
		Release: "/", Image: "registry.example/runlevel:v0.1.0", Settings: map[string]any{"wait-for": "ready"},
	}
	if err := installer.Install(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	path := write(t, operator, "v0.2.0")
	for _, test := range []struct{ flag, want string }{
		{"--wait", "exists and cannot be imported into the current release"},
		{"--take-ownership", `conflicts with "runlevel"`},
	} {
		out, err := onCluster(t, "upgrade", "--install", "runlevel", path, inSystem, "--set=release=/", test.flag)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: got error %v, want %q in\n%s", test.flag, err, test.want, out)
		}
	}
	mustHelm(t, "upgrade", "--install", "runlevel", path, inSystem, "--wait", "--take-ownership", "--force-conflicts",
		"--set=settings.wait-for=upstream,release=/")
	checkOperator(t, 1, imageOf("v0.2.0"), "--payload-dir=/")
	mustHelm(t, "upgrade", "runlevel", path, inSystem, "--wait", "--force-conflicts", "--reuse-values",
		"--set=replicas=2")
	checkOperator(t, 2, imageOf("v0.2.0"), "--payload-dir=/")
	checkSettings(t, "wait-for: upstream")

	program.Settings = nil
	if err := installer.Install(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	out, err := onCluster(t, "upgrade", "runlevel", path, inSystem, "--reuse-values")
	if err == nil || !strings.Contains(out, `conflicts with "runlevel"`) {
		t.Errorf("got error %v\n%s", err, out)
	}
	checkOperator(t, 1, "registry.example/runlevel:v0.1.0", "--payload-dir=/")
	mustHelm(t, "uninstall", "runlevel", inSystem, "--wait")
}

// checkSettings checks the settings of the operator.
func checkSettings(t *testing.T, want string) {
	t.Helper()
	maps := shared.Client(t).CoreV1().ConfigMaps("runlevel-system")
	found, err := maps.Get(t.Context(), operator, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := found.Data["operator.yaml"]; got != want {
		t.Errorf("settings %q, want %q", got, want)
	}
}
