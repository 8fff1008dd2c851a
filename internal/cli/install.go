package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// installFlags are the flags of runlevel install.
type installFlags struct {
	cluster clusterFlags
	format  output
	dryRun  dryRun
	release string
	image   string
	noWait  bool
	timeout time.Duration
}

const installHelp = `Install the operator, which keeps a release in place on the cluster, and updates it when
ClusterVersion "version" asks for another one.

--release says what it begins with: an image in a registry, or a folder of the operator's own
image, as an absolute path. An image with a tag is pulled to find its digest, and the operator
gets that. Once ClusterVersion "version" asks for an image (spec.desiredUpdate), that counts.

--image is the operator's own image, as "make image" writes it. Without it that is what the
release's image-references calls "runlevel"; or else the release itself, which then has to be
made of the operator's image.

The manifests are those of install/ in the source: a namespace, the definitions of
ClusterVersion and ClusterOperator, a service account and its rights, and a Deployment. They are
applied by server-side apply, as often as you like. Objects that a release has are left to it.

Exit codes: 0 when the operator is available, 1 for a failure, 2 for misuse or a release that
can't be read.`

func newInstall(streams Streams) *cobra.Command {
	var f installFlags
	command := &cobra.Command{
		Use:   "install",
		Short: "Install the operator, which keeps and updates a release",
		Long:  installHelp,
		Example: `  # A release in a registry, which has the operator's image among its own
  runlevel install --release registry.example/shop:1.4.0

  # A release that is part of the operator's image
  runlevel install --release / --image registry.example/shop-operator:1.4.0

  # What would it do?
  runlevel install --release registry.example/shop:1.4.0 --dry-run=server

  # Then ask for another release
  oc adm upgrade --to-image registry.example/shop@sha256:... --allow-explicit-upgrade`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	addConnectionFlags(command, &f.cluster)
	addOutput(command, &f.format)
	addDryRun(command, &f.dryRun)
	flags := command.Flags()
	flags.StringVar(&f.release, "release", "", "the release to begin with: an image, or a folder of the operator's image")
	flags.StringVar(&f.image, "image", "", `the operator's image (default: that which the release calls "runlevel", or the release itself)`)
	flags.BoolVar(&f.noWait, "no-wait", false, "end when everything is applied, and don't wait until the operator is available")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait until the operator is available")
	_ = command.RegisterFlagCompletionFunc("release", cobra.NoFileCompletions)
	_ = command.RegisterFlagCompletionFunc("image", cobra.NoFileCompletions)
	return command
}

func (f *installFlags) run(ctx context.Context, streams Streams) error {
	if err := f.check(); err != nil {
		return err
	}
	program, err := f.program(ctx, streams.Err)
	if err != nil {
		return err
	}
	c, err := f.cluster.connect(ctx)
	if err != nil {
		return err
	}
	set := operatorSetup{cluster: c, streams: streams, format: f.format}
	set.report.DryRun, set.report.Release, set.report.Image = f.dryRun.isAsked(), program.release, program.image
	if err := set.install(ctx, program); err != nil {
		return errors.Join(err, set.printReport())
	}
	if !f.noWait && !f.dryRun.isAsked() {
		err = set.awaitOperator(ctx, f.timeout)
	}
	return errors.Join(err, set.printReport())
}

// check refuses flags that make no sense.
func (f *installFlags) check() error {
	if f.release == "" {
		return misuse{errors.New("--release is missing: name the release that the operator is to begin with, an image or a folder of the operator's image")}
	}
	if f.timeout <= 0 {
		return misuse{fmt.Errorf("--timeout: %s is no time to wait", f.timeout)}
	}
	return nil
}
