package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// variableFields are the fields of our JSON that differ from run to run.
var variableFields = map[string]bool{
	"time":        true,
	"since":       true,
	"seconds":     true,
	"requestedAt": true,
	"started":     true,
	"completed":   true,
	"uid":         true,
}

// stream prints the last standard output again, one JSON object per line, with sorted fields
// and a * in place of values that differ from run to run. It fails on a line that is not a
// JSON object: stream
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

// steady returns a value of JSON without parts that differ from run to run.
func steady(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			value[name] = steady(field)
			if variableFields[name] {
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
