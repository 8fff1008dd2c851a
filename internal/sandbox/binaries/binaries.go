// Package binaries finds the programs of a control plane and of its nodes, downloads or builds them.
//
// Locate searches the folder that KUBEBUILDER_ASSETS names, and then the user's cache. Missing programs of the control
// plane are downloaded from a release of Runlevel, and verified by a digest. Programs without an archive, or whose
// download failed, are built from Go modules: the five programs of the control plane as one program that acts by the
// name by which it is called, the two programs of real nodes as another one. The modules are the folders of sandbox/ in
// the repository. They are packed into this package, so that a Runlevel that was installed without its sources can
// build them, too. WriteArchives writes the archives of a release.
//
// Package sandbox starts the programs. Start with Locate.
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
)

// AssetsVariable names the folder to search first. The test tools of the Kubernetes ecosystem use the same
// variable.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Names lists the programs of a control plane.
func Names() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
}

// The programs of a node that runs containers.
const (
	Kubelet   = "kubelet"
	KubeProxy = "kube-proxy"
)

// NodeNames lists the programs of a node that runs containers.
func NodeNames() []string { return []string{Kubelet, KubeProxy} }

// Locate returns the files of the named programs. If programs have to be downloaded or built, which takes minutes,
// Locate reports that to progress, which may be nil.
func Locate(ctx context.Context, names []string, progress io.Writer) (map[string]string, error) {
	if !slices.Contains([]string{"linux", "darwin"}, runtime.GOOS) {
		return nil, fmt.Errorf("a Kubernetes control plane runs on Linux and macOS, not on %s; on Windows, use WSL",
			runtime.GOOS)
	}
	if progress == nil {
		progress = io.Discard
	}
	found, missing, err := findAssets(os.Getenv(AssetsVariable), names)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	all, err := modules()
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		built := slices.DeleteFunc(slices.Clone(missing), func(name string) bool {
			return !slices.Contains(m.names, name)
		})
		if len(built) == 0 {
			continue
		}
		cache, err := CacheDir(m.cache)
		if err != nil {
			return nil, err
		}
		download, err := m.findDownload()
		if err != nil {
			return nil, err
		}
		dir, err := (&store{dir: cache, module: m, download: download}).ensure(ctx, progress)
		if err != nil {
			return nil, err
		}
		for _, name := range built {
			found[name] = filepath.Join(dir, name)
		}
	}
	return found, nil
}

// findAssets searches dir for programs, and also returns the names of missing programs: some sets of assets have only
// etcd and the API server.
func findAssets(dir string, names []string) (found map[string]string, missing []string, err error) {
	found = map[string]string{}
	if dir == "" {
		return found, names, nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil, fmt.Errorf("%s is %s, which is not a folder: correct it, or unset it to build the programs",
			AssetsVariable, dir)
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
			return nil, nil, fmt.Errorf("%s is not a program: make it executable, or correct %s", file, AssetsVariable)
		default:
			found[name] = file
		}
	}
	return found, missing, nil
}
