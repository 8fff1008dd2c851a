// Package release defines the verb release, whose subcommands build, inspect, sign, verify and copy the images of
// releases.
//
// They parse flags, call internal/release and internal/oci, and print the results. They touch no cluster.
//
// New returns the verb release. Start with New.
package release

import (
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
)

// New returns the verb release.
func New(streams core.Streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "release",
		Short: "Build, inspect, sign, verify and mirror releases",
		Long: `A release is an image with the manifests of its components, the list of their images
(image-references), and its version (release-metadata), in the format of OpenShift's
releases. It can be in a registry, in the folder of an OCI image layout, or in an
archive of one; no container engine is needed.`,
		Args: cobra.NoArgs,
		RunE: core.NeedsVerb,
	}
	command.AddCommand(newBuild(streams), newExtract(streams), newInfo(streams), newMirror(streams), newPull(streams),
		newPush(streams), newSign(streams), newTag(streams), newVerify(streams))
	return command
}
