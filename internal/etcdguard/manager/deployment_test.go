package manager_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// rare are rights that this test has no use for: when an event about an object that has not changed is repeated.
const rare = "events"

// TestTheGuardAsItIsShipped runs the guard from its Deployment, with the flags, the rights and the Secret that it has
// in a cluster: it replaces a member, and reports its state, a missing right, and missing members of etcd. It uses each
// of its rights.
func TestTheGuardAsItIsShipped(t *testing.T) {
	t.Parallel()
	own := newGuardSandbox()
	t.Cleanup(func() { _ = own.Sandbox(t).Stop() })
	s := &shippedScene{scene: newSceneOn(t, own)}
	s.addMachines(t)
	s.deploy(t)
	s.guardNodes(t, manager.DefaultNamespace, 1)
	s.awaitHooks(3)
	s.allowMembers(false)
	s.delete(1)
	s.awaitCondition(t, configv1.OperatorUpgradeable, configv1.ConditionFalse,
		"1 of 3 voting members of etcd are on machines that are being deleted")
	s.awaitMetric(t, "runlevel_etcd_guard_replacements 1")
	s.awaitMetric(t, "runlevel_etcd_guard_held_machines 1")
	s.allowMembers(true)
	s.awaitMachineGone(1)
	s.awaitMembers("2 3 4")
	s.awaitCondition(t, configv1.OperatorUpgradeable, configv1.ConditionTrue, "")
	s.awaitMetric(t, "runlevel_etcd_guard_voters_healthy 3")
	s.awaitMetric(t, `runlevel_etcd_guard_steps_total{action="promote_learner",result="done"} 1`)
	s.awaitMetric(t, "runlevel_etcd_guard_replacements 0")
	s.awaitMetric(t, "runlevel_etcd_guard_held_machines 0")

	giveBack := s.takeRight(t)
	for number := 2; number <= 4; number++ {
		s.kill(number)
	}
	giveBack()
	s.awaitCondition(t, configv1.OperatorDegraded, configv1.ConditionTrue, "no endpoint answers")
	for _, role := range []string{"etcd-quorum-guard", "etcd-quorum-guard-pods"} {
		for _, name := range sandboxtest.UnusedRights(t, own.Sandbox(t), guardManifests(), role, rare) {
			// which the Deployment has for another value of a flag
			if !strings.HasSuffix(name, "machines.cluster.x-k8s.io") {
				t.Errorf("role %s has the right to %s, which is never used", role, name)
			}
		}
	}
}

// A shippedScene is a scene whose guard runs from its Deployment.
type shippedScene struct {
	*scene
	admin client.Client
	pods  *hostpods.HostPods
	token string // token of an account that may read metrics
}

// deploy applies the manifests that the guard needs, and its Deployment.
func (s *shippedScene) deploy(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), configv1.Install(scheme))
	if err == nil {
		s.admin, err = client.New(s.shared.Sandbox(t).Config, client.Options{Scheme: scheme})
	}
	if err == nil {
		s.pods, err = hostpods.Start(t.Context(), hostpods.Options{
			Config: s.shared.Sandbox(t).Config, Namespace: manager.DefaultNamespace,
			Selector: "app.kubernetes.io/name=etcd-quorum-guard",
			Programs: map[string]string{"runlevel-cluster": sandboxtest.Program(t, "runlevel-cluster")},
			Folder:   t.TempDir(),
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, hostProcess := range s.pods.Processes() {
			if text, _ := os.ReadFile(hostProcess.Log); t.Failed() {
				t.Logf("%s: %s", hostProcess.Pod, text)
			}
		}
		_ = s.pods.Stop()
	})
	for _, object := range install.Definitions() {
		s.shared.apply(t, object)
	}
	s.token = s.shared.Account(t, s.namespace, "reader").BearerToken
	s.create(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: metrics-reader},
		rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}`)
	s.create(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: metrics-reader},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader},
		subjects: [{kind: ServiceAccount, namespace: %s, name: reader}]}`, s.namespace)
	s.createSecret(t)
	for _, object := range guardManifests() {
		if object.GetKind() == "Deployment" {
			s.shared.apply(t, object)
		}
	}
}

// createSecret creates the Secret that the Deployment mounts.
func (s *shippedScene) createSecret(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: manager.DefaultNamespace, Name: "etcd-client"},
		Data:       map[string][]byte{},
	}
	for key, file := range map[string]string{"ca.crt": s.options.CAFile, "tls.crt": s.options.CertFile,
		"tls.key": s.options.KeyFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[key] = text
	}
	if err := s.admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// awaitCondition waits until the ClusterOperator is available with the version of the Deployment, and has a condition.
func (s *shippedScene) awaitCondition(t *testing.T, target configv1.ClusterStatusConditionType,
	status configv1.ConditionStatus, text string) {
	t.Helper()
	machinetest.Await(t, s.admin, &configv1.ClusterOperator{}, client.ObjectKey{Name: "etcd-quorum-guard"},
		func(o *configv1.ClusterOperator) bool {
			exists, isAvailable := false, false
			for _, condition := range o.Status.Conditions {
				exists = exists || condition.Type == target && condition.Status == status &&
					strings.Contains(condition.Message, text)
				isAvailable = isAvailable ||
					condition.Type == configv1.OperatorAvailable && condition.Status == configv1.ConditionTrue
			}
			return exists && isAvailable && len(o.Status.Versions) == 1 &&
				o.Status.Versions[0].Version == "0.0.1-snapshot"
		})
}

// takeRight takes a right from the guard, which reports so.
func (s *shippedScene) takeRight(t *testing.T) (giveBack func()) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: "etcd-quorum-guard"}, role); err != nil {
		t.Fatal(err)
	}
	given := role.DeepCopy()
	change := func(rules []rbacv1.PolicyRule) {
		patch := client.MergeFrom(role.DeepCopy())
		role.Rules = rules
		if err := s.admin.Patch(t.Context(), role, patch); err != nil {
			t.Fatal(err)
		}
	}
	lacking := given.DeepCopy().Rules
	for i := range lacking {
		if lacking[i].Resources[0] == "nodes" {
			lacking[i].Verbs = []string{"get"}
		}
	}
	change(lacking)
	s.awaitCondition(t, configv1.OperatorDegraded, configv1.ConditionTrue,
		"service account runlevel-etcd/etcd-quorum-guard lacks the right to list nodes")
	return func() { change(given.Rules) }
}

// awaitMetric waits until the guard serves a line to a client that may read it.
func (s *shippedScene) awaitMetric(t *testing.T, line string) {
	t.Helper()
	ready, err := s.pods.AwaitReady(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if ready[0].Restarts > 0 && strings.Contains(line, "_total") {
		t.Logf("the guard was restarted, and counts again: it is not asked for %s", line)
		return
	}
	// it has made its certificate itself
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer web.CloseIdleConnections()
	s.eventually(line, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"https://"+net.JoinHostPort(ready[0].Address, "9099")+"/metrics", nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+s.token)
		answer, err := web.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains("\n"+string(text), "\n"+line+"\n") {
			err = fmt.Errorf("%s: %s", answer.Status, text)
		}
		return err
	})
}
