package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// Programs are the files of the programs of a node.
type Programs struct {
	Kubelet, KubeProxy string
	Containerd, Ctr    string
	Nsenter            string
	Plugins            string // the folder of CNI plugins
}

// pluginFolders are the folders in which distributions install the CNI plugins.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// FindPrograms returns the programs of this machine that nodes need. The error names the packages of missing programs.
func FindPrograms() (Programs, error) {
	if runtime.GOOS != "linux" {
		return Programs{}, fmt.Errorf("real nodes run on Linux, not on %s: leave out --real-nodes for simulated ones",
			runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return Programs{}, errors.New("real nodes create network namespaces and mounts: run this as root, or " +
			"leave out --real-nodes for simulated ones")
	}
	var p Programs
	var missing []string
	for _, program := range []struct {
		name, pkg string
		file      *string
	}{
		{"containerd", "containerd", &p.Containerd}, {"ctr", "containerd", &p.Ctr}, {"runc", "runc", new(string)},
		{"nsenter", "util-linux", &p.Nsenter}, {"ip", "iproute2", new(string)}, {"nft", "nftables", new(string)},
	} {
		var err error
		if *program.file, err = exec.LookPath(program.name); err != nil {
			missing = append(missing, fmt.Sprintf("%s (package %s)", program.name, program.pkg))
		}
	}
	if p.Plugins = findPlugins(); p.Plugins == "" {
		missing = append(missing, "the CNI plugin bridge (package containernetworking-plugins)")
	}
	if len(missing) > 0 {
		return p, fmt.Errorf("real nodes need programs that are not installed: %s", strings.Join(missing, ", "))
	}
	return p, nil
}

// Locate adds the programs that are built from Go modules. If the programs have to be built, Locate reports the build
// to progress, which may be nil.
func (p *Programs) Locate(ctx context.Context, progress io.Writer) error {
	programs, err := binaries.Locate(ctx, binaries.NodeNames(), progress)
	p.Kubelet, p.KubeProxy = programs[binaries.Kubelet], programs[binaries.KubeProxy]
	return err
}

func findPlugins() string {
	for _, folder := range pluginFolders {
		if _, err := os.Stat(filepath.Join(folder, "bridge")); err == nil {
			return folder
		}
	}
	return ""
}
