// Package binaries finds the programs of a control plane, or builds them.
//
// It looks into the folder that KUBEBUILDER_ASSETS names, then into the user's
// cache. Programs that are in neither are built from Go modules, all five as one
// program that acts by the name it is called by. The module is the repository's
// folder sandbox, which is packed into this package, so that a Runlevel
// installed without its sources can build it too.
//
// It starts nothing; package sandbox does. Locate is the call to start from.
package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// AssetsVariable names the folder to look into first. It is the one that the
// Kubernetes ecosystem's test tools have agreed on.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Names lists the programs.
func Names() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
}

// The programs of a node that runs containers.
const (
	Kubelet   = "kubelet"
	KubeProxy = "kube-proxy"
)

// LocateNode returns the files of kubelet and kube-proxy.
func LocateNode() (map[string]string, error) {
	found, missing, err := findAssets(os.Getenv(AssetsVariable), []string{Kubelet, KubeProxy})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("no %s in the folder that %s names: real nodes need it there", strings.Join(missing, " and no "), AssetsVariable)
	}
	return found, err
}

// Locate returns the file of each of the named programs. If it has to build
// them, which takes minutes, it writes to progress, which may be nil.
func Locate(ctx context.Context, names []string, progress io.Writer) (map[string]string, error) {
	if !slices.Contains([]string{"linux", "darwin"}, runtime.GOOS) {
		return nil, fmt.Errorf("a Kubernetes control plane runs on Linux and macOS, not on %s; on Windows, use WSL", runtime.GOOS)
	}
	if progress == nil {
		progress = io.Discard
	}
	found, missing, err := findAssets(os.Getenv(AssetsVariable), names)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	module, err := packedModule()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir("control-plane")
	if err != nil {
		return nil, err
	}
	dir, err := (&store{dir: cache, module: module}).ensure(ctx, progress)
	if err != nil {
		return nil, err
	}
	for _, name := range missing {
		found[name] = filepath.Join(dir, name)
	}
	return found, nil
}

// findAssets looks for programs in dir, and also returns the missing ones:
// some sets of assets have only etcd and the API server.
func findAssets(dir string, names []string) (found map[string]string, missing []string, err error) {
	found = map[string]string{}
	if dir == "" {
		return found, names, nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil, fmt.Errorf("%s is %s, which is no folder: correct it, or unset it to have the programs built", AssetsVariable, dir)
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return nil, nil, fmt.Errorf("look for %s: %w", name, err)
		case info.IsDir() || info.Mode()&0o111 == 0:
			return nil, nil, fmt.Errorf("%s is no program: make it executable, or correct %s", file, AssetsVariable)
		default:
			found[name] = file
		}
	}
	return found, missing, nil
}

// key identifies a build: version, platform and hash of the module.
func (m *module) key() string {
	return strings.Join([]string{m.version, runtime.GOOS, runtime.GOARCH, m.hash[:12]}, "-")
}
