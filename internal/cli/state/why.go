package state

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// whyFlags are the flags of runlevel why.
type whyFlags struct {
	release   core.ReleaseFlags
	cluster   core.ClusterFlags
	format    core.Output
	namespace string

	explainers []diagnosis.Explainer
}

const whyHelp = `Explain why an object is missing, not ready, or not deleted: for which objects it waits, since
when, and what holds it. The answer is read from the object, its kind, its namespace and its pods,
and from the record of the apply, which has the order of the parts of the release. An apply writes
the order after its first three seconds. The last state of an apply that failed or was killed
remains in the record.

OBJECT is KIND[.GROUP]/[NAMESPACE/]NAME. The kind may be a plural or a short name, as in
"deploy/web -n shop", "crd/foos.example.com" or "Deployment.apps/shop/web". Without a namespace
it is that of the kubeconfig; if the object does not exist there, it is the only namespace in which
a release has such an object, or the only one in which it exists. FILE is a manifest on disk, whose
objects are all explained; or the base name of a file of the release, such as
0000_50_web_deployment.yaml: SOURCE or an apply that has not completed must have the file.

With SOURCE, the release is read as well: the answer has the position of the object in the release,
the objects before it, its dependencies, and the gates that would block the release. The object is
not done until that version is applied.

For a machine (machine.openshift.io), the answer has the phase, what holds the machine, the command
that helps, its conditions and its events: see "runlevel machines". For a ControlPlaneMachineSet or a
RunlevelControlPlane, it has the reasons for waits, the machines that are held, and what to do.

Without an OBJECT, the command shows for each release (with --name, for one) which process applies
it, or when it was last applied, and the objects that are not ready or differ from the release:
failures first, then waits, the longest first, pending deletes, and objects that were changed. The
text is limited to a screen; -o json has everything.

Exit codes: 0 if every object is ready as it was applied, or was deleted as requested; 1 if one is
not, or if its state is unknown; 2 for misuse. The answer is printed to standard output in any case.

`

const whyExamples = `  # Which applied objects are not ready, or were changed?
  runlevel why

  # During an update: why does my Deployment wait?
  runlevel why deployment/web -n shop

  # Why is the old namespace not deleted?
  runlevel why ns/shop-old

  # Why does the machine that I have deleted still exist?
  runlevel why machine/web-4 -n shop-machines

  # All objects of my manifest
  runlevel why ./manifests/0000_50_web_deployment.yaml

  # Before an apply: the position in the release, and gates that would block it
  runlevel why 0000_50_web_deployment.yaml ./4.21

  # In a script: wait until the object is ready, as in the release
  until runlevel why deployment/web -n shop ./4.21; do sleep 5; done

  # Which objects hold it?
  runlevel why deployment/web -n shop -o json | jq -r '.[].holds[]? | "\(.object.kind) \(.object.name): \(.for)"'`

