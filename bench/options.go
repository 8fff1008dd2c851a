package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// options are what was asked for.
type options struct {
	sizes    []int
	rounds   int // 0: as many as there is time for
	tools    []contestant
	runlevel string
	json     bool
	write    string
	corpus   string
}

// parse reads the command line.
func parse(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := flags.String("sizes", "100,300,1000,5000", "how many objects a payload has; several, to see how it grows")
	tools := flags.String("tools", "floor,floor-wait,runlevel,runlevel-no-wait,kubectl,helm,kapp", "who takes part")
	most := flags.String("most-for", "", "the most objects for a tool, as in kubectl=5000,helm=1000")
	quick := flags.Bool("quick", false, "one round of 100 objects, to see that it runs")
	output := flags.String("o", "text", "how to print: text or json")
	flags.IntVar(&o.rounds, "rounds", 0, "how often (default: seven times, less for large payloads)")
	flags.StringVar(&o.runlevel, "runlevel", "../bin/runlevel", "the runlevel command")
	flags.StringVar(&o.corpus, "corpus", os.Getenv("RUNLEVEL_TEST_RELEASE"), "a folder of real manifests to apply as well")
	flags.StringVar(&o.write, "write", "", "the document to write the tables into, as in ../docs/performance.md")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: there are flags only; see --help", flags.Arg(0))
	}
	if *quick {
		*sizes, o.rounds, o.corpus = "100", 1, ""
	}
	if o.json = *output == "json"; !o.json && *output != "text" {
		return o, fmt.Errorf("-o %s: use text or json", *output)
	}
	var err error
	if o.sizes, err = parseSizes(*sizes); err != nil {
		return o, err
	}
	if o.tools, err = parseTools(*tools); err != nil {
		return o, err
	}
	return o, o.limit(*most)
}

func parseSizes(text string) ([]int, error) {
	var sizes []int
	for _, word := range strings.Split(text, ",") {
		size, err := strconv.Atoi(word)
		if err != nil || size < 10 {
			return nil, fmt.Errorf("--sizes: %q is no number of objects: use 10 or more", word)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// parseTools finds those who take part. The floor always does: there is nothing to say
// without it.
func parseTools(text string) ([]contestant, error) {
	all := contestants()
	named := append(strings.Split(text, ","), floor)
	for _, name := range named {
		if !slices.ContainsFunc(all, func(c contestant) bool { return c.name == name }) {
			return nil, fmt.Errorf("--tools: there is no %q: use floor, floor-wait, runlevel, runlevel-no-wait, kubectl, helm, kapp", name)
		}
	}
	return slices.DeleteFunc(all, func(c contestant) bool { return !slices.Contains(named, c.name) }), nil
}

// limit notes the most objects for a tool.
func (o *options) limit(text string) error {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		name, number, _ := strings.Cut(word, "=")
		most, err := strconv.Atoi(number)
		i := slices.IndexFunc(o.tools, func(c contestant) bool { return c.name == name })
		if err != nil || i < 0 || name == floor {
			return fmt.Errorf("--most-for: %q: use TOOL=OBJECTS, of a tool that takes part", word)
		}
		o.tools[i].most = most
	}
	return nil
}

// roundsOf says how many rounds a payload has: fewer of what takes long, and varies less. One of
// real manifests takes ten minutes, since a hundred definitions keep a server busy.
func (o *options) roundsOf(p payload) int {
	if o.rounds > 0 {
		return o.rounds
	}
	if _, isGenerated := p.(generated); !isGenerated {
		return 1
	}
	return min(7, max(2, 1500/p.size()))
}

// takingPart are those who take part with so many objects.
func (o *options) takingPart(size int) []contestant {
	return slices.DeleteFunc(slices.Clone(o.tools), func(c contestant) bool { return c.most > 0 && c.most < size })
}
