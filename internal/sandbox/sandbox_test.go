package sandbox_test

import (
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// cluster is shared by the tests. A test that breaks a control plane starts its own.
var cluster = sandboxtest.New(sandbox.Options{
	AuditPolicy: `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: [create]
  resources: [{group: "", resources: [configmaps]}]
`,
})

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		runOwner() // see process_test.go
	}
	os.Exit(cluster.Run(m))
}

// The resources that tests watch.
var (
	nodes       = corev1.SchemeGroupVersion.WithResource("nodes")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	jobs        = batchv1.SchemeGroupVersion.WithResource("jobs")
	budgets     = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

func TestStartWaitsUntilEverythingIsReady(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{CRDs: []string{"testdata/crds"}})
	t.Logf("the API server was ready after %s, everything after %s: %.2f times as long",
		s.Took.APIServer.Round(time.Millisecond), s.Took.Ready.Round(time.Millisecond),
		s.Took.Ready.Seconds()/s.Took.APIServer.Seconds())

	client := kubernetes.NewForConfigOrDie(s.Config)
	if _, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default",
		metav1.GetOptions{}); err != nil {
		t.Error("the default namespace has no service account:", err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 || len(nodes.Items[0].Spec.Taints) > 0 {
		t.Errorf("got nodes %+v, want one without taints", nodes.Items)
	}
	if _, err := client.Discovery().ServerResourcesForGroupVersion("sandbox.example.com/v1"); err != nil {
		t.Error("the CRD of the options is not served:", err)
	}
}

// BenchmarkStart compares the start of the whole control plane with that of its API server alone.
func BenchmarkStart(b *testing.B) {
	var whole, server time.Duration
	for b.Loop() {
		s, err := sandbox.Start(b.Context(), sandbox.Options{})
		if err != nil {
			b.Fatal(err)
		}
		whole, server = whole+s.Took.Ready, server+s.Took.APIServer
		if err := s.Stop(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(server.Seconds()/float64(b.N), "s-to-readyz")
	b.ReportMetric(whole.Seconds()/float64(b.N), "s-to-ready")
	b.ReportMetric(whole.Seconds()/server.Seconds(), "ready/readyz")
}
