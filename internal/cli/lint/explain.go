package lint

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
)

// RuleInfo is a rule in JSON or YAML.
type RuleInfo struct {
	ID       string        `json:"id"`
	Severity lint.Severity `json:"severity"`
	Summary  string        `json:"summary"`
	Page     string        `json:"page"` // Markdown
}

// NewExplain returns the verb explain.
func NewExplain(streams core.Streams) *cobra.Command {
	var format core.Output
	command := &cobra.Command{
		Use:   "explain [RULE...]",
		Short: "Explain a rule of lint, and how to fix its findings",
		Long: `Print the page of a rule: its purpose, an example, and how to fix its findings.
Without a rule, list all rules.`,
		Example: `  runlevel explain
  runlevel explain stale-delete`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: core.CompleteOne(ruleIDs()),
		RunE: func(_ *cobra.Command, args []string) error {
			infos, err := explain(args)
			if err != nil {
				return core.Misuse(err)
			}
			return format.Print(streams.Out, infos, func(out io.Writer) error {
				return printRules(out, infos, len(args) == 0)
			})
		},
	}
	core.AddOutput(command, &format)
	return command
}

// explain returns the rules of some names, or all rules if there are no names.
func explain(ids []string) ([]RuleInfo, error) {
	if len(ids) == 0 {
		ids = ruleIDs()
	}
	var rules []RuleInfo
	for _, id := range ids {
		rule, found := lint.FindRule(id)
		if !found {
			return nil, fmt.Errorf("unknown rule %q%s", id, lint.DidYouMean(id))
		}
		rules = append(rules, RuleInfo{rule.ID, rule.Severity, rule.Summary(), lint.Explain(rule)})
	}
	return rules, nil
}

func printRules(out io.Writer, rules []RuleInfo, isList bool) error {
	var text strings.Builder
	for i, rule := range rules {
		switch {
		case isList:
			fmt.Fprintf(&text, "%-26s %-8s %s\n", rule.ID, rule.Severity, rule.Summary)
		case i > 0:
			text.WriteString("\n" + rule.Page)
		default:
			text.WriteString(rule.Page)
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
