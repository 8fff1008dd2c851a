package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/apply"
	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/install"
	"github.com/runlevel/runlevel/internal/cli/lint"
	"github.com/runlevel/runlevel/internal/cli/machines"
	"github.com/runlevel/runlevel/internal/cli/release"
	"github.com/runlevel/runlevel/internal/cli/review"
	"github.com/runlevel/runlevel/internal/cli/sandbox"
	"github.com/runlevel/runlevel/internal/cli/state"
	"github.com/runlevel/runlevel/internal/cli/ui"
	"github.com/runlevel/runlevel/internal/cli/updates"
	"github.com/runlevel/runlevel/internal/machines/overview"
)

// A verbGroup is a heading of "runlevel --help", with the verbs that it lists.
type verbGroup struct {
	title string
	verbs []*cobra.Command
}

func verbGroups(streams core.Streams) []verbGroup {
	get := state.NewGet()
	get.AddCommand(review.NewGetManifests(streams), state.NewGetObjects(streams))
	return []verbGroup{
		{"Apply and Undo:", []*cobra.Command{
			apply.New(streams),
			apply.NewGate(streams),
			apply.NewRollback(streams),
			apply.NewTest(streams),
			install.New(streams),
			install.NewUninstall(streams),
		}},
		{"Inspect a Release on a Cluster:", []*cobra.Command{
			state.NewDeletes(streams),
			review.NewDiff(streams),
			get,
			state.NewHistory(streams),
			state.NewInspect(streams),
			state.NewList(streams),
			machines.New(streams),
			state.NewSnapshot(streams),
			state.NewStatus(streams),
			ui.New(streams, overview.Explainers()...),
			state.NewWait(streams),
			state.NewWhy(streams, overview.Explainers()...),
		}},
		{"Review a Release Offline:", []*cobra.Command{
			review.NewConvert(streams),
			lint.NewExplain(streams),
			review.NewGraph(streams),
			lint.New(streams),
			review.NewPlan(streams),
			lint.NewRehearse(streams),
			review.NewRender(streams),
			sandbox.New(streams),
		}},
		{"Make and Carry Releases:", []*cobra.Command{release.New(streams), updates.New(streams)}},
	}
}

// addVerbs adds the verbs under their headings in --help, and then the help topics.
func addVerbs(root *cobra.Command, streams core.Streams) {
	for _, group := range verbGroups(streams) {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.title
			root.AddCommand(verb)
		}
	}
	root.AddCommand(newVersion(streams), exitCodes(), environments())
}

// A flagHeading is a heading of the flags in --help.
type flagHeading struct {
	title string
	names []string
}

// flagHeadings are the headings for the flags that verbs share, in the order of --help.
var flagHeadings = []flagHeading{
	{"Release Flags", []string{"component", "filename", "image-mirror", "insecure", "into", "name", "namespace",
		"platform", "previous", "previous-version", "release-version"}},
	{"Filter Flags", []string{"capabilities", "exclude", "feature-gates", "feature-set", "major-version", "profile",
		"unmanaged", "updating-from"}},
	{"Image Flags", []string{"image", "images-from", "load-image", "previous-image", "release-image"}},
	{"Object Flags", []string{"adopt-from", "create-namespace", "force", "full", "mode", "remove-foreign-fields",
		"rerun-hook", "skip-hook", "unknown-fields"}},
	{"Waiting Flags", []string{"lock-duration", "no-wait", "patience", "recheck", "timeout", "wait", "wait-lock",
		"watch"}},
	{"Finding Flags", []string{"baseline", "config", "fail-on", "off", "show-ignored", "write-baseline"}},
	{"Record Flags", []string{"history-max", "keep-files", "record-namespace"}},
	{"Cluster Flags", []string{"as", "context", "kubeconfig"}},
}

const (
	manyFlags   = 20 // a verb with fewer flags lists them without headings
	helpColumns = 100
)

// groupFlags makes --help list many flags under headings, after the flags that no heading has. It replaces them in
// cobra's text: a template of our own would make the linker keep all methods of all types.
func groupFlags(root *cobra.Command) {
	printUsage := root.UsageFunc()
	root.SetUsageFunc(func(command *cobra.Command) error {
		out := command.OutOrStderr()
		var usage bytes.Buffer
		command.SetOut(&usage)
		defer command.SetOut(out)
		if err := printUsage(command); err != nil {
			return err
		}
		text := usage.String()
		for _, flags := range []*pflag.FlagSet{command.LocalFlags(), command.InheritedFlags()} {
			text = strings.Replace(text, strings.TrimSpace(flags.FlagUsages()), strings.TrimSpace(flagUsages(flags)), 1)
		}
		_, err := io.WriteString(out, text)
		return err
	})
}

func flagUsages(all *pflag.FlagSet) string {
	count := 0
	all.VisitAll(func(*pflag.Flag) { count++ })
	if count < manyFlags {
		return all.FlagUsagesWrapped(helpColumns)
	}
	sets := make([]*pflag.FlagSet, len(flagHeadings)+1) // the last set has the flags without a heading
	for i := range sets {
		sets[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	all.VisitAll(func(flag *pflag.Flag) {
		i := slices.IndexFunc(flagHeadings, func(h flagHeading) bool { return slices.Contains(h.names, flag.Name) })
		if i < 0 {
			i = len(flagHeadings)
		}
		sets[i].AddFlag(flag)
	})
	var usages strings.Builder
	usages.WriteString(sets[len(flagHeadings)].FlagUsagesWrapped(helpColumns))
	for i, heading := range flagHeadings {
		if sets[i].HasAvailableFlags() {
			fmt.Fprintf(&usages, "\n%s:\n%s", heading.title, sets[i].FlagUsagesWrapped(helpColumns))
		}
	}
	return usages.String()
}
