// Package install defines the verbs that install the operator, and uninstall it or a release.
//
// The verbs parse flags, ask for confirmation, and print changes and deletes. Package setup of the operator decides
// about the objects of the operator, package uninstall of internal/session about those of a release.
//
// New returns the verb install, and NewUninstall the verb uninstall. Start with New.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/operator/prometheus"
	"github.com/runlevel/runlevel/internal/operator/setup"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// installFlags are the flags of runlevel install.
type installFlags struct {
	setupFlags
	release  string
	image    string
	profile  string
	features struct {
		set   string
		gates []string
	}
	insecure   bool
	mirrors    source.Mirrors
	noWait     bool
	ui         bool   // serves pages at the port of the Service
	name       string // name of the cluster
	prometheus prometheus.Options
}

// setupFlags are the flags that runlevel install and uninstall have in common.
type setupFlags struct {
	cluster core.ClusterFlags
	format  core.Output
	dryRun  core.DryRun
	timeout time.Duration
}

// add adds the flags to a command that waits until the operator has reached a state.
func (f *setupFlags) add(command *cobra.Command, end string) {
	core.AddConnectionFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	core.AddDryRun(command, &f.dryRun)
	command.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait until the operator "+end)
}

// check returns an error if a flag has an invalid value.
func (f *setupFlags) check() error {
	if f.timeout <= 0 {
		return core.Misusef("--timeout: %s is invalid: it must be greater than 0", f.timeout)
	}
	return nil
}

// An OperatorReport is the result of an install or uninstall of the operator, or of its dry run.
type OperatorReport struct {
	Release string         `json:"release,omitempty"`
	Image   string         `json:"image,omitempty"`
	DryRun  bool           `json:"dryRun,omitempty"`
	Objects []setup.Change `json:"objects"`
}

// run connects to the cluster, calls act, and prints the changes that act reports. In text, run prints each change at
// once, and the line last after success.
func (f *setupFlags) run(ctx context.Context, streams core.Streams, report OperatorReport, last string,
	act func(*setup.Installer) error) error {
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	report.DryRun = f.dryRun.IsEnabled()
	err = act(&setup.Installer{
		Cluster: c, IsDryRun: report.DryRun, OnWarning: func(warnings []string) { core.Warn(streams.Err, warnings) },
		OnChange: func(change setup.Change) {
			report.Objects = append(report.Objects, change)
			if f.format == core.Text {
				printChange(streams.Out, change, report.DryRun)
			}
		},
	})
	return errors.Join(err, f.format.Print(streams.Out, report, func(out io.Writer) error {
		if err == nil && last != "" {
			fmt.Fprintln(out, last)
		}
		return nil
	}))
}

func printChange(out io.Writer, change setup.Change, isDryRun bool) {
	text := fmt.Sprintf("%-11s %s", change.Action, change.Object)
	if change.Message != "" {
		text += ": " + change.Message
	}
	if isDryRun {
		text += " (dry run)"
	}
	fmt.Fprintln(out, text)
}

const installHelp = `Install the operator, which keeps a release in place on the cluster, and updates it when
ClusterVersion "version" asks for another one.

--release is the first release: an image in a registry, or a folder of the operator's own
image, as an absolute path. An image with a tag is pulled to find its digest, and the operator
gets that. Once ClusterVersion "version" asks for an image (spec.desiredUpdate), that image is applied.

--image is the operator's own image, as "make image" writes it. The default is the image
"runlevel" in the release's image-references, or the release itself, which then has to be
based on the operator's image.

The manifests are those of install/ in the source: a namespace with a quota for the operator's
priority, the definitions of ClusterVersion and ClusterOperator, a service account and its rights,
an admission policy for requests of updates, a NetworkPolicy, a Service for metrics and pages, and a
Deployment; and if the cluster has the Prometheus operator, its scrape configuration and alerts.
They are applied by server-side apply, and can be applied again at any time. Objects that a release
owns are not changed. --profile, --feature-set, --feature-gates, --insecure, --image-mirror, --cluster-name, --ui
and the flags of the Prometheus go into the operator's settings, ConfigMap runlevel-operator.

If a cluster-version operator runs on the cluster, nothing is installed: docs/migrate-cvo.md shows how
to replace it.

Exit codes: 0 when the operator is available, 1 for a failure, 2 for misuse or a release that
can't be read.`

const installExamples = `  # A release in a registry, which has the operator's image among its own
  runlevel install --release registry.example/shop:1.4.0

  # A release that is part of the operator's image
  runlevel install --release / --image registry.example/shop-operator:1.4.0

  # Preview the installation
  runlevel install --release registry.example/shop:1.4.0 --dry-run=server

  # Then ask for another release
  oc adm upgrade --to-image registry.example/shop@sha256:... --allow-explicit-upgrade`

