package cli

import "github.com/spf13/cobra"

// exitCodes returns the help topic about exit codes.
func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Exit codes of all verbs",
		Long: `Every verb exits with one of these codes:

  0  success: the command is complete, no check blocks, there are no findings
  1  failure: an apply or a test of a release has failed, a check blocks, lint has findings, a release is not
     complete, the cluster can't be reached; with --exit-code, plan and diff have found a difference
  2  misuse: wrong flags or arguments, or input that can't be read; with --exit-code of plan and
     diff, any failure

When an apply is interrupted by Ctrl-C or SIGTERM, it stops cleanly and exits with 1; the second
signal ends it at once. "runlevel sandbox exec" exits with the code of the program that it runs.

The help of each verb has its own cases.`,
	}
}

// environments returns the help topic about differences between clusters, for which other tools have values and
// overlays.
func environments() *cobra.Command {
	return &cobra.Command{
		Use:     "environments",
		Aliases: []string{"values", "values.yaml", "overlays", "profiles"},
		Short:   "How manifests differ between clusters: profiles, instead of values and overlays",
		Long: `Manifests have no values (values.yaml, --set) and no overlays. A release can contain variants
of an object, and the profile of the cluster selects one:

  # 0000_50_web_10_config-production.yaml
  metadata:
    name: web
    annotations:
      include.release.openshift.io/production: "true"

  runlevel apply ./shop --profile production

A manifest can have several profiles. --profile excludes manifests without a profile, so each has to
name its profiles. "runlevel lint" checks all variants, and "runlevel render SOURCE
--profile NAME --explain" shows which ones a cluster gets, and why not the others.

These flags choose the features of a cluster: --feature-gates, --feature-set,
--capabilities and --exclude. Secrets, and values that differ on every cluster, belong in an object on
the cluster, such as a Secret that manifests refer to.

runlevel.yaml, in the folder of a release, has values for flags that are not set:

  # shop/runlevel.yaml
  name: shop
  version: 1.4.0
  profile: production

It can have: name, version (without release-metadata), namespace, profile, featureSet, featureGates,
capabilities, exclude, unmanaged. keepFiles and historyMax only count in a folder on this machine,
not in an archive or image. Options that override a check, choose a cluster, or
take over fields of other managers exist only as flags.

To apply a chart or an overlay, render it: helm template NAME ./chart -f production.yaml | runlevel apply - --name NAME`,
	}
}
