package cli

import "github.com/spf13/cobra"

// exitCodes returns the help topic about exit codes.
func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes of all verbs mean",
		Long: `Every verb exits with one of these codes:

  0  all is well: it is done, nothing blocks, nothing is found
  1  something is not: an apply or a test of a release has failed, a check blocks, lint has findings, a release is not
     complete, the cluster can't be reached; with --exit-code, plan and diff have found a difference
  2  misuse: wrong flags or arguments, or input that can't be read; with --exit-code of plan and
     diff, anything that goes wrong

When an apply is interrupted by Ctrl-C or SIGTERM, it stops cleanly and exits with 1; the second
signal ends it at once. "runlevel sandbox exec" exits with the code of the program that it runs.

The help of each verb has its own cases.`,
	}
}

// environments returns the help topic about what other tools do by values and overlays.
func environments() *cobra.Command {
	return &cobra.Command{
		Use:     "environments",
		Aliases: []string{"values", "values.yaml", "overlays", "profiles"},
		Short:   "How manifests differ between clusters: profiles, instead of values and overlays",
		Long: `Manifests have no values (values.yaml, --set) and no overlays. A release has the variants of an
object, and a cluster takes one by its profile:

  # 0000_50_web_10_config-production.yaml
  metadata:
    name: web
    annotations:
      include.release.openshift.io/production: "true"

  runlevel apply ./shop --profile production

A manifest can be for several profiles. With --profile, manifests of no profile are left out, so each
names those that it is for. "runlevel lint" checks all variants, and "runlevel render SOURCE
--profile NAME --explain" shows which ones a cluster gets, and why not the others.

Features that a cluster has or has not are chosen by --feature-gates, --feature-set,
--capabilities and --exclude. What is secret or differs on every cluster belongs into an object that
the cluster has, such as a Secret that manifests name.

runlevel.yaml, in the folder of a release, has values for flags that are not set:

  # shop/runlevel.yaml
  name: shop
  version: 1.4.0
  profile: production

It can have: name, version (without release-metadata), namespace, profile, featureSet, featureGates,
capabilities, exclude, unmanaged. keepFiles and historyMax only count in a folder on this machine,
not in an archive or image. What makes an apply go on in spite of a check, chooses a cluster, or
takes over the fields of others is only a flag.

Who has a chart or an overlay renders it: helm template NAME ./chart -f production.yaml | runlevel apply - --name NAME`,
	}
}
