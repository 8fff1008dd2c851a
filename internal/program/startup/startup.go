// Package startup starts the programs that run in a cluster: it reads flags from a file, logs their values, keeps the
// garbage collector within the memory limit of the container, serves probes, and waits for the API server.
//
// The package reads no objects of the cluster: the controllers of the programs in cmd/ do.
//
// Start with Main.
package startup

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/text/buildinfo"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Main runs one of the commands of a program, and ends it with exit code 1 if that fails. A flag of a command can also
// be set by the file that --config names.
func Main(ctx context.Context, name string, commands ...*cobra.Command) {
	limitMemory("/sys/fs/cgroup/memory.max")
	ctrl.SetLogger(klog.Background())
	root := &cobra.Command{
		Use:           name,
		Short:         "run a part of Runlevel in a cluster",
		Version:       cmp.Or(buildinfo.Version, "unknown"),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
	for _, command := range commands {
		root.AddCommand(configurable(command))
	}
	if command, err := root.ExecuteContextC(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command.CommandPath(), err)
		os.Exit(1)
	}
}

// configurable adds --config to a command that takes no arguments.
func configurable(command *cobra.Command) *cobra.Command {
	config := command.Flags().String("config", "",
		"a YAML file of flags, as NAME: VALUE; it may be missing, and the command line takes precedence")
	command.Args = cobra.NoArgs
	command.PreRunE = func(command *cobra.Command, _ []string) error {
		if err := setFromFile(command, *config); err != nil {
			return err
		}
		logFlags(command.Flags())
		return nil
	}
	return command
}

// AddServingFlags adds the flags for the addresses of probes and metrics.
func AddServingFlags(flags *pflag.FlagSet, probes *string, metrics *webserver.Serving) {
	flags.StringVar(probes, "listen", "", "the address of /healthz and /readyz, such as :8080")
	flags.StringVar(&metrics.Address, "metrics-listen", "",
		"the address of /metrics, such as :9099; served over TLS to clients whom the API server allows to get /metrics")
	flags.StringVar(&metrics.CertFile, "serving-cert-file", "",
		"the certificate for --metrics-listen, and for --ui of the operator; it may be missing or change at any time")
	flags.StringVar(&metrics.KeyFile, "serving-key-file", "", "the key of --serving-cert-file")
}

// ConfigOf returns the connection to the cluster that flags and environment name, for a user agent.
func ConfigOf(userAgent string) (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	if buildinfo.Version != "" {
		config.UserAgent += "/" + buildinfo.Version
	}
	return config, nil
}

// Version returns the version that a program reports in its ClusterOperator: that of the release which has its
// Deployment, or else its own.
func Version() string {
	const placeholder = "0.0.1-snapshot" // of a Deployment without a release
	if version := os.Getenv("RELEASE_VERSION"); version != "" && version != placeholder {
		return version
	}
	return cmp.Or(strings.TrimPrefix(buildinfo.Version, "v"), placeholder)
}

// limitMemory makes the garbage collector keep the process within the memory limit of its container, less a tenth for
// memory that the collector does not count. The limit is in a file: a number of bytes, or "max". Without a limit, or if
// GOMEMLIMIT is set, nothing changes.
func limitMemory(file string) {
	text, err := os.ReadFile(file)
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// Container returns a name for the container of this process, for lock.Options: it is unique, and stays the same when
// the container is started again. It is empty if the pod is not known, or if the container may have other processes of
// the program, because this one is not its first.
func Container() string {
	pod, uid := os.Getenv("POD_NAME"), os.Getenv("POD_UID")
	if pod == "" || uid == "" || os.Getpid() != 1 {
		return ""
	}
	return pod + "_" + uid
}

// setFromFile sets the flags of a command from a file, except those set on the command line. A missing file sets none:
// its ConfigMap may be created at any time. A command with the annotation SkipsUnknownFlags skips an unknown flag,
// unless it is like a known one: the file may be that of a newer program, whose release was rolled back.
func setFromFile(command *cobra.Command, path string) error {
	flags := command.Flags()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return fmt.Errorf("--config: %s: write a line for each flag, as NAME: VALUE: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		found := flags.Lookup(name)
		if found == nil && command.Annotations[SkipsUnknownFlags] != "" && !isMisspelt(name, namesOf(flags)) {
			klog.ErrorS(nil, "the file has a flag that this program does not know; a newer one may know it", "flag",
				name,
				"file", path)
			config := flags.Lookup("config")
			_ = flags.SetAnnotation(config.Name, unknownFlags, append(config.Annotations[unknownFlags], name))
			continue
		}
		if found == nil || name == "config" {
			return fmt.Errorf("--config: %s: unknown flag %q: see %s --help", path, name, command.CommandPath())
		}
		if found.Changed {
			klog.InfoS("the command line takes precedence over the file", "flag", name, "file", path, "value",
				found.Value)
			continue
		}
		if err := flags.Set(name, fmt.Sprint(values[name])); err != nil {
			return fmt.Errorf("--config: %s: %s: %w", path, name, err)
		}
	}
	return nil
}

// SkipsUnknownFlags is the annotation of a command that reports its UnknownFlags.
const SkipsUnknownFlags = "skips-unknown-flags"

// isMisspelt reports whether an unknown flag is like a known one, or has all its words, as cluster-profile has profile.
func isMisspelt(unknown string, known []string) bool {
	words := strings.Split(unknown, "-")
	return printable.Nearest(unknown, known, 3) != "" || slices.ContainsFunc(known, func(name string) bool {
		return !slices.ContainsFunc(strings.Split(name, "-"), func(word string) bool {
			return !slices.Contains(words, word)
		})
	})
}

// unknownFlags is the annotation of --config with the flags of the file that were skipped.
const unknownFlags = "unknown"

// UnknownFlags returns the flags of the file that were skipped.
func UnknownFlags(flags *pflag.FlagSet) []string {
	return flags.Lookup("config").Annotations[unknownFlags]
}

func namesOf(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// logFlags logs the value of each flag, from any source. None is secret.
func logFlags(flags *pflag.FlagSet) {
	var values []any
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			values = append(values, f.Name, f.Value.String())
		}
	})
	klog.InfoS("starting with these flags", values...)
}
