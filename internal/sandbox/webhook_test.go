package sandbox_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/cert"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestWebhookIsReachedByURL is an example for tests with a webhook: docs/sandbox.md refers to it.
func TestWebhookIsReachedByURL(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(refuse))
	defer server.Close()
	hook := admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificateOf(server)}
	expectRefusal(t, cluster.Namespace(t), hook, "refused by the test")
}

// TestWebhookIsReachedByService uses a Service whose pod has the address of the webhook in an annotation.
func TestWebhookIsReachedByService(t *testing.T) {
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	certificate, key, err := cert.GenerateSelfSignedCertKey("hooks."+namespace+".svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(refuse))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "hooks"},
		Ports: []corev1.ServicePort{{Name: "other", Port: 80},
			{Name: "https", Port: 443, TargetPort: intstr.FromInt(server.Listener.Addr().(*net.TCPAddr).Port)}},
	}}
	if _, err := client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hooks := admissionregistrationv1.WebhookClientConfig{
		Service:  &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "hooks"},
		CABundle: certificate,
	}
	expectRefusal(t, namespace, hooks, "no pod of Service "+namespace+"/hooks is ready for port 443")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks", Labels: service.Spec.Selector},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "hooks", Image: "registry.example/hooks"}}},
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
			return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Endpoints) == 1 &&
				*slices.Items[0].Endpoints[0].Conditions.Ready, err
		})
	if err != nil {
		t.Fatal(err)
	}
	expectRefusal(t, namespace, hooks, "pod "+namespace+"/hooks is simulated")
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "127.0.0.1"}}}`, sandbox.AddressAnnotation)
	if _, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "hooks", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expectRefusal(t, namespace, hooks, "refused by the test")
}

// TestAPIServerStaysOnTheLoopback checks addresses of Services and pods, which other hosts may have on the networks of
// this machine.
func TestAPIServerStaysOnTheLoopback(t *testing.T) {
	for url, want := range map[string]string{
		"https://192.0.2.1/":             "no pod of the sandbox has this address",
		"https://10.244.255.254/":        "no pod of the sandbox has this address",
		"https://hooks.example.com:9443": "the sandbox reaches this machine's loopback only",
	} {
		expectRefusal(t, cluster.Namespace(t), admissionregistrationv1.WebhookClientConfig{URL: &url}, want)
	}
}

// expectRefusal creates a Secret in a namespace with a webhook, and checks the error.
func expectRefusal(t *testing.T, namespace string, config admissionregistrationv1.WebhookClientConfig, want string) {
	t.Helper()
	if got := refusalBy(t, namespace, config); !strings.Contains(got, want) {
		t.Errorf("the Secret is refused with %q, want %q", got, want)
	}
}

// refusalBy returns the error of creating a Secret in a namespace with a webhook, which may be out of reach.
func refusalBy(t *testing.T, namespace string, config admissionregistrationv1.WebhookClientConfig) string {
	t.Helper()
	client := cluster.Client(t)
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: namespace + "-"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuse.example.com", ClientConfig: config,
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{""},
					APIVersions: []string{"v1"},
					Resources:   []string{"secrets"},
				},
			}},
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	webhook, err := configurations.Create(t.Context(), webhook, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer configurations.Delete(t.Context(), webhook.Name, metav1.DeleteOptions{})

	// The API server uses a new configuration after a moment.
	var refusal error
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "secret-"}}
			_, refusal = client.CoreV1().Secrets(namespace).Create(ctx, secret,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return refusal != nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return refusal.Error()
}

// TestAggregatedAPIIsReachedByExternalName is an example for tests with an aggregated API, which is on the loopback
// behind a Service of type ExternalName.
func TestAggregatedAPIIsReachedByExternalName(t *testing.T) {
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	server := httptest.NewTLSServer(http.HandlerFunc(serveDiscovery))
	defer server.Close()

	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "aggregated"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Port: int32(number)}},
		},
	}
	if _, err := client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	apiServices := dynamic.NewForConfigOrDie(cluster.Sandbox(t).Config).Resource(schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	})
	apiService := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.aggregated.example.com"},
		"spec": map[string]any{
			"group": "aggregated.example.com", "version": "v1",
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"service": map[string]any{
				"namespace": namespace,
				"name":      "aggregated",
				"port":      int64(number),
			},
			"insecureSkipTLSVerify": true, // the certificate of httptest is not for the Service
		},
	}}
	if _, err := apiServices.Create(t.Context(), apiService, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer apiServices.Delete(t.Context(), apiService.GetName(), metav1.DeleteOptions{})

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := objectwatch.Await(ctx, apiServices, apiService.GetName(),
		objectwatch.HasCondition("Available")); err != nil {
		t.Fatal(err)
	}
	sandboxtest.EventuallySucceeds(t, func(context.Context) error { // the server proxies requests a moment later
		found, err := client.Discovery().ServerResourcesForGroupVersion("aggregated.example.com/v1")
		if err == nil && len(found.APIResources) != 1 {
			return fmt.Errorf("the aggregated API serves %+v", found)
		}
		return err
	})
}

func refuse(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Result: &metav1.Status{Message: "refused by the test"},
	}
	_ = json.NewEncoder(w).Encode(review)
}

func serveDiscovery(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/aggregated.example.com/v1" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"aggregated.example.com/v1",
		"resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]}]}`)
}

// certificateOf returns the caBundle of a test server.
func certificateOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
