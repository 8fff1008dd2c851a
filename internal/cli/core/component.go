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
RELEASE, SOURCE is the folder of these, and they take the place of what RELEASE (another
SOURCE) has in files called 0000_NN_NAME_…, and of files with the same names. As when
a release is built, files without a number become 0000_50_NAME_…, and what the
component's image-references names is replaced.`

// AddComponentFlags adds --component and --into.
func AddComponentFlags(command *cobra.Command, f *ComponentFlags) {
	flags := command.Flags()
	flags.StringSliceVar(&f.names, "component", nil,
		"the name of the component that SOURCE has the manifests of; more than one, if its files are called "+
			"differently")
	flags.StringVar(&f.Into, "into", "", "the SOURCE of the release that the component's manifests are put into")
	_ = command.RegisterFlagCompletionFunc("into", CompleteFiles)
}

// Check returns an error if the flags contradict each other.
func (f *ComponentFlags) Check(release *ReleaseFlags) error {
	switch {
	case f.Into == "" && len(f.names) > 0:
		return Misusef("--component is for --into: name the release that its manifests go into")
	case f.Into != "" && len(f.names) == 0:
		return Misusef("--into needs --component: name the component as in its file names")
	case f.Into != "" && release.ImagesFrom != "":
		return Misusef("--images-from is not for --into, which takes the images of that release")
	case f.Into != "" && len(release.Images) > 0:
		return Misusef("--image is not for --into, which takes the images of that release")
	case f.Into == "":
		return nil
	}
	if err := component.CheckNames(f.names); err != nil {
		return Misusef("--component: %w", err)
	}
	return nil
}

// Place puts the component at ref into its release. The release as it is is read with the
// flags in released, or not at all if they are nil.
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
