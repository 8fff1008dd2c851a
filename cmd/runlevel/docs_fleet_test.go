package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// fleetSetup makes the sandbox a management cluster, which is also the cluster of both workloads.
const fleetSetup = `kubectl apply --server-side -f DEFINITIONS
kubectl wait --for=condition=Established customresourcedefinition --all --timeout=5m
kubectl create namespace fleet
kubectl create namespace argocd
for name in berlin-kubeconfig paris-kubeconfig berlin-ca; do
  kubectl -n fleet create secret generic $name --type=cluster.x-k8s.io/secret --from-file=value=$KUBECONFIG
  kubectl -n fleet label secret $name cluster.x-k8s.io/cluster-name=${name%%-*}
done
`

// TestPageOnManyClusters runs the page, except for its first section: list-contexts.txtar has its output. Definitions
// of other projects have only the fields of the page, so that kubectl refuses others. Open Cluster Management comes
// first, since its agent needs the rights to create all objects.
func TestPageOnManyClusters(t *testing.T) {
	for _, program := range []string{"kubectl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	sandboxtest.NeedControlPlane(t)
	t.Parallel()
	running := sandboxtest.Start(t, sandbox.Options{})
	install, err := filepath.Abs("../../install")
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := filepath.Abs("testdata/fleet")
	if err != nil {
		t.Fatal(err)
	}
	replace := strings.NewReplacer("DEFINITIONS", definitions,
		"--release registry.example/shop:1.4.0", "--release /release",
		"curl -fsSL https://github.com/runlevel/runlevel/releases/download/v0.1.0/install.yaml",
		"kubectl kustomize "+install)
	folder, sections := t.TempDir(), map[string]sandboxtest.Section{"": {Script: fleetSetup}}
	for _, section := range sandboxtest.ReadPage(t, "../../docs/fleet.md")[1:] {
		sections[section.Title] = section
	}
	run := func(title string) string {
		section, isFound := sections[title]
		if !isFound {
			t.Fatalf("the page has no section %q", title)
		}
		delete(sections, title)
		return section.Run(t, folder, replace, "KUBECONFIG="+running.Kubeconfig)
	}
	run("")
	run("The ClusterVersion of a fleet")
	run("Open Cluster Management")
	asAgent := rest.CopyConfig(running.Config)
	asAgent.Impersonate = rest.ImpersonationConfig{UserName: "agent"}
	applyAsAgent(t, asAgent, readWork(t, folder, "operator-canary.json"), false)
	listed := regexp.MustCompile(`(?m)^fleet\.berlin +default .*\nfleet\.paris +default `)
	if !listed.MatchString(run("Cluster API")) {
		t.Error("the clusters of Cluster API are not listed")
	}
	applyAsAgent(t, asAgent, readWork(t, folder, "clusterversion-canary.yaml"), true)
	run("Argo CD")
	run("Flux")
	delete(sections, "One screen")
	if len(sections) > 0 {
		t.Errorf("sections that are not tried: %v", sections)
	}
}

// readWork returns the manifests of a ManifestWorkReplicaSet.
func readWork(t *testing.T, folder, name string) []any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	manifests, _, err := unstructured.NestedSlice(sandboxtest.ParseObject(t, string(text)).Object, "spec",
		"manifestWorkTemplate", "workload", "manifests")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("%s has no manifests, %v", name, err)
	}
	return manifests
}

// applyAsAgent writes manifests as the agent of Open Cluster Management does, by server-side apply, or as new
// objects. An agent retries.
func applyAsAgent(t *testing.T, config *rest.Config, manifests []any, onServer bool) {
	t.Helper()
	c := sandboxtest.Connect(t, config)
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{Object: manifest.(map[string]any)}
		sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
			c.Refresh()
			resource, err := c.FindKind(ctx, object.GroupVersionKind().GroupKind())
			if err != nil {
				return err
			}
			place := c.In(resource, object.GetNamespace())
			if onServer {
				_, err = place.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "work-agent"})
			} else {
				_, err = place.Create(ctx, object, metav1.CreateOptions{FieldManager: "work-agent"})
			}
			return err
		})
	}
}
