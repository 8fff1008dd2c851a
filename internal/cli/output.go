package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/pkg/printable"
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
	var names []string
	for _, way := range ways {
		names = append(names, string(way))
	}
	*o = ways[0]
	last := len(names) - 1
	help := fmt.Sprintf("how to print: %s or %s", strings.Join(names[:last], ", "), names[last])
	command.Flags().VarP(chosenOutput{o, names}, "output", "o", help)
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// A chosenOutput is the flag that sets an output.
type chosenOutput struct {
	*output
	allowed []string
}

func (c chosenOutput) String() string {
	if c.output == nil {
		return ""
	}
	return string(*c.output)
}

func (chosenOutput) Type() string { return "format" }

func (c chosenOutput) Set(value string) error {
	*c.output = output(value)
	return oneOf(value, c.allowed)
}

// A choice is a flag with a fixed set of values.
type choice struct {
	value   string
	allowed []string
}

// addChoice adds a flag that is a choice.
func addChoice(command *cobra.Command, c *choice, name, help string) {
	command.Flags().Var(c, name, help)
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp))
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "name" }

func (c *choice) Set(value string) error {
	c.value = value
	return oneOf(value, c.allowed)
}

func oneOf(value string, allowed []string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("use one of %s", strings.Join(allowed, ", "))
	}
	return nil
}

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
