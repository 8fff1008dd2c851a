package review

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// convertFlags are the flags of runlevel convert.
type convertFlags struct {
	release   core.ReleaseFlags
	folder    string
	component string
}

const convertHelp = `Write the manifests of another tool as a release with numbered files, one for each object, as a
start: 0000_LEVEL_COMPONENT_NN_KIND-NAME.yaml. The levels are those of the kinds, as "runlevel graph
SOURCE" shows them: in each sync wave, an object comes after the objects it needs. Rename the files to change the order,
or to split the release into components, which are applied in parallel.

The text of the manifests stays as it is, with its comments. Annotations that the number of the file
stands for are removed: sync waves, hooks of Helm and Argo CD,
resource groups of Helm, simple change rules of kapp. The Job of
a hook gets runlevel.dev/recreate: "true", so that it can be changed. Other annotations of other tools
have no effect: "runlevel lint" names them, and what to write instead.

` + core.SourceHelp

// NewConvert returns the verb convert.
func NewConvert(streams core.Streams) *cobra.Command {
	var f convertFlags
	command := &cobra.Command{
		Use:   "convert SOURCE --output-dir DIR",
		Short: "Write manifests of another tool as a release with numbered files",
		Long:  convertHelp,
		Example: `  helm template shop ./chart --namespace shop | runlevel convert - -n shop --component shop --output-dir ./release
  kubectl kustomize ./overlay | runlevel convert - --component shop --output-dir ./release
  runlevel lint ./release`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddKubectlFlags(command, &f.release)
	command.Flags().StringVar(&f.folder, "output-dir", "", "the new folder to write")
	command.Flags().StringVar(&f.component, "component", "",
		"the component in the names of the files: the owner of the manifests")
	_ = command.MarkFlagDirname("output-dir")
	return command
}

func (f *convertFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	switch {
	case f.folder == "":
		return core.Misusef("--output-dir is missing: name a new folder")
	case f.component == "":
		return core.Misusef("--component is missing: name the owner of the manifests, such as shop")
	case graph.ParseName("0000_10_"+f.component+"_").Component != f.component:
		return core.Misusef("--component: %q can't be in the names of files: use letters, digits and single dashes",
			f.component)
	}
	f.release.KeepText = true
	release, err := f.release.Load(ctx, ref, streams.Err)
	if err != nil {
		return err
	}
	if release.IsNumbered {
		return core.Misusef("%s: its files are numbered already", ref)
	}
	var names []string
	var texts [][]byte
	for i, m := range manifestsToConvert(release) {
		text, err := textOf(release, m)
		if err == nil {
			text, err = withoutMapped(m, text)
		}
		if err != nil {
			return err
		}
		names, texts = append(names, f.fileName(m, i)), append(texts, text)
	}
	if text, err := os.ReadFile(filepath.Join(ref, payload.SettingsFile)); err == nil {
		names, texts = append(names, payload.SettingsFile), append(texts, text)
	}
	return writeFolder(f.folder, names, texts, streams.Err)
}

// manifestsToConvert returns the manifests of all profiles in order, without hooks that no apply runs.
func manifestsToConvert(release *payload.Payload) []*payload.Manifest {
	all := slices.Concat(release.Manifests, release.Tests)
	for _, excluded := range release.Excluded {
		if excluded.Filter != payload.ByHook {
			all = append(all, excluded.Manifest)
		}
	}
	slices.SortStableFunc(all, payload.InOrder)
	return all
}

// fileName returns the name of the file of a manifest, which has a place in its release.
func (f *convertFlags) fileName(m *payload.Manifest, place int) string {
	object := strings.NewReplacer(":", "-", "/",
		"-").Replace(strings.ToLower(m.GroupVersionKind().Kind + "-" + m.ID().Name))
	return fmt.Sprintf("0000_%s_%s_%03d_%s.yaml", graph.ParseName(m.File()).Level, f.component, place+1, object)
}

// textOf returns the original text of a manifest, or the text with the added namespace.
func textOf(release *payload.Payload, m *payload.Manifest) ([]byte, error) {
	for _, placed := range release.Placed {
		if placed == m {
			return m.YAML()
		}
	}
	text := strings.TrimRight(string(m.Text()), " \n")
	return []byte(cmp.Or(text, "{}") + "\n"), nil
}
