package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// options are the options of the command line.
type options struct {
	sizes    []int
	rounds   int // 0 depends on the size
	tools    []tool
	runlevel string
	json     bool
	write    string
}

// parse reads the command line.
func parse(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := flags.String("sizes", "100,1000,5000", "numbers of objects of a release")
	names := flags.String("tools", strings.Join(toolNames(), ","), "tools to measure; the floor is always one")
	most := flags.String("most-for", "", "limits of the number of objects, as in kubectl=5000,helm=1000")
	quick := flags.Bool("quick", false, "one round of 100 objects")
	output := flags.String("o", "text", "output format: text or json")
	flags.IntVar(&o.rounds, "rounds", 0, "number of rounds (default: seven, fewer of large releases)")
	flags.StringVar(&o.runlevel, "runlevel", "../bin/runlevel", "the runlevel program")
	flags.StringVar(&o.write, "write", "", "a document whose tables to replace, such as ../docs/performance.md")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	if *quick {
		*sizes, o.rounds = "100", 1
	}
	if o.json = *output == "json"; !o.json && *output != "text" {
		return o, fmt.Errorf("-o %s: use text or json", *output)
	}
	var err error
	if o.sizes, err = parseSizes(*sizes); err != nil {
		return o, err
	}
	if o.tools, err = parseTools(*names); err != nil {
		return o, err
	}
	return o, o.limit(*most)
}

func parseSizes(text string) ([]int, error) {
	var sizes []int
	for _, word := range strings.Split(text, ",") {
		size, err := strconv.Atoi(word)
		if err != nil || size < 10 {
			return nil, fmt.Errorf("--sizes: %q is not a number of objects: use 10 or more", word)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// parseTools returns the named tools and the floor, in the order of the tables.
func parseTools(text string) ([]tool, error) {
	named := append(strings.Split(text, ","), "floor")
	for _, name := range named {
		if !slices.Contains(toolNames(), name) {
			return nil, fmt.Errorf("--tools: unknown tool %q: use %s", name, strings.Join(toolNames(), ", "))
		}
	}
	return slices.DeleteFunc(tools(), func(t tool) bool { return !slices.Contains(named, t.name) }), nil
}

func toolNames() []string {
	var names []string
	for _, t := range tools() {
		names = append(names, t.name)
	}
	return names
}

// limit sets the maximum numbers of objects of tools.
func (o *options) limit(text string) error {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		name, number, _ := strings.Cut(word, "=")
		most, err := strconv.Atoi(number)
		i := slices.IndexFunc(o.tools, func(t tool) bool { return t.name == name })
		if err != nil || i < 0 || name == "floor" {
			return fmt.Errorf("--most-for: %q: use TOOL=OBJECTS, with a tool of --tools", word)
		}
		o.tools[i].most = most
	}
	return nil
}

// roundsOf returns the number of rounds of a size: fewer of large payloads, which take long and vary less.
func (o *options) roundsOf(size int) int {
	if o.rounds > 0 {
		return o.rounds
	}
	return min(7, max(2, 1500/size))
}

// toolsFor returns the tools that are measured with a number of objects.
func (o *options) toolsFor(size int) []tool {
	return slices.DeleteFunc(slices.Clone(o.tools), func(t tool) bool { return t.most > 0 && t.most < size })
}
