package sandbox

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// The addresses of Services and pods. With simulated nodes, they do not belong to a network: see egress.
const (
	serviceCIDR    = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // address of the API server's Service
	podCIDR        = "10.244.0.1/16"
)

// The components, by the names of their programs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// Components lists the names of all components, in the order in which they depend on each other.
func Components() []string { return binaries.Names() }

// arguments returns the command line of each component.
func arguments(o Options, h *stateFolder, p ports) map[string][]string {
	return map[string][]string{
		Etcd:              etcdArgs(h, p),
		APIServer:         apiServerArgs(o, h, p),
		ControllerManager: controllerManagerArgs(o, h),
		Scheduler:         schedulerArgs(o, h),
		Kwok:              kwokArgs(h),
	}
}

// etcdArgs turns off fsync: Stop deletes the data, and crash tests kill processes, not the machine.
func etcdArgs(h *stateFolder, p ports) []string {
	url := loopbackURL(p.etcd)
	cert, key, ca := h.path("pki", "etcd.crt"), h.path("pki", "etcd.key"), h.path("pki", "etcd-ca.crt")
	return []string{
		"--name=" + h.name(),
		"--data-dir=" + h.path("etcd"),
		"--unsafe-no-fsync",
		"--log-level=warn",
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		"--client-cert-auth", "--cert-file=" + cert, "--key-file=" + key, "--trusted-ca-file=" + ca,
		"--listen-peer-urls=https://127.0.0.1:0",
		"--initial-advertise-peer-urls=https://127.0.0.1:2380", // no peer connects to it
		"--initial-cluster=" + h.name() + "=https://127.0.0.1:2380",
		"--peer-client-cert-auth", "--peer-cert-file=" + cert, "--peer-key-file=" + key, "--peer-trusted-ca-file=" + ca,
	}
}

func apiServerArgs(o Options, h *stateFolder, p ports) []string {
	args := []string{
		"--etcd-servers=" + loopbackURL(p.etcd),
		"--etcd-cafile=" + h.path("pki", "etcd-ca.crt"),
		"--etcd-certfile=" + h.path("pki", "etcd-client.crt"),
		"--etcd-keyfile=" + h.path("pki", "etcd-client.key"),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.apiServer),
		"--endpoint-reconciler-type=none", // the endpoints of a Service can't be on the loopback
		"--tls-cert-file=" + h.path("pki", "apiserver.crt"),
		"--tls-private-key-file=" + h.path("pki", "apiserver.key"),
		"--client-ca-file=" + h.path("pki", "ca.crt"),
		"--token-auth-file=" + h.path("pki", "tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + h.path("pki", "service-account.key"),
		"--service-account-signing-key-file=" + h.path("pki", "service-account.key"),
		"--requestheader-client-ca-file=" + h.path("pki", "front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + h.path("pki", "front-proxy-client.crt"),
		"--proxy-client-key-file=" + h.path("pki", "front-proxy-client.key"),
		"--kubelet-certificate-authority=" + h.path("pki", "ca.crt"),
		"--kubelet-client-certificate=" + h.path("pki", "kubelet-client.crt"),
		"--kubelet-client-key=" + h.path("pki", "kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--egress-selector-config-file=" + h.path("egress.yaml"),
		"--shutdown-watch-termination-grace-period=1s", // otherwise, open watches delay its exit by a minute
	}
	if o.AuditPolicy != "" {
		args = append(args,
			"--audit-policy-file="+h.path("audit-policy.yaml"),
			"--audit-log-path="+filepath.Join(h.logs(), "audit.log"))
	}
	return withGates(o, args)
}

func controllerManagerArgs(o Options, h *stateFolder) []string {
	args := []string{
		"--secure-port=0",
		"--leader-elect=false",
		"--kubeconfig=" + kubeconfigOf(h, ControllerManager),
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + h.path("pki", "service-account.key"),
		"--root-ca-file=" + h.path("pki", "ca.crt"),
		"--cluster-signing-cert-file=" + h.path("pki", "ca.crt"),
		"--cluster-signing-key-file=" + h.path("pki", "ca.key"),
	}
	for _, controller := range o.Controllers {
		args = append(args, "--controllers="+controller)
	}
	if o.NodeGrace > 0 {
		args = append(args, "--node-monitor-grace-period="+o.NodeGrace.String())
	}
	return withGates(o, append(args, clientLimits()...))
}

func schedulerArgs(o Options, h *stateFolder) []string {
	args := []string{"--secure-port=0", "--leader-elect=false", "--kubeconfig=" + kubeconfigOf(h, Scheduler)}
	return withGates(o, append(args, clientLimits()...))
}

func kwokArgs(h *stateFolder) []string {
	return []string{
		"--config=" + h.path("kwok.yaml"),
		"--kubeconfig=" + kubeconfigOf(h, Kwok),
		"--manage-all-nodes",
		"--node-lease-duration-seconds=40",
		"--cidr=" + podCIDR,
		"--node-ip=127.0.0.1",
	}
}

// clientLimits raises the components' own rate limit, 20 requests a second, so that tests wait only for the server.
func clientLimits() []string {
	return []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
}

func withGates(o Options, args []string) []string {
	if o.Kubernetes != "" {
		args = append(args, "--emulated-version="+o.Kubernetes)
	}
	if gates := o.gates(); gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	return args
}

func loopbackURL(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func kubeconfigOf(h *stateFolder, component string) string {
	return h.path("pki", component+".kubeconfig")
}
