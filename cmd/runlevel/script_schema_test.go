package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/xeipuuv/gojsonschema"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// schemasVariable names the folder of the schemas against which JSON is validated.
const schemasVariable = "TEST_RUNLEVEL_SCHEMAS"

// exitSchema is the exit code of a command whose JSON does not match its schema.
const exitSchema = 99

// checkedMain is main, and validates the output of a command with "-o json" against its schema in docs/schemas.
func checkedMain() {
	isOther := slices.Contains(os.Args, "exec") // "sandbox exec" prints the output of another program
	if !slices.Contains(os.Args, "json") || os.Getenv(schemasVariable) == "" || isOther {
		main()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var printed bytes.Buffer
	code := cli.Run(ctx, os.Args[1:],
		core.Streams{In: os.Stdin, Out: io.MultiWriter(os.Stdout, &printed), Err: os.Stderr})
	if err := checkSchemas(os.Getenv(schemasVariable), os.Args[1:], &printed); err != nil {
		fmt.Fprintln(os.Stderr, "docs/schemas:", err)
		code = exitSchema
	}
	os.Exit(code)
}

// checkSchemas compares the documents that a command has printed with their schemas.
func checkSchemas(folder string, args []string, printed io.Reader) error {
	decoder := json.NewDecoder(printed)
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := schemaName(args, document)
		text, err := os.ReadFile(filepath.Join(folder, name+".json"))
		if err != nil {
			return err
		}
		var schema struct{ Items any }
		if err := json.Unmarshal(text, &schema); err != nil {
			return err
		}
		if _, isObject := document.(map[string]any); isObject && schema.Items != nil {
			document = []any{document} // a line of a stream, or a single item of a list
		}
		result, err := gojsonschema.Validate(gojsonschema.NewBytesLoader(text), gojsonschema.NewGoLoader(document))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, problem := range result.Errors() {
			err = errors.Join(err, fmt.Errorf("%s: %s", name, problem))
		}
		if err != nil {
			return err
		}
	}
}

// keepEvents are the types of events after an apply.
var keepEvents = []keep.EventType{
	keep.Keeping, keep.Repaired, keep.Contested, keep.Failing, keep.Recovered, keep.Unwatched, keep.Watched,
	keep.Missed, keep.Passed,
}

// schemaName returns the name of the schema for a document that a command has printed.
func schemaName(args []string, document any) string {
	fields, _ := document.(map[string]any)
	kind, _ := fields["type"].(string)
	switch args[0] {
	case "apply", "rollback":
		switch {
		case kind == "kept":
			return "keep-summary"
		case kind == "start" || kind == "summary" || kind == "tests":
			return "apply-" + kind
		case slices.Contains(keepEvents, keep.EventType(kind)):
			return "keep-event"
		default:
			return "apply-event"
		}
	case "diff":
		return "plan"
	case "get":
		if slices.Contains(args, "manifests") {
			return "render"
		}
		return "get-objects"
	case "uninstall":
		if fields["objects"] != nil { // output of the operator's uninstall
			return "install"
		}
	case "sandbox":
		return "sandbox-status"
	case "graph":
		if slices.Contains(args, "--references") {
			return "graph-references"
		}
	case "list":
		if slices.Contains(args, "--contexts") || slices.Contains(args, "--kubeconfig-dir") {
			return "list-clusters"
		}
	case "machines":
		switch {
		case slices.Contains(args, "plan") && fields["kind"] != nil:
			return "machines-plan-control-plane"
		case slices.Contains(args, "plan"):
			return "machines-plan"
		}
	case "release":
		if fields["plan"] != nil { // info of two releases
			return "release-changes"
		}
		if args[1] == "push" {
			return "release-pull"
		}
		return "release-" + args[1]
	case "updates":
		return "updates-" + args[1]
	case "why":
		list, _ := document.([]any)
		if len(list) > 0 {
			fields, _ = list[0].(map[string]any)
		}
		if fields["object"] == nil {
			return "why-release"
		}
	}
	return args[0]
}
