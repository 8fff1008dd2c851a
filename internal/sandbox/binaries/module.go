package binaries

import (
	"crypto/sha256"
	_ "embed" // embeds module.txtar
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/txtar"
)

// The folders below sandbox of this repository. The go command does not embed folders of other modules, so "make
// generate" packs them.
var (
	//go:embed controlplane.txtar
	packedControlPlane []byte
	//go:embed node.txtar
	packedNode []byte
)

// A module is the source of a program with several names. When the program is called by a name, it acts as the
// component of that name.
type module struct {
	names    []string // names of the program
	cache    string   // the folder of its builds in the user's cache
	contents string   // description for the user; %s is the version
	duration string   // duration of a build
	files    *txtar.Archive
	version  string // version of Kubernetes
	hash     string // hash of all files

	os, arch  string // platform of the build
	toolchain string // version of Go that compiles; empty for that of the go command
}

// modules returns the packed modules.
func modules() ([]*module, error) {
	var all []*module
	for _, m := range []struct {
		packed []byte
		module
	}{
		{packedControlPlane, module{
			names: Names(), cache: "control-plane", contents: "the control plane (Kubernetes %s, etcd, kwok)",
			duration: "about 5 minutes on 2 cores",
		}},
		{packedNode, module{
			names: NodeNames(), cache: "node", contents: "kubelet and kube-proxy (Kubernetes %s)",
			duration: "about 4 minutes on 2 cores",
		}},
	} {
		unpacked, err := m.unpack(m.packed)
		if err != nil {
			return nil, err
		}
		all = append(all, unpacked)
	}
	return all, nil
}

// Version returns the version of Kubernetes in the packed modules.
func Version() string {
	all, err := modules()
	if err != nil {
		return "unknown"
	}
	return all[0].version
}

// unpack returns the module with the files of an archive.
func (m module) unpack(packed []byte) (*module, error) {
	m.os, m.arch = runtime.GOOS, runtime.GOARCH
	m.files, m.hash = txtar.Parse(packed), fmt.Sprintf("%x", sha256.Sum256(packed))
	for _, file := range m.files.Files {
		if file.Name != "go.mod" {
			continue
		}
		parsed, err := modfile.ParseLax(file.Name, file.Data, nil)
		if err != nil {
			return nil, fmt.Errorf("read the packed module %s: %w", m.cache, err)
		}
		for _, require := range parsed.Require {
			if require.Mod.Path == "k8s.io/kubernetes" {
				m.version = require.Mod.Version
			}
		}
	}
	if m.version == "" {
		return nil, fmt.Errorf("the packed module %s has no version of Kubernetes", m.cache)
	}
	return &m, nil
}

// key identifies a build: version, platform and hash of the module.
func (m *module) key() string {
	return strings.Join([]string{m.version, m.os, m.arch, m.hash[:12]}, "-")
}

// write unpacks the module into a folder.
func (m *module) write(dir string) error {
	for _, file := range m.files.Files {
		if err := os.WriteFile(filepath.Join(dir, file.Name), file.Data, 0o600); err != nil {
			return fmt.Errorf("unpack the module %s: %w", m.cache, err)
		}
	}
	return nil
}

// buildFlags returns flags that set the version of the program: clients refuse an API server without a version.
func (m *module) buildFlags() []string {
	const variable = "-X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(m.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	ldflags := []string{
		"-s -w",
		variable + "gitVersion=" + m.version,
		variable + "gitMajor=" + major,
		variable + "gitMinor=" + minor,
	}
	return []string{"-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=" + strings.Join(ldflags, " ")}
}
