package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// An output is how to print a result.
type output string

const (
	asText output = "text"
	asJSON output = "json"
	asYAML output = "yaml"
)

// addOutput adds -o to a command. The first way to print is the default; without
// any there are text, JSON and YAML.
func addOutput(command *cobra.Command, o *output, ways ...output) {
	if len(ways) == 0 {
		ways = []output{asText, asJSON, asYAML}
	}
	*o = ways[0]
	last := len(ways) - 1
	help := fmt.Sprintf("how to print: %s or %s", joined(ways[:last]), ways[last])
	choice[output]{o, "format", ways}.addTo(command, "output", "o", help)
}

// addChoice adds a flag that sets a value to one of those that are allowed. What the value has is the default.
func addChoice[T ~string](command *cobra.Command, value *T, name, help string, allowed ...T) {
	choice[T]{value, "name", allowed}.addTo(command, name, "", help)
}

// A choice is a flag with a fixed set of values.
type choice[T ~string] struct {
	value   *T
	what    string // what the help calls a value
	allowed []T
}

func (c choice[T]) addTo(command *cobra.Command, name, short, help string) {
	command.Flags().VarP(c, name, short, help)
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(textsOf(c.allowed), cobra.ShellCompDirectiveNoFileComp))
}

func (c choice[T]) String() string { return string(*c.value) }
func (c choice[T]) Type() string   { return c.what }

func (c choice[T]) Set(value string) error {
	if !slices.Contains(c.allowed, T(value)) {
		return fmt.Errorf("use one of %s", joined(c.allowed))
	}
	*c.value = T(value)
	return nil
}

// textsOf returns texts of a type as plain ones.
func textsOf[T ~string](all []T) []string {
	texts := make([]string, len(all))
	for i, item := range all {
		texts[i] = string(item)
	}
	return texts
}

// joined lists texts of a type.
func joined[T ~string](all []T) string { return strings.Join(textsOf(all), ", ") }

// print writes a value for machines, or has text written for people.
func (o output) print(out io.Writer, value any, text func(io.Writer) error) error {
	var content []byte
	var err error
	switch o {
	case asJSON:
		content, err = toJSON(value)
	case asYAML:
		content, err = toYAML(value)
	default:
		return text(out)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	return err
}

// printNext prints a value of a stream: as a line of JSON, or as a document of YAML.
func (o output) printNext(out io.Writer, value any) error {
	if o != asJSON {
		fmt.Fprintln(out, "---")
		return o.print(out, value, nil)
	}
	line, err := json.Marshal(value)
	if err == nil {
		_, err = out.Write(append(printable.JSON(line), '\n'))
	}
	return err
}

// printLines prints lines for people.
func printLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

func toJSON(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(printable.JSON(text), '\n'), err
}

// toYAML writes JSON, which is YAML, where YAML would have in it as they are what does things to terminals.
func toYAML(value any) ([]byte, error) {
	text, err := yaml.Marshal(value)
	if err == nil && !printable.IsHarmless(text) {
		return toJSON(value)
	}
	return text, err
}

// printWhole prints all or nothing, so that no half is taken for the whole.
func (o output) printWhole(out io.Writer, value any, text func(io.Writer) error) error {
	var whole bytes.Buffer
	if err := o.print(&whole, value, text); err != nil {
		return err
	}
	_, err := whole.WriteTo(out)
	return err
}

// aligned are rows with cells between tabs as lines with columns.
func aligned(rows []string) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, row)
	}
	_ = table.Flush() // a strings.Builder takes all
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}
