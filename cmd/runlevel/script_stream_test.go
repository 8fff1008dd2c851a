package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// changing are the fields of our JSON that differ from run to run.
var changing = map[string]bool{
	"time":        true,
	"since":       true,
	"seconds":     true,
	"requestedAt": true,
	"started":     true,
	"completed":   true,
	"uid":         true,
}

// stream prints what was on standard output again, one JSON object per line, each with its
// fields in order and a * for what differs from run to run. A line that is no JSON object
// fails: stream
func stream(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stdout")
	out := ts.Stdout()
	for line := range strings.Lines(text) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("line %q is no JSON object: %v", line, err)
		}
		shown, err := json.Marshal(steady(object))
		ts.Check(err)
		fmt.Fprintf(out, "%s\n", shown)
	}
}

// steady is a value of JSON with nothing in it that differs from run to run.
func steady(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			value[name] = steady(field)
			if changing[name] {
				value[name] = "*"
			}
		}
	case []any:
		for i, item := range value {
			value[i] = steady(item)
		}
	}
	return value
}
