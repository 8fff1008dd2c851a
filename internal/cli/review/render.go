// Package review defines the verbs that show a release and its changes before an apply: render,
// graph, plan and diff.
//
// It reads releases, and prints them, their order or their differences. With a cluster, it sends dry runs to it, and
// writes nothing.
//
// NewRender and the similar functions return one verb each. Start with NewRender.
package review

import (
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"

	yaml "go.yaml.in/yaml/v2"
	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// renderFlags are the flags of runlevel render.
type renderFlags struct {
	release      core.ReleaseFlags
	cluster      core.ClusterFlags
	format       core.Output
	folder       string
	explain      bool
	onlyExcluded bool
	onlyTests    bool
	unfiltered   bool // include manifests that the filters exclude
	showSecrets  bool
}

const renderHelp = `Print the manifests of a release as they would be applied: filtered, templates
rendered, images substituted, in the order of the files. The same release always
results in the same text, so that you can compare two with diff. Tests of the release are not
applied: --only-tests prints them, and "runlevel test" runs them.

Without a filter, all manifests are printed. If an object is then there twice, the
release can't be applied, and the error names the flag that chooses.

The values of Secrets, and of env in hooks of Deployments, are printed as ***, so that
you can share the output. A masked object is below "masked:", and so it is not a
manifest: kubectl refuses it, and asterisks never become a password. To apply the
output, use --show-secrets.

` + core.SourceHelp

const renderExamples = `  # What would be applied to a cluster of this profile?
  runlevel render ./release --profile self-managed-high-availability

  # Why is my manifest not there?
  runlevel render ./release --profile single-node-developer --explain

  # What changes between two releases? See runlevel plan; or, letter by letter:
  diff <(runlevel render ./4.20) <(runlevel render ./4.21)

  # One file each
  runlevel render ./release --output-dir rendered`

// NewRender returns the verb render.
func NewRender(streams core.Streams) *cobra.Command {
	var f renderFlags
	command := &cobra.Command{
		Use:               "render SOURCE",
		Short:             "Print the manifests of a release as they would be applied",
		Long:              renderHelp,
		Example:           renderExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command, args[0], streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddKubectlFlags(command, &f.release)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.YAML, core.JSON)
	flags := command.Flags()
	flags.StringVar(&f.folder, "output-dir", "",
		"write the manifests to files of this new folder, to read and compare (not a release: templates are "+
			"rendered)")
	flags.BoolVar(&f.explain, "explain", false,
		"print whether each manifest is included, and the reason, instead of the manifest")
	flags.BoolVar(&f.onlyExcluded, "only-excluded", false,
		"only manifests that the filters exclude")
	flags.BoolVar(&f.onlyTests, "only-tests", false, "only the tests of the release")
	flags.BoolVar(&f.showSecrets, "show-secrets", false, "print the values of Secrets")
	_ = command.MarkFlagDirname("output-dir")
	return command
}

// check refuses flags that contradict each other.
func (f *renderFlags) check(hasFolder bool) error {
	switch {
	case hasFolder && f.folder == "":
		return core.Misusef("--output-dir is empty: name a new folder")
	case hasFolder && (f.explain || f.format != core.YAML):
		return core.Misusef("--output-dir writes the manifests as YAML: it cannot be used with --explain or -o json")
	case f.onlyExcluded && f.onlyTests:
		return core.Misusef("--only-excluded: can't be used with --only-tests")
	case f.explain && f.showSecrets:
		return core.Misusef("--explain prints no manifests: it cannot be used with --show-secrets")
	}
	return nil
}

func (f *renderFlags) run(command *cobra.Command, ref string, streams core.Streams) error {
	if err := f.check(command.Flags().Changed("output-dir")); err != nil {
		return err
	}
	release, err := f.release.Load(command.Context(), ref, streams.Err)
	if err != nil {
		return err
	}
	core.WarnIfEmpty(streams.Err, release)
	manifests := f.choose(release)
	f.warnOfMasks(streams.Err, manifests)
	switch {
	case f.format == core.JSON:
		return f.format.Print(streams.Out, f.info(release, manifests), nil)
	case f.explain:
		return explain(streams.Out, manifests)
	case f.folder != "":
		return writeRendered(f.folder, manifests, documents(release), streams.Err)
	default:
		return writeStream(streams.Out, manifests)
	}
}

// warnOfMasks warns that some objects are not printed as manifests.
func (f *renderFlags) warnOfMasks(out io.Writer, manifests []renderedManifest) {
	if !f.explain && slices.ContainsFunc(manifests, func(m renderedManifest) bool { return m.isMasked }) {
		fmt.Fprintln(out, "warning: values of Secrets or of env in hooks are printed as ***, in objects below "+
			"\"masked:\" that can't be applied: --show-secrets prints the manifests")
	}
}

// documents counts the documents of each file of a release.
func documents(release *payload.Payload) map[string]int {
	count := map[string]int{}
	for _, m := range release.All() {
		count[m.Path] = max(count[m.Path], m.Document)
	}
	return count
}

// A renderedManifest is a manifest to print, with the reason if it is excluded.
type renderedManifest struct {
	*payload.Manifest
	object    map[string]any // object to print, perhaps masked
	isMasked  bool
	exclusion *payload.Exclusion
}

// rendered returns a manifest to print, with its secrets masked unless the flags show them.
func (f *renderFlags) rendered(m *payload.Manifest, exclusion *payload.Exclusion) renderedManifest {
	r := renderedManifest{Manifest: m, object: m.Object().Object, exclusion: exclusion}
	if !f.showSecrets {
		r.object = fields.Mask(r.object)
		r.isMasked = !reflect.DeepEqual(r.object, m.Object().Object)
	}
	return r
}

// YAML returns the document to print, with sorted keys.
func (m renderedManifest) YAML() ([]byte, error) {
	object := m.object
	if m.isMasked {
		object = fields.AsMasked(object)
	}
	text, err := yaml.Marshal(object)
	if err == nil && !printable.IsHarmless(text) {
		return printable.IndentedJSON(object) // JSON is also YAML
	}
	return text, err
}

// choose returns the manifests to print, in the order of the release, or of the tests.
func (f *renderFlags) choose(release *payload.Payload) []renderedManifest {
	var chosen []renderedManifest
	if f.onlyTests || f.explain && !f.onlyExcluded {
		for _, m := range release.Tests {
			chosen = append(chosen, f.rendered(m, nil))
		}
	}
	if f.onlyTests {
		return chosen
	}
	if !f.onlyExcluded {
		for _, m := range release.Manifests {
			chosen = append(chosen, f.rendered(m, nil))
		}
	}
	if f.onlyExcluded || f.unfiltered || f.explain {
		for i, excluded := range release.Excluded {
			chosen = append(chosen, f.rendered(excluded.Manifest, &release.Excluded[i]))
		}
	}
	slices.SortStableFunc(chosen, func(a, b renderedManifest) int { return payload.InOrder(a.Manifest, b.Manifest) })
	return chosen
}

// explain prints for each manifest whether it is included.
func explain(out io.Writer, manifests []renderedManifest) error {
	for _, m := range manifests {
		verdict, reason := "in  ", ""
		switch {
		case m.exclusion != nil:
			verdict, reason = "out ", "  ("+m.exclusion.Why()+")"
		case m.IsTest():
			verdict = "test"
		}
		if _, err := fmt.Fprintf(out, "%s %s:%d  %s%s\n", verdict, printable.Line(m.Path), m.Line, m.ID(),
			reason); err != nil {
			return err
		}
	}
	return nil
}

// texts returns the YAML of manifests. It renders them in parallel, because a release has megabytes of YAML.
func texts(manifests []renderedManifest) ([][]byte, error) {
	made := make([][]byte, len(manifests))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, m := range manifests {
		group.Go(func() (err error) {
			made[i], err = m.YAML()
			return err
		})
	}
	return made, group.Wait()
}

// writeStream prints manifests as one stream of documents.
func writeStream(out io.Writer, manifests []renderedManifest) error {
	bodies, err := texts(manifests)
	if err != nil {
		return err
	}
	for i, m := range manifests {
		if _, err := fmt.Fprintf(out, "---\n%s%s", m.comment(), bodies[i]); err != nil {
			return err
		}
	}
	return nil
}

// comment returns the file of a manifest, with the reason if it is excluded.
func (m renderedManifest) comment() string {
	text := fmt.Sprintf("# %s, document %d\n", printable.Line(m.Path), m.Document)
	if m.exclusion != nil {
		text += fmt.Sprintf("# left out by %s\n", m.exclusion.Why())
	}
	return text
}

// RenderInfo is a rendered release in JSON.
type RenderInfo struct {
	Name      string         `json:"name,omitempty"`
	Version   string         `json:"version,omitempty"`
	Hash      string         `json:"hash"`
	Manifests []manifestInfo `json:"manifests"`
}

type manifestInfo struct {
	taskInfo
	IsTest   bool           `json:"isTest,omitempty"` // it is not applied, and "runlevel test" runs it
	Excluded *exclusionInfo `json:"excluded,omitempty"`
	Manifest map[string]any `json:"manifest,omitempty"` // omitted with --explain
	Masked   map[string]any `json:"masked,omitempty"`   // instead of the manifest, if values in it are masked
}

type exclusionInfo struct {
	Filter payload.FilterName `json:"filter"`
	Reason string             `json:"reason"`
}

func (f *renderFlags) info(release *payload.Payload, manifests []renderedManifest) RenderInfo {
	info := RenderInfo{Name: release.Name, Version: release.Version, Hash: release.Hash, Manifests: []manifestInfo{}}
	for _, m := range manifests {
		entry := manifestInfo{taskInfo: newTaskInfo(m.Manifest), IsTest: m.exclusion == nil && m.IsTest()}
		if m.exclusion != nil {
			entry.Excluded = &exclusionInfo{Filter: m.exclusion.Filter, Reason: m.exclusion.Reason}
		}
		switch {
		case f.explain:
		case m.isMasked:
			entry.Masked = m.object
		default:
			entry.Manifest = m.object
		}
		info.Manifests = append(info.Manifests, entry)
	}
	return info
}
