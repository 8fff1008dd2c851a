package binaries

import (
	"crypto/sha256"
	_ "embed" // for module.txtar
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/txtar"
)

// packed is the folder sandbox of this repository. The go command embeds no
// folder that is a module of its own, so "make generate" packs it.
//
//go:embed module.txtar
var packed []byte

// A module is the source of the programs.
type module struct {
	files   *txtar.Archive
	version string // of Kubernetes
	hash    string // of all files
}

// Version returns the version of Kubernetes that is built.
func Version() string {
	m, err := packedModule()
	if err != nil {
		return "unknown"
	}
	return m.version
}

func packedModule() (*module, error) {
	m := &module{files: txtar.Parse(packed), hash: fmt.Sprintf("%x", sha256.Sum256(packed))}
	for _, file := range m.files.Files {
		if file.Name != "go.mod" {
			continue
		}
		parsed, err := modfile.ParseLax(file.Name, file.Data, nil)
		if err != nil {
			return nil, fmt.Errorf("read the packed module of the control plane: %w", err)
		}
		for _, require := range parsed.Require {
			if require.Mod.Path == "k8s.io/kubernetes" {
				m.version = require.Mod.Version
			}
		}
	}
	if m.version == "" {
		return nil, fmt.Errorf("the packed module of the control plane names no version of Kubernetes")
	}
	return m, nil
}

// write unpacks the module into a folder.
func (m *module) write(dir string) error {
	for _, file := range m.files.Files {
		if err := os.WriteFile(filepath.Join(dir, file.Name), file.Data, 0o600); err != nil {
			return fmt.Errorf("unpack the control plane's module: %w", err)
		}
	}
	return nil
}

// buildFlags stamp the version into the program: clients refuse to talk to an
// API server that does not know its own.
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
