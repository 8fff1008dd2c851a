package operator_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/ui/incluster"
)

// A scraper gets metrics, as Prometheus does: with the token of a service account.
type scraper struct {
	stage   *stage
	address string
	token   string
}

// scraper returns one for the metrics at an address, that has the rights of a service account of the default namespace.
func (s *stage) scraper(address, account string) scraper {
	s.t.Helper()
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: "default"}}
	s.must(s.client.Create(s.t.Context(), made))
	token := &authenticationv1.TokenRequest{}
	s.must(s.client.SubResource("token").Create(s.t.Context(), made, token))
	return scraper{s, address, token.Status.Token}
}

// allow lets a service account get metrics.
func (s *stage) allow(account string) {
	s.t.Helper()
	s.must(s.client.Create(s.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "runlevel-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}))
}

// open sends a request for a page.
func (s scraper) open(ctx context.Context, page string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+page, nil)
	s.stage.must(err)
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	return client.Do(request)
}

// get returns the metrics, and the certificate of the server; 0 without a response.
func (s scraper) get(ctx context.Context) (code int, body string, server *tls.ConnectionState) {
	return s.getPage(ctx, "/metrics")
}

func (s scraper) getPage(ctx context.Context, page string) (code int, body string, server *tls.ConnectionState) {
	answer, err := s.open(ctx, page)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	s.stage.must(err)
	return answer.StatusCode, string(text), answer.TLS
}

// until waits until metrics have lines that begin so.
func (s scraper) until(lines ...string) {
	s.stage.t.Helper()
	var last string
	s.stage.t.Cleanup(func() {
		if s.stage.t.Failed() {
			s.stage.t.Logf("the metrics:\n%s", last)
		}
	})
	s.stage.await(fmt.Sprintf("the metrics have %q", lines), func() bool {
		_, last, _ = s.get(s.stage.t.Context())
		for _, line := range lines {
			if !strings.Contains("\n"+last, "\n"+line) {
				return false
			}
		}
		return true
	})
}

// checkMetrics scrapes the operator as it is shipped: with a token that may, without one, and with one that may not.
func (s *stage) checkMetrics(pods *hostpods.HostPods) {
	s.t.Helper()
	ready, err := pods.AwaitReady(s.t.Context(), 1)
	s.must(err)
	address := net.JoinHostPort(ready[0].Address, "9099")
	s.allow("prometheus")
	s.scraper(address, "prometheus").until("runlevel_leader 1", `runlevel_repairs_total{kind="ConfigMap"} `)
	anonymous := scraper{stage: s, address: address}
	if code, text, _ := anonymous.get(s.t.Context()); code != http.StatusUnauthorized {
		s.t.Errorf("without a token: %d %s", code, text)
	}
	if code, text, _ := s.scraper(address, "stranger").get(s.t.Context()); code != http.StatusForbidden {
		s.t.Errorf("with a token that may not: %d %s", code, text)
	}
}

// TestMetricsDuringAnUpdate: the update waits and completes, and others change its objects.
func TestMetricsDuringAnUpdate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.options.Metrics = webserver.Serving{Address: "127.83.1.1:9099"}
	s.must(s.client.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "runlevel-metrics-reader"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}))
	s.allow("prometheus")
	prometheus := s.scraper(s.options.Metrics.Address, "prometheus")
	s.beginWith("1.0.0", shop+old)
	s.until("installed", isAt("1.0.0"))
	prometheus.until("runlevel_leader 1", `runlevel_problems{problem="waiting"} 0`,
		`cluster_operator_up{name="version",reason="",version="1.0.0"} 1`,
		"runlevel_last_full_pass_timestamp_seconds ", "runlevel_apply_duration_seconds{", "go_goroutines ")

	s.update(s.push("1.0.1", shop+oldDeleted+till))
	prometheus.until(`runlevel_problem_timestamp_seconds{kind="ClusterOperator.config.openshift.io",name="till",namespace="",problem="waiting"} `,
		`cluster_version{from_version="1.0.0",image="`+s.registry,
		`cluster_version_payload{type="pending",version="1.0.1"} `)
	s.report("till", "1.0.1")
	s.until("updated", isAt("1.0.1"))
	s.report("till", "1.0.1", func(o *configv1.ClusterOperatorStatus) {
		o.Conditions[0].Status = configv1.ConditionFalse
	})
	s.must(s.client.Delete(t.Context(), s.settings()))
	prometheus.until(`runlevel_repairs_total{kind="ConfigMap"} 1`,
		`cluster_operator_condition_transitions{condition="Available",name="till"} `,
		`cluster_operator_up{name="till",reason="AsExpected",version="1.0.1"} 0`,
		`cluster_version_payload{type="pending",version="1.0.1"} 0`)
	if _, text, _ := prometheus.get(t.Context()); strings.Contains(text, "An error has occurred") {
		t.Error(text)
	}
}

// TestTheCertificateOfMetricsAndPages: the certificate is self-signed until another one exists, and is replaced without
// a restart.
func TestTheCertificateOfMetricsAndPages(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	folder := t.TempDir()
	s.options.Metrics = webserver.Serving{
		Address: "127.83.1.2:9099", CertFile: filepath.Join(folder, "tls.crt"),
		KeyFile: filepath.Join(folder, "tls.key"),
	}
	ui := s.options.Metrics
	ui.Address, ui.Program = "127.83.1.2:8443", "runlevel-operator"
	s.options.Serve = func(ctx context.Context, m ctrl.Manager) error {
		return incluster.Serve(ctx, m, s.sandbox.Config, incluster.Options{Serving: ui})
	}
	s.beginWith("1.0.0", shop)
	untilNamed := func(want string) {
		t.Helper()
		for _, address := range []string{s.options.Metrics.Address, ui.Address} {
			anyone := scraper{stage: s, address: address}
			s.await("the certificate of "+address+" is of "+want, func() bool {
				_, _, server := anyone.get(t.Context())
				return server != nil && strings.HasPrefix(server.PeerCertificates[0].Subject.CommonName, want+"@")
			})
		}
	}
	untilNamed("runlevel-operator")
	for _, name := range []string{"first", "second"} {
		public, private, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		s.must(err)
		s.must(os.WriteFile(s.options.Metrics.CertFile, public, 0o600))
		s.must(os.WriteFile(s.options.Metrics.KeyFile, private, 0o600))
		untilNamed(name)
	}
	s.must(os.WriteFile(s.options.Metrics.CertFile, []byte("broken"), 0o600))
	untilNamed("second")
}
