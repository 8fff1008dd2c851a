package review

import (
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
)

const getManifestsHelp = `Print the manifests of a release as they were applied: those of its last version, or of
--revision. They come from the copy of its files on the cluster, so the source is not
needed; "runlevel render NAME@REVISION" does the same with other filters.

The values of Secrets are printed as ***, unless --show-secrets is set.`

// NewGetManifests returns the verb get manifests.
func NewGetManifests(streams core.Streams) *cobra.Command {
	var f renderFlags
	var revision int
	command := &cobra.Command{
		Use:   "manifests NAME",
		Short: "Print the manifests of a release as they were applied",
		Long:  getManifestsHelp,
		Example: `  runlevel get manifests shop

  # One version, with the manifests that its filters exclude
  runlevel get manifests shop --revision 3 --unfiltered`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.cluster.CompleteRelease,
		RunE: func(command *cobra.Command, args []string) error {
			ref, err := core.AppliedRef(args[0], revision)
			if err != nil {
				return err
			}
			return f.run(command, ref, streams)
		},
	}
	f.release.ReadFrom(&f.cluster)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.YAML, core.JSON)
	flags := command.Flags()
	flags.IntVar(&revision, "revision", 0, "the version, as \"runlevel history\" counts them (default: the last one)")
	flags.BoolVar(&f.unfiltered, "unfiltered", false, "also print manifests that the filters exclude")
	flags.BoolVar(&f.onlyTests, "only-tests", false, "print the tests of the release instead of its other manifests")
	flags.BoolVar(&f.showSecrets, "show-secrets", false, "print the values of Secrets")
	return command
}
