package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/manifests"
)

const (
	namespace = "bench" // of the machines
	patience  = 30 * time.Minute
	look      = 50 * time.Millisecond // how often to look whether something has come to pass
	restless  = 3 * time.Second       // without a request, the controller has nothing left to do
)

// The service accounts whose requests are counted: the controller's own, and that of what it is measured beside.
const (
	controllerAccount = "machine-controller"
	peerAccount       = "peer"
)

// auditPolicy has the audit log tell of each request of the accounts, once it was answered.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:runlevel-machines:machine-controller", "system:serviceaccount:runlevel-machines:peer"]
- level: None
`

// A stand is a control plane, and the machine controller.
type stand struct {
	sandbox *sandbox.Sandbox
	client  client.Client // the administrator's
	peer    *rest.Config
	program string
	atOnce  int
	folder  string

	controller *exec.Cmd
	ended      chan struct{} // closed when the controller has ended
	end        error         // of its process; nil after a stop
	meter      *meter
}

// newStand starts a control plane with so many nodes, and applies the controller's manifests.
func newStand(ctx context.Context, o options, nodes int) (_ *stand, err error) {
	s := &stand{program: o.controller, atOnce: o.atOnce}
	if s.folder, err = os.MkdirTemp("", "runlevel-bench-"); err != nil {
		return nil, err
	}
	s.sandbox, err = sandbox.Start(ctx, sandbox.Options{Nodes: nodes, AuditPolicy: auditPolicy, Progress: os.Stderr})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stand) close() error {
	return errors.Join(s.stopController(), s.sandbox.Stop(), os.RemoveAll(s.folder))
}

func (s *stand) prepare(ctx context.Context) error {
	scheme, err := manager.NewScheme()
	if err != nil {
		return err
	}
	if s.client, err = client.New(s.sandbox.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := s.applyManifests(ctx); err != nil {
		return err
	}
	in := metav1.ObjectMeta{Namespace: manager.DefaultNamespace, Name: peerAccount}
	err = s.createAll(ctx, []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: in},
		bind(peerAccount, "cluster-admin"), bind(controllerAccount, "machine-controller-metrics-reader"),
	})
	if err != nil {
		return err
	}
	s.peer, err = s.configOf(ctx, peerAccount)
	return err
}

// applyManifests applies what the controller needs, but for its Deployment: it runs as a process.
func (s *stand) applyManifests(ctx context.Context) error {
	c, err := cluster.Connect(s.sandbox.Config)
	if err != nil {
		return err
	}
	objects := slices.DeleteFunc(append(install.Definitions(), manifests.Objects()...), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || o.GetKind() == "ClusterOperator" // which the controller makes
	})
	for _, object := range objects {
		in, err := c.Find(ctx, object.GroupVersionKind())
		if err == nil {
			_, err = c.Apply(ctx, in, object, cluster.Force)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return wait.PollUntilContextTimeout(ctx, look, patience, true, func(ctx context.Context) (bool, error) {
		served := errors.Join(
			s.client.List(ctx, &configv1.ClusterOperatorList{}), s.client.List(ctx, &machinev1beta1.MachineList{}), s.client.List(ctx, &clusterv1.ClusterList{}), s.client.List(ctx, &clusterv1.MachineList{}),
			s.client.List(ctx, &v1alpha1.KwokMachineList{}), s.client.List(ctx, &v1alpha1.ExternalMachineList{}),
		)
		return served == nil, nil
	})
}

func bind(account, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-" + account + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: manager.DefaultNamespace, Name: account}},
	}
}

// configOf returns how to connect as a service account, with no limit of the client's own.
func (s *stand) configOf(ctx context.Context, account string) (*rest.Config, error) {
	direct, err := kubernetes.NewForConfig(s.sandbox.Config)
	if err != nil {
		return nil, err
	}
	token, err := direct.CoreV1().ServiceAccounts(manager.DefaultNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("get a token of service account %s: %w", account, err)
	}
	config := rest.AnonymousClientConfig(s.sandbox.Config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	return config, nil
}

// createAll creates objects in their order.
func (s *stand) createAll(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		if err := s.client.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// startController starts the controller for machines of a dialect, and returns when it has the Lease.
func (s *stand) startController(ctx context.Context, of dialect) error {
	if err := s.createAll(ctx, of.surroundings()); err != nil {
		return err
	}
	config, err := s.configOf(ctx, controllerAccount)
	if err != nil {
		return err
	}
	kubeconfig, log := filepath.Join(s.folder, "kubeconfig"), filepath.Join(s.folder, "log")
	if err := writeKubeconfig(config, kubeconfig); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	output, err := os.Create(log)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	s.controller = exec.Command(s.program, "machine-controller", "--kubeconfig", kubeconfig, "--namespace", manager.DefaultNamespace,
		"--metrics-listen", address, "--concurrency", fmt.Sprint(s.atOnce), "--dialects", string(of.name()))
	s.controller.Stdout, s.controller.Stderr = output, output
	if err := s.controller.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func(process *exec.Cmd, ended chan<- struct{}) {
		s.end = process.Wait()
		close(ended)
	}(s.controller, s.ended)
	s.meter = newMeter(s.controller.Process.Pid, filepath.Join(s.sandbox.Logs, "audit.log"), "https://"+address+"/metrics", config.BearerToken)
	err = wait.PollUntilContextTimeout(ctx, look, patience, true, func(ctx context.Context) (bool, error) {
		scraped, err := s.meter.scrape(ctx)
		return err == nil && scraped["runlevel_machine_leader"] == 1, nil
	})
	if err != nil {
		text, _ := os.ReadFile(log)
		return errors.Join(fmt.Errorf("the controller has not started: %w\n%s", err, text), s.stopController())
	}
	return nil
}

// stopController stops the controller if it runs.
func (s *stand) stopController() error {
	if s.controller == nil {
		return nil
	}
	process := s.controller.Process
	s.controller = nil
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the controller: %w", err)
	}
	<-s.ended
	return s.end
}

// hasEnded returns an error if the controller has ended by itself, as it does when it can't renew its Lease in time.
func (s *stand) hasEnded() error {
	select {
	case <-s.ended:
		text, _ := os.ReadFile(filepath.Join(s.folder, "log"))
		return fmt.Errorf("the controller has ended: %w\n%s", s.end, text[max(0, len(text)-1000):])
	default:
		return nil
	}
}

func writeKubeconfig(config *rest.Config, file string) error {
	const name = "bench"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, file)
}

// freeAddress returns an address that nothing listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}
