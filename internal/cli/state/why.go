package state

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// whyFlags are the flags of runlevel why.
type whyFlags struct {
	release   core.ReleaseFlags
	cluster   core.ClusterFlags
	format    core.Output
	namespace string
}

const whyHelp = `Explain why an object is missing, not ready, or not deleted: what it waits for, since when,
and what holds it. The answer is read from the object, its kind, its namespace and its pods,
and from the record of the apply, which has the order of the parts of the release. An
apply writes that after its first three seconds. The last state of an apply that failed or was
killed stays in the record.

OBJECT is KIND[.GROUP]/[NAMESPACE/]NAME. The kind may be a plural or a short name, as in
"deploy/web -n shop", "crd/foos.example.com" or "Deployment.apps/shop/web". Without a namespace
it is that of the kubeconfig. FILE is a manifest on disk, whose objects are all
explained; or the bare name of a file of the release, such as 0000_50_web_deployment.yaml, which an
apply that is not done knows, or SOURCE has.

With SOURCE, the release is read as well: the place of the object in it, what comes before,
what the object needs, and whether the gate would block the release. The object is not done
until that version is applied.

For a machine (machine.openshift.io), it shows the phase, what holds it, the command that helps, its
conditions and its events: see "runlevel machines".

Without an OBJECT, it shows for each release (with --name, for one) which process applies it, or
when it was last applied, and the objects that are not as they should be: failures first, then
waits, the longest first, pending deletes, and objects that were changed since. The text is cut
to a screenful; -o json has everything.

Exit codes: 0 when every object is there and ready as it was applied, or gone if it was to be
deleted; 1 when one is not, or when that is not known; 2 for misuse. The answer is on standard
output in either case.

`

// NewWhy returns the verb why.
func NewWhy(streams core.Streams) *cobra.Command {
	var f whyFlags
	command := &cobra.Command{
		Use:   "why [OBJECT|FILE [SOURCE]]",
		Short: "Explain why an object is missing, not ready or not deleted",
		Long:  whyHelp + core.SourceHelp,
		Example: `  # What of all that was applied is not as it is to be?
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
  runlevel why deployment/web -n shop -o json | jq -r '.[].holds[]? | "\(.object.kind) \(.object.name): \(.for)"'`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: core.CompletePaths(2, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args, streams)
		},
	}
	core.AddReleaseFlags(command, &f.release)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, core.JSON)
	command.Flags().StringVarP(&f.namespace, "namespace", "n", "", "the namespace of the object (default: that of the kubeconfig)")
	return command
}

func (f *whyFlags) run(ctx context.Context, args []string, streams core.Streams) error {
	if len(args) == 0 {
		return f.releases(ctx, streams)
	}
	if err := checkObject(args[0]); err != nil {
		return err
	}
	var release *payload.Payload
	if len(args) > 1 {
		var err error
		if release, err = f.release.Load(ctx, args[1], streams.Err); err != nil {
			return err
		}
	} else if _, err := f.release.Options(streams.Err); err != nil {
		return err
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	name := f.release.Name
	if release != nil {
		name = release.Name
	}
	records, unread := reader.KnownRecords(ctx, name)
	if f.release.Name != "" && release == nil && len(records) == 0 && unread == "" {
		return reader.NoRecord(f.release.Name)
	}
	objects, err := f.requestedObjects(ctx, reader.Cluster, args[0], release, records)
	if err != nil {
		return err
	}
	var facts []*why.ObjectFacts
	for _, object := range objects {
		facts = append(facts, why.Gather(ctx, reader.Cluster, why.ObjectQuery{Object: object.ID, Deletes: object.deletes, Records: records, Namespace: f.cluster.Namespace, Release: release}))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	gate, unasked := f.gate(ctx, reader.Cluster, release, facts)
	answers := judge(facts, gate, unread, unasked)
	explainMachines(ctx, reader.Cluster, answers)
	if err := f.format.PrintWhole(streams.Out, answers, func(out io.Writer) error { return printAnswers(out, answers) }); err != nil {
		return err
	}
	return core.FailIf(slices.ContainsFunc(answers, func(a *why.Answer) bool { return !a.Done }))
}

// gate returns the findings that would block the release, if it is not being applied, or why they
// are not known.
func (f *whyFlags) gate(ctx context.Context, c *cluster.Cluster, release *payload.Payload, facts []*why.ObjectFacts) ([]precondition.CheckFinding, string) {
	isOpen := func(objectFacts *why.ObjectFacts) bool {
		return !why.Judge(objectFacts).Done && (objectFacts.Held == nil || objectFacts.Held.IsDead(objectFacts.Now))
	}
	if release == nil || release.Name == "" || !slices.ContainsFunc(facts, isOpen) {
		return nil, ""
	}
	outcome := session.Inspect(ctx, c, release, session.Options{Namespace: f.cluster.Namespace})
	if outcome.Err != nil {
		return nil, "what would stop the release: " + printable.Line(outcome.Err.Error())
	}
	return precondition.Blocking(outcome.Findings), ""
}

// judge returns the answers.
func judge(facts []*why.ObjectFacts, gate []precondition.CheckFinding, unread, unasked string) []*why.Answer {
	answers := []*why.Answer{}
	for _, objectFacts := range facts {
		objectFacts.Gate, objectFacts.IsUnread = gate, unread != ""
		for _, what := range []string{unread, unasked} {
			if what != "" {
				objectFacts.Unknown = append(objectFacts.Unknown, what)
			}
		}
		answers = append(answers, why.Judge(objectFacts))
	}
	return answers
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

var errNoObject = errors.New("name an object as KIND[.GROUP]/[NAMESPACE/]NAME, such as deployment/web or Deployment.apps/shop/web, or a file that ends in .yaml, .yml or .json")
