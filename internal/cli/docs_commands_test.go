package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/core"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	inlineCode = regexp.MustCompile("`(runlevel [^`]+)`")
	// aCommand finds runlevel where a shell runs it, with its arguments up to the next command, redirection or comment.
	aCommand = regexp.MustCompile(
		`(?m)(?:^|[|&;(] ?|until |\$ )(?:bin/)?runlevel((?: +(?:"[^"]*"|'[^']*'|[^\s'"|&;()<>#])+)*)`,
	)
	aWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|[^\s'"])+`)
)

// TestCommandsOfTheDocumentation parses each command of runlevel in a shell's block or in a text: the verb and its
// flags exist.
func TestCommandsOfTheDocumentation(t *testing.T) {
	count := 0
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../examples/*/README.md",
		"../review/lint/rules/*.txtar"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: no page, %v", pattern, err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, arguments := range documentedCommands(string(text)) {
				count++
				if err := parse(arguments); err != nil {
					t.Errorf("%s: runlevel %s: %v", page, strings.Join(arguments, " "), err)
				}
			}
		}
	}
	if count < 200 {
		t.Errorf("only %d commands were found", count)
	}
}

// documentedCommands returns the arguments of the commands of a page.
func documentedCommands(page string) [][]string {
	var shell []string
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		shell = append(shell, strings.ReplaceAll(block[1], "\\\n", " "))
	}
	for _, code := range inlineCode.FindAllStringSubmatch(page, -1) {
		shell = append(shell, strings.ReplaceAll(code[1], "\n", " "))
	}
	var found [][]string
	for _, text := range shell {
		for _, command := range aCommand.FindAllStringSubmatch(text, -1) {
			arguments := aWord.FindAllString(command[1], -1)
			for i := range arguments {
				arguments[i] = strings.NewReplacer(`"`, "", "'", "").Replace(arguments[i])
			}
			found = append(found, arguments)
		}
	}
	return found
}

// parse returns an error if the arguments have no verb, or a flag that the verb does not have.
func parse(arguments []string) error {
	if len(arguments) == 0 || strings.HasSuffix(arguments[0], ",") { // verbs that are listed in a text
		return nil
	}
	command, rest, err := NewRoot(core.Streams{
		In:  strings.NewReader(""),
		Out: io.Discard,
		Err: io.Discard,
	}).Find(arguments)
	switch {
	case err != nil:
		return err
	case command.HasSubCommands() && command.Parent() == nil && len(rest) > 0 && !strings.HasPrefix(rest[0], "-"):
		return errors.New("unknown verb")
	}
	var value *pflag.ValueRequiredError // the value of a flag that a text only names
	if err := command.ParseFlags(rest); !errors.Is(err, pflag.ErrHelp) && !errors.As(err, &value) {
		return err
	}
	return nil
}
