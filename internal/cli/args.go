package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// checkDefaults makes cobra's own commands return an error for unknown arguments.
func checkDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		switch command.Name() {
		case "completion":
			command.RunE = core.NeedsVerb
		case "help":
			command.Args, command.ValidArgsFunction = checkTopic, completeTopic(command.ValidArgsFunction)
		}
	}
}

// completeTopic completes subcommands of the arguments, and nothing after a command without subcommands.
func completeTopic(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(help *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if command, _, err := help.Root().Find(args); len(args) > 0 && (err != nil || !command.HasSubCommands()) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(help, args, toComplete)
	}
}

// checkTopic returns an error if the arguments of help are not a command.
func checkTopic(help *cobra.Command, args []string) error {
	parent, rest, err := help.Root().Find(args)
	if err == nil && len(rest) > 0 {
		return core.Misuse(unknownCommand(parent, rest[0]))
	}
	return err
}

// foreignCommands are commands of other tools, with their replacements.
var foreignCommands = map[string]string{
	"delete":   `write "runlevel uninstall NAME"; "runlevel deletes" lists the deletes that are pending`,
	"upgrade":  `write "runlevel apply SOURCE", which installs a release or updates it`,
	"template": `write "runlevel render SOURCE"`,
}

// unknownCommand returns the error for an unknown command, with the commands that are spelt much like it.
func unknownCommand(parent *cobra.Command, word string) error {
	parent.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", word, parent.CommandPath())
	if instead := foreignCommands[word]; instead != "" && !parent.HasParent() {
		return fmt.Errorf("%s: %s", text, instead)
	}
	if similar := parent.SuggestionsFor(word); len(similar) > 0 {
		text += ": did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(text)
}

// checkArgs makes wrong arguments of every command a misuse that refers to its help.
// A command without a check of arguments takes none.
func checkArgs(command *cobra.Command) {
	for _, child := range command.Commands() {
		checkArgs(child)
	}
	if command.Args == nil {
		command.Args, command.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
	}
	check := command.Args
	command.Args = func(command *cobra.Command, args []string) error {
		err := check(command, args)
		if err == nil {
			return nil
		}
		return withHelp(command, wrongArgs(command, args, err))
	}
}

// wrongArgs returns the error for wrong arguments. If cobra's error does not name the arguments that the command
// takes, wrongArgs names them.
func wrongArgs(command *cobra.Command, args []string, err error) error {
	_, wantedArgs, _ := strings.Cut(command.Use, " ")
	path := command.CommandPath()
	switch {
	case strings.Contains(err.Error(), "arg(s)"):
		return fmt.Errorf("write \"%s %s\": received %s", path, wantedArgs, printable.Count(len(args), "argument"))
	case !strings.HasPrefix(err.Error(), "unknown command"):
		return err
	case command.HasSubCommands():
		return unknownCommand(command, args[0])
	default:
		return fmt.Errorf("%q takes no arguments, such as %q", path, args[0])
	}
}

// valueHints are hints on the values of flags, by type.
var valueHints = map[string]string{
	"bool": "write true or false", "duration": "write a time such as 30s or 5m",
	"int": "write a whole number", "uint64": "write a whole number", "level": "write a whole number",
}

// foreignFlags are flags of other tools, with their replacements.
var foreignFlags = map[string]string{
	"values": core.NoValues, "set": core.NoValues, "set-string": core.NoValues, "set-file": core.NoValues,
	"set-json": core.NoValues,
	"env":      core.NoValues, "environment": core.NoValues, "overlay": core.NoValues,
	"atomic":              `"runlevel rollback NAME" rolls a failed update back`,
	"rollback-on-failure": `"runlevel rollback NAME" rolls a failed update back`,
	"create-namespace":    "put the Namespace into the release, as a manifest",
	"server-side":         "each apply is server-side",
	"prune":               `objects are deleted by tombstones: see "runlevel plan --help"`,
	"install":             "an apply installs missing objects",
}

// wrongFlag returns the misuse for an error of a flag.
func wrongFlag(command *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && foreignFlags[unknown.GetSpecifiedName()] != "" {
		return core.Misusef("unknown flag --%s: %s", unknown.GetSpecifiedName(),
			foreignFlags[unknown.GetSpecifiedName()])
	}
	isNamespace := unknown != nil && (unknown.GetSpecifiedName() == "n" || unknown.GetSpecifiedName() == "namespace")
	if isNamespace && command.Flags().Lookup("record-namespace") != nil {
		return core.Misusef("unknown flag -n: a release may have objects in several namespaces; " +
			"--record-namespace is the namespace of its record")
	}
	if !errors.As(err, &invalid) {
		return withHelp(command, err)
	}
	if what := valueHints[invalid.GetFlag().Value.Type()]; what != "" {
		return core.Misusef("--%s: %q can't be read: %s", invalid.GetFlag().Name, invalid.GetValue(), what)
	}
	return core.Misusef("--%s: %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
}

// withHelp returns an error as a misuse that refers to the help of a command.
func withHelp(command *cobra.Command, err error) error {
	return core.Misusef("%s\nsee \"%s --help\"", strings.TrimSuffix(err.Error(), "\n"), command.CommandPath())
}
