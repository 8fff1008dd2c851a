package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// A versionInfo is the versions of this program and of its dependencies.
type versionInfo struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	Go         string `json:"goVersion"`
	Platform   string `json:"platform"`
	Kubernetes struct {
		Client  string `json:"client"`  // the client libraries
		Sandbox string `json:"sandbox"` // the control plane that the sandbox builds
	} `json:"kubernetes"`
}

func newVersion(streams Streams) *cobra.Command {
	var format output
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Runlevel and of the Kubernetes it is made with",
		Example: `  runlevel version
  runlevel version -o json`,
		RunE: func(*cobra.Command, []string) error {
			info := readVersion()
			return format.print(streams.Out, info, info.print)
		},
	}
	addOutput(command, &format)
	return command
}

func readVersion() versionInfo {
	info := versionInfo{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info.Kubernetes.Sandbox = binaries.Version()
	info.Kubernetes.Client = "unknown"
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.Version = build.Main.Version
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
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

func (v versionInfo) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "runlevel %s\n", v.Version)
	for _, line := range [][2]string{
		{"commit", v.Commit},
		{"go", v.Go + " " + v.Platform},
		{"kubernetes client", v.Kubernetes.Client},
		{"kubernetes sandbox", v.Kubernetes.Sandbox},
	} {
		if err == nil && line[1] != "" {
			_, err = fmt.Fprintf(out, "  %-20s %s\n", line[0], line[1])
		}
	}
	return err
}
