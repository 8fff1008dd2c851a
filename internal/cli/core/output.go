package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// An Output is the format of a result.
type Output string

const (
	Text Output = "text"
	JSON Output = "json"
	YAML Output = "yaml"
	HTML Output = "html" // a file for browsers, which needs no other
)

// AddOutput adds -o to a command. The first format is the default; without
// formats, they are text, JSON and YAML.
func AddOutput(command *cobra.Command, o *Output, ways ...Output) {
	if len(ways) == 0 {
		ways = []Output{Text, JSON, YAML}
	}
	*o = ways[0]
	last := len(ways) - 1
	help := fmt.Sprintf("how to print: %s or %s", Join(ways[:last]), ways[last])
	choice[Output]{o, "format", ways}.addTo(command, "output", "o", help)
}

// AddChoice adds a flag with allowed values. The current value is the default.
func AddChoice[T ~string](command *cobra.Command, value *T, name, help string, allowed ...T) {
	choice[T]{value, "name", allowed}.addTo(command, name, "", help)
}

// A choice is a flag with a fixed set of values.
type choice[T ~string] struct {
	value   *T
	what    string // the type in the help
	allowed []T
}

func (c choice[T]) addTo(command *cobra.Command, name, short, help string) {
	command.Flags().VarP(c, name, short, help)
	_ = command.RegisterFlagCompletionFunc(name,
		cobra.FixedCompletions(textsOf(c.allowed), cobra.ShellCompDirectiveNoFileComp))
}

func (c choice[T]) String() string { return string(*c.value) }
func (c choice[T]) Type() string   { return c.what }

func (c choice[T]) Set(value string) error {
	if !slices.Contains(c.allowed, T(value)) {
		return fmt.Errorf("use one of %s", Join(c.allowed))
	}
	*c.value = T(value)
	return nil
}

// A singleText is a text flag that may be set once: the first of two values would be dropped silently.
type singleText string

func (t *singleText) String() string { return string(*t) }
func (t *singleText) Type() string   { return "string" }

func (t *singleText) Set(value string) error {
	if *t != "" {
		return errors.New("it can be set only once")
	}
	*t = singleText(value)
	return nil
}

// textsOf returns texts of a type as strings.
func textsOf[T ~string](all []T) []string {
	texts := make([]string, len(all))
	for i, item := range all {
		texts[i] = string(item)
	}
	return texts
}

// Join lists texts of a type.
func Join[T ~string](all []T) string { return strings.Join(textsOf(all), ", ") }

// Print writes a value as JSON or YAML, or calls a function that writes text.
func (o Output) Print(out io.Writer, value any, text func(io.Writer) error) error {
	var content []byte
	var err error
	switch o {
	case JSON:
		content, err = printable.IndentedJSON(value)
	case YAML:
		content, err = printable.YAML(value)
	default:
		return text(out)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	return err
}

// PrintNext prints a value of a stream: as a line of JSON, or as a document of YAML.
func (o Output) PrintNext(out io.Writer, value any) error {
	if o != JSON {
		fmt.Fprintln(out, "---")
		return o.Print(out, value, nil)
	}
	line, err := json.Marshal(value)
	if err == nil {
		_, err = out.Write(append(printable.JSON(line), '\n'))
	}
	return err
}

// PrintLines prints lines of text.
func PrintLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// PrintWhole prints all or nothing, so that output is never truncated by an error.
func (o Output) PrintWhole(out io.Writer, value any, text func(io.Writer) error) error {
	var answer bytes.Buffer
	if err := o.Print(&answer, value, text); err != nil {
		return err
	}
	_, err := answer.WriteTo(out)
	return err
}

// Align returns rows of tab-separated cells as lines with aligned columns.
func Align(rows []string) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, row)
	}
	_ = table.Flush() // a strings.Builder returns no error
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// MaxAlike limits the items with the same cause that are printed one by one.
const MaxAlike = 3

// A Folded is an item to print, with the others of the same cause, which are only counted.
type Folded[T any] struct {
	First  T
	Others []T
}

// Fold groups items for printing: if more than MaxAlike have the same cause, only the first one is printed.
func Fold[T any](all []T, cause func(T) string) []Folded[T] {
	return FoldBeyond(all, cause, func(T) int { return MaxAlike })
}

// FoldBeyond groups items like Fold, with a limit for each.
func FoldBeyond[T any](all []T, cause func(T) string, most func(T) int) []Folded[T] {
	count := map[string]int{}
	for _, item := range all {
		count[cause(item)]++
	}
	var folds []Folded[T]
	places := map[string]int{}
	for _, item := range all {
		key := cause(item)
		if index, isKnown := places[key]; isKnown && count[key] > most(item) {
			folds[index].Others = append(folds[index].Others, item)
			continue
		}
		places[key] = len(folds)
		folds = append(folds, Folded[T]{First: item})
	}
	return folds
}

// MostFiles limits the files in a line.
const MostFiles = 3
