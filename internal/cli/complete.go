package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// completeOne completes a single argument with fixed words.
func completeOne(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeList completes the words of a list, also after a comma.
func completeList(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndex(toComplete, ",")+1]
		var found []cobra.Completion
		for _, word := range words {
			found = append(found, before+word)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFiles completes the value of a flag with files, whatever the arguments are.
func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completePaths completes up to most arguments with files or folders.
func completePaths(most int, what cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, what
	}
}

// completeSource completes a SOURCE with files.
var completeSource = completePaths(1, cobra.ShellCompDirectiveDefault)
