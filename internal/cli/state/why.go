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

const whyHelp = `Explain why an object is missing, not ready, or not deleted: what it waits for, since when,
and what holds it. The answer is read from the object, its kind, its namespace and its pods,
and from the record of the apply, which has the order of the parts of the release. An
apply writes that after its first three seconds. The last state of an apply that failed or was
killed stays in the record.

OBJECT is KIND[.GROUP]/[NAMESPACE/]NAME. The kind may be a plural or a short name, as in
"deploy/web -n shop", "crd/foos.example.com" or "Deployment.apps/shop/web". Without a namespace
it is that of the kubeconfig; if the object does not exist there, it is the only namespace in which a
release has such an object, or the only one in which it exists. FILE is a manifest on disk, whose objects are all
explained; or the bare name of a file of the release, such as 0000_50_web_deployment.yaml, which an
apply that is not done knows, or SOURCE has.

With SOURCE, the release is read as well: the place of the object in it, what comes before,
what the object needs, and whether the gate would block the release. The object is not done
until that version is applied.

For a machine (machine.openshift.io), it shows the phase, what holds it, the command that helps, its
conditions and its events: see "runlevel machines". For a ControlPlaneMachineSet or a RunlevelControlPlane, it
shows what it waits for, what holds which of its machines, and what to do.

Without an OBJECT, it shows for each release (with --name, for one) which process applies it, or
when it was last applied, and the objects that are not as they should be: failures first, then
waits, the longest first, pending deletes, and objects that were changed since. The text is cut
to a screenful; -o json has everything.

Exit codes: 0 when every object is there and ready as it was applied, or gone if it was to be
deleted; 1 when one is not, or when that is not known; 2 for misuse. The answer is on standard
output in either case.

`

const whyExamples = `  # What of all that was applied is not as it is to be?
  runlevel why

  # In the middle of an update: what does my Deployment wait for?
  runlevel why deployment/web -n shop

  # Why does the old namespace not go?
  runlevel why ns/shop-old

  # What holds the machine that I have deleted?
  runlevel why machine/web-4 -n shop-machines

  # All objects of my manifest
  runlevel why ./manifests/0000_50_web_deployment.yaml

  # Nothing runs: where in the release is it, and what would stop that?
  runlevel why 0000_50_web_deployment.yaml ./4.21

  # In a script: wait until it is there and ready, as the release has it
  until runlevel why deployment/web -n shop ./4.21; do sleep 5; done

  # What holds it up, in the end?
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
	meant, err := parseObject(args[0])
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
	objects, err := resolve(ctx, resolver, args[0], meant)
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

// query returns what is known of a release, or of the release of --name, or of all.
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

// parseObject reads an argument that is an object or a file, before connecting to the cluster. It returns the parts of
// the object's name.
func parseObject(text string) (kinds.ID, error) {
	if isFileName(text) {
		return kinds.ID{}, nil
	}
	if found, err := os.Stat(text); err == nil && found.IsDir() {
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

// resolve returns the objects of an argument: one by its name, or those of a file.
func resolve(ctx context.Context, resolver *why.Resolver, text string,
	meant kinds.ID) (objects []why.NamedObject, err error) {
	if !isFileName(text) {
		objects = make([]why.NamedObject, 1)
		objects[0], err = resolver.Object(ctx, text, meant)
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

// messageLines returns lines of messages and unknown facts. They may be from a record, which users may have edited.
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