// New returns the verb install.
func New(streams core.Streams) *cobra.Command {
	var f installFlags
	command := &cobra.Command{
		Use:     "install",
		Short:   "Install the operator, which keeps and updates a release",
		Long:    installHelp,
		Example: installExamples,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command, streams)
		},
	}
	f.add(command, "is available")
	flags := command.Flags()
	flags.StringVar(&f.release, "release", "",
		"the first release: an image, or a folder of the operator's image")
	flags.StringVar(&f.image, "image", "",
		`the operator's image (default: that which the release calls "runlevel", or the release itself)`)
	flags.StringVar(&f.profile, "profile", "",
		"the cluster profile, such as self-managed-high-availability: the operator applies only its "+
			"manifests. It stays in the operator's settings.")
	flags.StringVar(&f.features.set, "feature-set", "",
		"the feature set of a cluster without FeatureGate \"cluster\" (default: all, or \"Default\" with --profile). "+
			"It stays in the operator's settings.")
	flags.StringSliceVar(&f.features.gates, "feature-gates", nil,
		`the feature gates that are on in a cluster without FeatureGate "cluster". They stay in the operator's settings.`)
	flags.BoolVar(&f.insecure, "insecure", false, core.InsecureUsage+
		", for this command and for the operator; it stays in the operator's settings, --insecure=false removes it")
	flags.Var(&f.mirrors, "image-mirror", core.MirrorUsage+
		", by this command and by the operator; they stay in the operator's settings")
	flags.StringVar(&f.name, "cluster-name", "",
		"the name of the cluster in notifications. It stays in the operator's settings.")
	flags.BoolVar(&f.ui, "ui", false, "serve pages on the releases to users with ClusterRole runlevel-ui. It stays in "+
		"the operator's settings; --ui=false removes it.")
	f.prometheus.AddFlags(flags)
	flags.BoolVar(&f.noWait, "no-wait", false,
		"end when all objects are applied, and don't wait until the operator is available")
	_ = command.RegisterFlagCompletionFunc("feature-set",
		cobra.FixedCompletions(payload.FeatureSets(), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("profile",
		cobra.FixedCompletions(loader.Profiles(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (f *installFlags) run(command *cobra.Command, streams core.Streams) error {
	ctx := command.Context()
	if err := f.check(); err != nil {
		return err
	}
	program, err := f.program(ctx, streams.Err)
	if err != nil {
		return core.ReadError(ctx, err)
	}
	program.Settings = f.settings(command.Flags())
	last, waits := "the operator is available: \"oc get clusterversion\" shows how far the release is", !f.noWait &&
		!f.dryRun.IsEnabled()
	if !waits {
		last = ""
	}
	report := OperatorReport{Release: program.Release, Image: program.Image}
	return f.setupFlags.run(ctx, streams, report, last, func(i *setup.Installer) error {
		err := i.Install(ctx, program)
		if errors.Is(err, setup.ErrSettings) {
			return core.Misuse(err)
		}
		if err != nil || !waits {
			return err
		}
		return i.AwaitOperator(ctx, f.timeout)
	})
}

// settings returns the operator's flags that are set on the command line, with their values.
func (f *installFlags) settings(flags *pflag.FlagSet) map[string]any {
	all := map[string]any{}
	for name, setting := range map[string]struct {
		flag  string
		value any
	}{
		"profile":               {"profile", f.profile},
		"feature-set":           {"feature-set", f.features.set},
		"feature-gates":         {"feature-gates", strings.Join(f.features.gates, ",")},
		"insecure-registry":     {"insecure", f.insecure},
		"image-mirror":          {"image-mirror", f.mirrors.String()},
		"cluster-name":          {"cluster-name", f.name},
		"ui":                    {"ui", map[bool]string{true: ":8443"}[f.ui]},
		"prometheus-url":        {"prometheus-url", f.prometheus.URL},
		"prometheus-ca-file":    {"prometheus-ca-file", f.prometheus.CAFile},
		"prometheus-token-file": {"prometheus-token-file", f.prometheus.TokenFile},
	} {
		if flags.Changed(setting.flag) {
			all[name] = setting.value
		}
	}
	return all
}

// program returns the program of the flags. If the digest of the release or the operator's image is unknown, program
// pulls the release.
func (f *installFlags) program(ctx context.Context, progress io.Writer) (setup.Program, error) {
	program := setup.Program{Image: f.image, Release: f.release}
	if f.image != "" {
		if _, err := parseImage("image", f.image, ""); err != nil {
			return program, err
		}
	}
	if path.IsAbs(f.release) {
		if f.image == "" {
			return program, fmt.Errorf("--release %s is a folder of the operator's image: name that image with --image",
				f.release)
		}
		program.Release = path.Clean(f.release)
		return program, nil
	}
	image, err := parseImage("release", f.release, "; a folder of the operator's image needs its absolute path")
	if err != nil {
		return program, err
	}
	if _, isDigest := image.(name.Digest); isDigest && f.image != "" {
		return program, nil
	}
	err = program.Read(ctx, source.Options{Progress: progress, Insecure: f.insecure, Mirrors: f.mirrors})
	if errors.Is(err, setup.ErrOnDisk) {
		err = fmt.Errorf("--release: %w", err)
	}
	return program, err
}

// parseImage parses the image of a flag. The registry, and a tag or digest, are required.
func parseImage(flag, text, alternative string) (name.Reference, error) {
	image, err := name.ParseReference(text, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("--%s: %q is not an image: it needs its registry, and a tag or digest, as in "+
			"registry.example/repo:tag%s", flag, text, alternative)
	}
	return image, nil
}

// check returns an error if a flag is missing or has an invalid value.
func (f *installFlags) check() error {
	if f.release == "" {
		return core.Misusef("--release is missing: name the release that the operator starts with, an image or " +
			"a folder of the operator's image")
	}
	if set := f.features.set; set != "" && !slices.Contains(payload.FeatureSets(), set) {
		return core.Misusef("--feature-set: unknown feature set %q: use one of %s", set,
			strings.Join(payload.FeatureSets(), ", "))
	}
	if f.prometheus.URL != "" { // otherwise it may be in the operator's settings
		if err := f.prometheus.Check(); err != nil {
			return core.Misuse(err)
		}
	}
	return f.setupFlags.check()
}
