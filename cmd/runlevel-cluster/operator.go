package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/program/startup"
	"github.com/runlevel/runlevel/internal/ui/incluster"
	"github.com/runlevel/runlevel/pkg/payload"
)

// newOperator returns the command that runs the operator.
func newOperator() *cobra.Command {
	var image, folder, standard, pages string
	o := operator.Options{Name: os.Getenv("POD_NAME"), Container: startup.Container()}
	command := &cobra.Command{
		Use:         "operator",
		Annotations: map[string]string{startup.SkipsUnknownFlags: "true"}, // ClusterVersion reports them
		Short:       "apply the release, keep it in place, and update it as the ClusterVersion requests",
		Long: `The operator applies a release to the cluster, keeps it in place, and writes its
progress into the status of the ClusterVersion named "version", which it creates if it does not exist. An update
begins when spec.desiredUpdate of the ClusterVersion names one, as "oc adm upgrade" does.

It starts with the release of --release-image or --payload-dir, until the ClusterVersion requests another one. If
there are several replicas, the one that holds the lock of the release applies it.

Environment: CLUSTER_PROFILE, EXCLUDE_MANIFESTS and PAYLOAD_OVERRIDE are the defaults of --profile, --exclude and
--payload-dir, as for the cluster-version operator; POD_NAME, POD_UID and POD_NAMESPACE identify the pod of the
operator; KUBECONFIG names another cluster than the one that the operator runs in.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Prometheus.Check(); err != nil {
				return err
			}
			switch o.Payload, o.Standard = cmp.Or(image, folder), ready.Standard(standard); {
			case (image == "") == (folder == ""):
				return errors.New("name the release: either --release-image or --payload-dir")
			case image != "" && !strings.Contains(image, "@sha256:"):
				return errors.New("--release-image: name the image by digest, as REPOSITORY@sha256:DIGEST")
			case folder != "" && !filepath.IsAbs(folder):
				return errors.New("--payload-dir: name an absolute path")
			case o.Features.Set != "" && !slices.Contains(payload.FeatureSets(), o.Features.Set):
				return fmt.Errorf("--feature-set: unknown feature set %q: use one of %s", o.Features.Set,
					strings.Join(payload.FeatureSets(), ", "))
			case o.Standard != ready.Full && o.Standard != ready.Upstream:
				return errors.New("--wait-for: use ready or upstream")
			}
			config, err := startup.ConfigOf("runlevel-operator")
			if err != nil {
				return err
			}
			o.UnknownFlags = startup.UnknownFlags(c.Flags())
			ui := incluster.Options{Serving: o.Metrics, Namespace: o.Namespace, Source: o.Source}
			ui.Serving.Address, ui.Serving.Program = pages, "runlevel-operator"
			o.Serve = func(ctx context.Context, m ctrl.Manager) error { return incluster.Serve(ctx, m, config, ui) }
			return operator.Run(c.Context(), config, o)
		},
	}
	startup.AddServingFlags(command.Flags(), &o.Listen, &o.Metrics)
	command.Flags().StringVar(&pages, "ui", "", "the address of the pages on releases, such as :8443; served over "+
		"TLS, with --serving-cert-file, to users with the right to get /ui")
	addReleaseFlags(command.Flags(), &o, &image, &folder)
	addOperatorFlags(command.Flags(), &o, &standard)
	return command
}

// addReleaseFlags adds the flags that select the release and its applied manifests.
func addReleaseFlags(flags *pflag.FlagSet, o *operator.Options, image, folder *string) {
	flags.StringVar(image, "release-image", "", "the image of the release, by digest")
	flags.StringVar(folder, "payload-dir", os.Getenv("PAYLOAD_OVERRIDE"),
		"the folder of the release, in the operator's own image")
	flags.StringVar(&o.Profile, "profile", os.Getenv("CLUSTER_PROFILE"),
		"the cluster profile: apply only manifests that it includes (include.release.openshift.io/PROFILE)")
	flags.StringVar(&o.Features.Set, "feature-set", "",
		`the feature set of a cluster without FeatureGate "cluster" (default: all, or "Default" with --profile)`)
	flags.StringSliceVar(&o.Features.Gates, "feature-gates", nil, "the enabled feature gates of a cluster without "+
		`FeatureGate "cluster" (default: all manifests, or no enabled gates with --profile)`)
	flags.StringVar(&o.Exclude, "exclude", os.Getenv("EXCLUDE_MANIFESTS"),
		"skip manifests that are annotated exclude.release.openshift.io/NAME")
	flags.BoolVar(&o.Source.Insecure, "insecure-registry", false,
		"allow registries and update services over plain http, or with a certificate that can't be verified")
	flags.Var(&o.Source.Mirrors, "image-mirror", "a registry or repository with copies of the images of another, as "+
		"SOURCE=MIRROR: images by digest are read from there first; may be repeated")
	flags.StringVar(&o.CacheDir, "cache-dir", "", "a folder for the last images that were pulled, by digest")
}

// addOperatorFlags adds the other flags of the operator.
func addOperatorFlags(flags *pflag.FlagSet, o *operator.Options, standard *string) {
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"the namespace of the release's record and lock")
	flags.StringVar(standard, "wait-for", string(ready.Upstream), "when an object counts as applied: ready (all is "+
		"rolled out) or upstream (as for the cluster-version operator)")
	flags.StringVar(&o.NotifyDir, "notify-dir", "", "a folder with one file for each URL that gets CloudEvents on the "+
		"release; it may be missing or change at any time")
	flags.StringVar(&o.Cluster, "cluster-name", "", "the name of the cluster in these events")
	o.Prometheus.AddFlags(flags)
	flags.BoolVar(&o.StrictTombstones, "strict-tombstones", false,
		"refuse a minor update that still has tombstones of the release before; without it, the gate only warns")
	flags.DurationVar(&o.LockDuration, "lock-duration", 0,
		"how long the lock outlives a leader that died (default 30s)")
}
