package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/release/component"
	"github.com/runlevel/runlevel/internal/release/loader"
)

// ComponentFlags are the flags for a SOURCE that has the manifests of one component only, and
// the release that they are for.
type ComponentFlags struct {
	names []string
	Into  string

	IsUpdate bool // capabilities of the old release stay enabled
}

// ComponentHelp is the help on the flags, the same for every verb that has them.
const ComponentHelp = `A component's own repository has only its own manifests. With --component NAME --into
RELEASE, SOURCE is the folder of these. They replace the files 0000_NN_NAME_… of RELEASE
(another SOURCE), and files with the same names. As when a release is built, files without
a number become 0000_50_NAME_…, and the images in the component's image-references are
replaced.`

// AddComponentFlags adds --component and --into.
func AddComponentFlags(command *cobra.Command, f *ComponentFlags) {
	flags := command.Flags()
	flags.StringSliceVar(&f.names, "component", nil,
		"the component whose manifests are in SOURCE; more than one, if its files are called "+
			"differently")
	flags.StringVar(&f.Into, "into", "", "the SOURCE of the release that receives the component's manifests")
	_ = command.RegisterFlagCompletionFunc("into", CompleteFiles)
}

// Check returns an error if the flags contradict each other.
func (f *ComponentFlags) Check(release *ReleaseFlags) error {
	switch {
	case f.Into == "" && len(f.names) > 0:
		return Misusef("--component needs --into: name the release that receives its manifests")
	case f.Into != "" && len(f.names) == 0:
		return Misusef("--into needs --component: name the component as in its file names")
	case f.Into != "" && release.ImagesFrom != "":
		return Misusef("--images-from cannot be used with --into, which uses the images of that release")
	case f.Into != "" && len(release.Images) > 0:
		return Misusef("--image cannot be used with --into, which uses the images of that release")
	case f.Into == "":
		return nil
	}
	if err := component.CheckNames(f.names); err != nil {
		return Misusef("--component: %w", err)
	}
	return nil
}

// Place puts the component at ref into its release. It reads the original release with the
// flags in released, or does not read it if they are nil.
func (f *ComponentFlags) Place(ctx context.Context, ref string, flags, released *ReleaseFlags,
	progress io.Writer) (*component.PlacedComponent, error) {
	options, err := flags.Options(progress)
	if err != nil {
		return nil, err
	}
	place := component.Placement{
		Names:     f.names,
		Component: ref,
		Into:      f.Into,
		Options:   options,
		IsUpdate:  f.IsUpdate && flags.Capabilities != "",
	}
	if released != nil {
		options, err := released.Options(progress)
		if err != nil {
			return nil, err
		}
		place.Released = &options
	}
	placed, err := component.Place(ctx, place)
	if refused := (*loader.RefusedError)(nil); errors.As(err, &refused) && refused.Source == f.Into {
		refused.Source = "--into " + f.Into
	}
	if err != nil {
		return nil, ReadError(ctx, err)
	}
	for _, note := range placed.Notes(placed.Before, placed.After) { // they require no action
		fmt.Fprintln(progress, "note:", note)
	}
	return placed, nil
}

// Label returns the name of a component in a release.
func (f *ComponentFlags) Label(ref string) string {
	return fmt.Sprintf("%s with %s of %s", f.Into, strings.Join(f.names, ","), ref)
}
