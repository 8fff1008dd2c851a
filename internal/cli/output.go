package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// An output is the value of -o: how to print a result.
type output string

const (
	asText output = "text"
	asJSON output = "json"
	asYAML output = "yaml"
)

func outputs() []string { return []string{string(asText), string(asJSON), string(asYAML)} }

// addOutput adds -o to a command.
func addOutput(command *cobra.Command, o *output) {
	*o = asText
	command.Flags().VarP(o, "output", "o", "how to print: text, json or yaml")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs(), cobra.ShellCompDirectiveNoFileComp))
}

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

func (o *output) Set(value string) error {
	if !slices.Contains(outputs(), value) {
		return fmt.Errorf("use one of %s", strings.Join(outputs(), ", "))
	}
	*o = output(value)
	return nil
}

// print writes a value for machines, or has text written for people.
func (o output) print(out io.Writer, value any, text func(io.Writer) error) error {
	var content []byte
	var err error
	switch o {
	case asJSON:
		content, err = json.MarshalIndent(value, "", "  ")
		content = append(content, '\n')
	case asYAML:
		content, err = yaml.Marshal(value)
	default:
		return text(out)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	return err
}
