package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"sigs.k8s.io/yaml"
)

// configure creates the node's control group, and writes the files that its processes read, except for credentials.
// caFile has the certificate of the authority of the kubelet's clients.
func (n node) configure(programs Programs, caFile string) error {
	if err := createControlGroup(n.cgroup()); err != nil {
		return err
	}
	files := map[string][]byte{
		"containerd.toml":        []byte(n.containerdConfig(programs.Plugins)),
		"cni/10-bridge.conflist": []byte(n.cniConfig()),
		filepath.Join("registries", n.set.registry, "hosts.toml"): n.registryConfig(),
		"resolv.conf": nil, // the machine's own may name resolvers that the network does not reach
	}
	for name, config := range map[string]any{
		"kubelet.yaml":    n.kubeletConfig(caFile),
		"kube-proxy.yaml": n.kubeProxyConfig(),
	} {
		text, err := yaml.Marshal(config)
		if err != nil {
			return err
		}
		files[name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(n.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return n.linkRegistries()
}

// machineRegistries is the folder of this machine's configuration of registries.
const machineRegistries = "/etc/containerd/certs.d"

// linkRegistries adds this machine's configuration of registries to that of the sandbox. Containerd 2 reads only one
// folder.
func (n node) linkRegistries() error {
	entries, err := os.ReadDir(machineRegistries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		err := os.Symlink(filepath.Join(machineRegistries, entry.Name()), n.path("registries", entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) { // the sandbox's registry has the same name
			return err
		}
	}
	return nil
}

// containerdConfig returns the configuration in version 2 of the format, which containerd 1.6 and 2 read. All state is
// below the node's folder.
func (n node) containerdConfig(plugins string) string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true # CAP_SYS_RESOURCE may be missing
  netns_mounts_under_state_dir = true
  sandbox_image = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %q
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = %q
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, n.path("containerd"), n.state(), n.socket(), n.path("opt"), pauseImage, n.snapshotter(), n.path("runc"), plugins,
		n.path("cni"), n.path("registries"))
}

// registryConfig returns the configuration with which the container runtime uses plain http for the registry of the
// sandbox.
func (n node) registryConfig() []byte {
	url := "http://" + n.set.registry
	return fmt.Appendf(nil, "server = %q\n[host.%q]\n", url, url) // 1.6 refuses a file without a host
}

// state returns the folder of containerd's running tasks.
func (n node) state() string { return n.path("state") }

// snapshotter returns the snapshotter for the file system of the folder: layers of overlayfs can't be on another
// overlayfs.
func (n node) snapshotter() string {
	const overlayfs = 0x794c7630
	var s syscall.Statfs_t
	if err := syscall.Statfs(n.set.folder, &s); err == nil && s.Type == overlayfs {
		return "native"
	}
	return "overlayfs"
}

func (n node) cniConfig() string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "sandbox", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, n.path("ipam"), n.pods())
}

func (n node) kubeletConfig(caFile string) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": n.address().String(), "healthzBindAddress": "127.0.0.1",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": caFile},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   n.path("kubelet.crt"), "tlsPrivateKeyFile": n.path("kubelet.key"),
		"containerRuntimeEndpoint": "unix://" + n.socket(),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + n.cgroup(), "failCgroupV1": false,
		"failSwapOn":    false,
		"clusterDomain": "cluster.local", "clusterDNS": []string{dnsAddress}, "resolvConf": n.path("resolv.conf"),
		"podLogsDir": n.path("podlogs"), "volumePluginDir": n.path("volumeplugins"),
		"serializeImagePulls": false,
		// The disk is the developer's own: the kubelet does not evict pods to free it.
		"evictionHard": map[string]any{
			"memory.available":  "100Mi",
			"nodefs.available":  "1%",
			"imagefs.available": "1%",
		},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
	}
}

func (n node) kubeProxyConfig() map[string]any {
	return map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "hostnameOverride": n.name(), "clusterCIDR": n.set.network().String(),
		"clientConnection":   map[string]any{"kubeconfig": n.path("kube-proxy.kubeconfig")},
		"healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0}, // a setting of the whole machine
	}
}
