package core

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/text/buildinfo"
)

// A VersionInfo is the versions of this program and of its dependencies.
type VersionInfo struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	Go         string `json:"goVersion"`
	Platform   string `json:"platform"`
	Kubernetes struct {
		Client  string `json:"client"`  // the client libraries
		Sandbox string `json:"sandbox"` // the control plane that the sandbox builds
	} `json:"kubernetes"`
}

// ReadVersion returns the versions of this program and of its dependencies.
func ReadVersion() VersionInfo {
	info := VersionInfo{
		Version: cmp.Or(buildinfo.Version, "unknown"), Commit: buildinfo.Commit,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info.Kubernetes.Sandbox = binaries.Version()
	info.Kubernetes.Client = "unknown"
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.Version = cmp.Or(buildinfo.Version, build.Main.Version)
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" && info.Commit == "" {
			info.Commit = setting.Value
		}
	}
	for _, module := range build.Deps {
		if module.Path == "k8s.io/client-go" {
			info.Kubernetes.Client = module.Version
		}
	}
	return info
}