// NewWhy returns the verb why. The explainers explain the objects of further kinds, for example machines.
func NewWhy(streams core.Streams, explainers ...diagnosis.Explainer) *cobra.Command {
	f := whyFlags{explainers: explainers}
	command := &cobra.Command{
		Use:               "why [OBJECT|FILE [SOURCE]]",
		Short:             "Explain why an object is missing, not ready or not deleted",
		Long:              whyHelp + core.SourceHelp,
		Example:           whyExamples,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: core.CompletePaths(2, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args, streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, core.JSON)
	command.Flags().StringVarP(&f.namespace, "namespace", "n", "",
		"the namespace of the object (default: that of the kubeconfig, or the one that has the object)")
	return command
}

func (f *whyFlags) run(ctx context.Context, args []string, streams core.Streams) error {
	if len(args) == 0 {
		return f.releases(ctx, streams)
	}
	id, err := parseObject(args[0])
	if err != nil {
		return err
	}
	release, err := f.load(ctx, args[1:], streams.Err)
	if err != nil {
		return err
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	query, err := f.query(ctx, reader, release)
	if err != nil {
		return err
	}
	resolver := &why.Resolver{
		Cluster:   reader.Cluster,
		Query:     query,
		Namespace: f.namespace,
		Default:   f.cluster.DefaultNamespace(),
	}
	objects, err := resolve(ctx, resolver, args[0], id)
	if err != nil {
		return err
	}
	answers, err := why.Explain(ctx, reader.Cluster, query, objects)
	if err != nil {
		return err
	}
	if err := f.format.PrintWhole(streams.Out, answers, func(out io.Writer) error {
		return printAnswers(out, answers)
	}); err != nil {
		return err
	}
	return core.FailIf(slices.ContainsFunc(answers, func(a *why.Answer) bool { return !a.Done }))
}

// load loads the release of the argument SOURCE; nil if there is none.
func (f *whyFlags) load(ctx context.Context, sources []string, progress io.Writer) (*payload.Payload, error) {
	if len(sources) == 0 {
		_, err := f.release.Options(progress)
		return nil, err
	}
	return f.release.Load(ctx, sources[0], progress)
}

// query returns the query for a release, for the release of --name, or for all releases.
func (f *whyFlags) query(ctx context.Context, reader *state.Reader, release *payload.Payload) (why.ObjectQuery, error) {
	q := why.ObjectQuery{Namespace: reader.Namespace, Release: release, Explainers: f.explainers}
	name := f.release.Name
	if release != nil {
		name = release.Name
	}
	q.Records, q.Unread = reader.KnownRecords(ctx, name)
	if f.release.Name != "" && release == nil && len(q.Records) == 0 && q.Unread == "" {
		return q, reader.NoRecord(f.release.Name)
	}
	return q, nil
}

// parseObject parses an argument that names an object or a file, without the cluster. For an object, it returns the
// parts of the name.
func parseObject(text string) (kinds.ID, error) {
	if isFileName(text) {
		return kinds.ID{}, nil
	}
	if info, err := os.Stat(text); err == nil && info.IsDir() {
		return kinds.ID{}, core.Misusef("%s is a folder, which can only be the SOURCE: %w", text, errNoObject)
	}
	selector, err := loader.ParseSelector(text)
	if err != nil {
		return kinds.ID{}, core.Misusef("%q: %w", text, errNoObject)
	}
	return selector.ID, nil
}

func isFileName(text string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(text))
}

// resolve returns the objects of an argument: the object with that name, or all objects of a file.
func resolve(ctx context.Context, resolver *why.Resolver, text string,
	id kinds.ID) (objects []why.NamedObject, err error) {
	if !isFileName(text) {
		objects = make([]why.NamedObject, 1)
		objects[0], err = resolver.Object(ctx, text, id)
	} else if _, statErr := os.Stat(text); statErr != nil {
		objects, err = resolver.File(text)
	} else if manifest, readErr := os.ReadFile(text); readErr != nil {
		return nil, core.Misuse(readErr)
	} else {
		objects, err = resolver.Manifest(ctx, text, manifest)
	}
	if errors.As(err, new(why.NameError)) {
		return nil, core.Misuse(err)
	}
	return objects, err
}

// printAnswers prints answers as text.
func printAnswers(out io.Writer, answers []*why.Answer) error {
	var lines []string
	for _, answer := range answers {
		lines = append(lines, printable.Line(answer.Object.String()+": "+answer.State.Text()))
		lines = append(lines, messageLines(answer.Messages, answer.Unknown)...)
	}
	return core.PrintLines(out, lines)
}

// messageLines returns lines of messages and unknown facts, without control characters: users may have edited the
// record that has the messages.
func messageLines(messages []why.Message, unknown []string) []string {
	var lines []string
	for _, sentence := range messages {
		lines = append(lines, "  "+printable.Line(sentence.Text))
		for _, detail := range sentence.Details {
			lines = append(lines, "    "+printable.Line(detail))
		}
	}
	for _, what := range unknown {
		lines = append(lines, "  not known: "+printable.Line(what))
	}
	return lines
}

var errNoObject = errors.New("name an object as KIND[.GROUP]/[NAMESPACE/]NAME, such as deployment/web or " +
	"Deployment.apps/shop/web, or a file that ends in .yaml, .yml or .json")
