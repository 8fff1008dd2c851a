package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/program/startup"
	"github.com/runlevel/runlevel/pkg/payload"
)

// newOperator returns the command that runs the operator.
func newOperator() *cobra.Command {
	var image, folder, standard string
	o := operator.Options{Name: os.Getenv("POD_NAME"), Container: startup.Container()}
	command := &cobra.Command{
		Use:   "operator",
		Short: "apply the release, keep it in place, and update it as the ClusterVersion requests",
		Long: `The operator applies a release to the cluster, keeps it in place, and writes its progress into the
status of the ClusterVersion named "version", which it makes if there is none. An update begins when
spec.desiredUpdate of the ClusterVersion names one, as "oc adm upgrade" does.

The release is that of --release-image or --payload-dir, until the ClusterVersion asks for another one. Of several
replicas, one applies: the one that holds the lock of the release.

Environment: CLUSTER_PROFILE, EXCLUDE_MANIFESTS and PAYLOAD_OVERRIDE are the defaults of --profile, --exclude and
--payload-dir, as for the cluster-version operator; POD_NAME, POD_UID and POD_NAMESPACE are the pod of the operator;
KUBECONFIG names a cluster other than the one it runs in.`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch o.Payload, o.Standard = cmp.Or(image, folder), ready.Standard(standard); {
			case (image == "") == (folder == ""):
				return errors.New("name the release: either --release-image or --payload-dir")
			case image != "" && !strings.Contains(image, "@sha256:"):
				return errors.New("--release-image: name the image by digest, as REPOSITORY@sha256:DIGEST")
			case folder != "" && !filepath.IsAbs(folder):
				return errors.New("--payload-dir: name an absolute path")
			case o.Features.Set != "" && !slices.Contains(payload.FeatureSets(), o.Features.Set):
				return fmt.Errorf("--feature-set: there is no feature set %q: use one of %s", o.Features.Set,
					strings.Join(payload.FeatureSets(), ", "))
			case o.Standard != ready.Full && o.Standard != ready.Upstream:
				return errors.New("--wait-for: use ready or upstream")
			}
			config, err := startup.ConfigOf("runlevel-operator")
			if err != nil {
				return err
			}
			return operator.Run(c.Context(), config, o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&image, "release-image", "", "the image of the release, by digest")
	flags.StringVar(&folder, "payload-dir", os.Getenv("PAYLOAD_OVERRIDE"),
		"the folder of the release, in the operator's own image")
	flags.StringVar(&standard, "wait-for", string(ready.Upstream),
		"what counts as applied: ready (everything is rolled out) or upstream (as for the cluster-version operator)")
	addOperatorFlags(flags, &o)
	return command
}

func addOperatorFlags(flags *pflag.FlagSet, o *operator.Options) {
	startup.AddServingFlags(flags, &o.Listen, &o.Metrics)
	flags.StringVar(&o.Profile, "profile", os.Getenv("CLUSTER_PROFILE"),
		"the cluster profile: only what is included in it is applied (include.release.openshift.io/PROFILE)")
	flags.StringVar(&o.Features.Set, "feature-set", "",
		`the feature set of a cluster without FeatureGate "cluster" (default: all, or "Default" with --profile)`)
	flags.StringSliceVar(&o.Features.Gates, "feature-gates", nil,
		`the feature gates that are on in a cluster without FeatureGate "cluster" (default: all manifests, or none on with --profile)`)
	flags.StringVar(&o.Exclude, "exclude", os.Getenv("EXCLUDE_MANIFESTS"),
		"leave out what is annotated exclude.release.openshift.io/NAME")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "of the release's record and lock")
	flags.StringVar(&o.CacheDir, "cache-dir", "", "where the last images are kept that were pulled, by digest")
	flags.BoolVar(&o.Source.Insecure, "insecure-registry", false,
		"also pull over plain http, or from registries whose certificate proves nothing; and ask such update services")
	flags.StringVar(&o.NotifyDir, "notify-dir", "",
		"a folder with the URLs to which CloudEvents on the release are sent, in a file each; it may be missing or "+
			"change at any time")
	flags.StringVar(&o.Cluster, "cluster-name", "", "the name of the cluster in what is sent to them")
	flags.BoolVar(&o.StrictTombstones, "strict-tombstones", false,
		"refuse a minor update that still has tombstones of the release before, where the gate only warns")
	flags.DurationVar(&o.LockDuration, "lock-duration", 0,
		"how long the lock outlives a leader that died (default 30s)")
}
