package cli

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cli/apply"
	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/install"
	"github.com/runlevel/runlevel/internal/cli/lint"
	"github.com/runlevel/runlevel/internal/cli/release"
	"github.com/runlevel/runlevel/internal/cli/review"
	"github.com/runlevel/runlevel/internal/cli/ui"
	"github.com/runlevel/runlevel/internal/cli/updates"
	"github.com/runlevel/runlevel/internal/session/releasetest"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/uninstall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/release/info"
	"github.com/runlevel/runlevel/internal/release/mirror"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/referrers"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

// A jsonDocument is the output of a command with -o json.
type jsonDocument struct {
	command string
	content string
	value   any
}

// jsonDocuments are all documents, by the names of their schemas.
var jsonDocuments = map[string]jsonDocument{
	"apply-start": {"apply", "the first line", apply.StartEvent{}},
	"apply-event": {"apply", "a line for each event of the apply", apply.DryEvent{}},
	"apply-summary": {"apply",
		"the last line, or with `--watch` the one before the release is kept in place", apply.Summary{}},
	"apply-tests":  {"apply --test", "the last line", apply.TestsEvent{}},
	"keep-event":   {"apply --watch", "a line for each event after that", keep.Event{}},
	"keep-summary": {"apply --watch", "the last line", apply.KeptSummary{}},
	"deletes":      {"deletes", "pending deletes", []state.PendingDelete{}},
	"explain":      {"explain", "rules of lint", []lint.RuleInfo{}},
	"gate":         {"gate", "findings of the gate", apply.GateReport{}},
	"get-objects": {"get objects", "the objects of a release on the cluster",
		&state.ObjectList{}},
	"graph": {"graph", "the nodes of the graph, with their tasks", review.GraphInfo{}},
	"history": {"history", "the record of each release, as it is stored in the cluster",
		[]*record.Record{}},
	"inspect": {"inspect", "the files that were written", state.InspectReport{}},
	"install": {"install, uninstall --operator", "the objects of the operator",
		install.OperatorReport{}},
	"lint": {"lint", "findings", lint.Report{}},
	"list": {"list", "the releases on a cluster", []state.ListedRelease{}},
	"list-clusters": {"list --contexts", "clusters with their releases; `--kubeconfig-dir` prints the same",
		[]state.ListedCluster{}},
	"machines": {"machines", "machines; with `--watch` a line for each that has changed",
		[]overview.Machine{}},
	"machines-plan": {"machines plan", "effects of a changed MachineDeployment on its machines",
		&rolloutpreview.DeploymentPreview{}},
	"machines-plan-control-plane": {"machines plan controlplanemachineset/NAME, machines plan " +
		"runlevelcontrolplane/NAME",
		"effects of a changed ControlPlaneMachineSet or RunlevelControlPlane on control plane machines",
		&rolloutpreview.ControlPlanePreview{}},
	"notification": {"apply --notify",
		"CloudEvent for a receiver; `rollback`, `uninstall` and the operator send the same",
		notify.CloudEvent{}},
	"plan":          {"plan, diff", "what an update does, object by object", &plan.Plan{}},
	"release-build": {"release build", "the release that was built", release.BuildReport{}},
	"render": {"render, get manifests",
		"the manifests of a cluster, or with `--explain` why each is in or out", review.RenderInfo{}},
	"release-sign": {"release sign", "the signatures that were written", release.SignReport{}},
	"release-verify": {"release verify", "the consumers that accept the image of a release, and those that refuse it",
		release.VerifyReport{}},
	"release-info": {"release info", "the contents of a release", &info.Info{}},
	"release-changes": {"release info SOURCE SOURCE", "the differences between two releases",
		&release.Changes{}},
	"release-mirror": {"release mirror", "the images of a release, with the parts that the destination lacked",
		&mirror.Mirror{}},
	"release-pull":   {"release push, release pull", "what was copied", release.CopyReport{}},
	"release-tag":    {"release tag", "the tagged image", release.TagReport{}},
	"sandbox-status": {"sandbox status", "sandboxes; `sandbox up` prints one", []sandbox.Status{}},
	"status":         {"status", "how a release stands", &state.Status{}},
	"test":           {"test", "the results of the tests of a release", &releasetest.Report{}},
	"ui":             {"ui", "the address of the pages, or the files that were written", ui.Report{}},
	"uninstall": {"uninstall NAME", "deleted, kept and remaining objects",
		&uninstall.Report{}},
	"updates-build": {"updates build", "the files with update graphs, and which have changed", updates.BuildReport{}},
	"updates-graph": {"updates graph", "the graph of a channel, as clients of an update service get it",
		&graphdata.Graph{}},
	"updates-lint": {"updates lint", "findings in the folder of an update service", updates.LintReport{}},
	"version":      {"version", "the version of the program", core.VersionInfo{}},
	"wait":         {"wait", "the status of the release at the end", &state.Status{}},
	"why":          {"why OBJECT", "how objects stand, and why", []*why.Answer{}},
	"why-release":  {"why", "how releases stand as a whole", []*why.ReleaseAnswer{}},
	"graph-references": {"graph --references", "who refers to whom in a release",
		referrers.Report{}},
}

// TestJSONDocumentsHaveSchemas compares docs/schemas and the tables of docs/json.md with the types that are printed.
func TestJSONDocumentsHaveSchemas(t *testing.T) {
	const folder, page = "../../docs/schemas", "../../docs/json.md"
	var index, tables strings.Builder
	index.WriteString("| command | prints | schema |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(jsonDocuments)) {
		document := jsonDocuments[name]
		s := schemaOf(reflect.TypeOf(document.value), map[reflect.Type]bool{})
		s["$schema"], s["title"] = "http://json-schema.org/draft-07/schema#", "runlevel "+document.command+" -o json: "+
			document.content
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(s); err != nil {
			t.Fatal(err)
		}
		compareFile(t, filepath.Join(folder, name+".json"), text.String())
		fmt.Fprintf(&index, "| `runlevel %s` | [%s](#%s) | [%s.json](schemas/%[4]s.json) |\n", document.command,
			document.content, name, name)
		fmt.Fprintf(&tables, "\n### %s\n\n`runlevel %s`: %s.\n\n", name, document.command, document.content)
		tables.WriteString("| field | type |\n|---|---|\n" + strings.Join(rowsOf(s), ""))
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const marker = "<!-- What follows is written by \"make generate\". -->\n"
	head, _, found := strings.Cut(string(have), marker)
	if !found {
		t.Fatalf("%s has no line %q", page, marker)
	}
	compareFile(t, page, head+marker+"\n"+index.String()+"\n## Fields\n"+tables.String())
}

// compareFile compares a file with its wanted content. With -update, it writes the file.
func compareFile(t *testing.T, file, want string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" { // the flag of docs_test.go
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run make generate", err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s differs from the types: run make generate\n%s", file, diff)
	}
}

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	scalars       = map[reflect.Kind]string{
		reflect.Bool: "boolean", reflect.String: "string", reflect.Float64: "number",
		reflect.Int: "integer", reflect.Int32: "integer", reflect.Int64: "integer", reflect.Uint64: "integer",
	}
)

// schemaOf returns the JSON schema of a type, whose unknown fields are refused. A type within itself is any value.
func schemaOf(t reflect.Type, within map[reflect.Type]bool) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[metav1.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), within)
	case t.Implements(textMarshaler):
		return map[string]any{"type": "string"}
	case t.Kind() == reflect.Interface, t.Implements(jsonMarshaler), within[t]:
		return map[string]any{}
	case scalars[t.Kind()] != "":
		return map[string]any{"type": scalars[t.Kind()]}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": schemaOf(t.Elem(), within)}
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem(), within)}
	}
	within[t] = true
	defer delete(within, t)
	properties, required := map[string]any{}, []string{}
	addFields(t, within, properties, &required)
	return map[string]any{
		"type":                 "object",
		"properties":           properties,
		"required":             required,
		"additionalProperties": false,
	}
}

// addFields adds the fields of a struct, including those of embedded structs.
func addFields(t reflect.Type, within map[reflect.Type]bool, properties map[string]any, required *[]string) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous && name == "":
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			addFields(embedded, within, properties, required)
		case field.IsExported():
			if name == "" {
				name = field.Name
			}
			properties[name] = schemaOf(field.Type, within)
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				*required = append(*required, name)
			}
		}
	}
}

// rowsOf returns a row for each field of a schema, or of the objects in its list.
func rowsOf(schema map[string]any) []string {
	if items, isList := schema["items"].(map[string]any); isList {
		schema = items
	}
	properties := schema["properties"].(map[string]any)
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		kind := typeOf(properties[name].(map[string]any))
		if !slices.Contains(schema["required"].([]string), name) {
			kind += ", optional"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", name, kind))
	}
	return rows
}

// typeOf returns the type of a schema in words.
func typeOf(schema map[string]any) string {
	switch kind := schema["type"].(type) {
	case nil:
		return "any"
	case []string:
		if values, isMap := schema["additionalProperties"].(map[string]any); isMap {
			return "map of " + typeOf(values)
		}
		return "list of " + typeOf(schema["items"].(map[string]any))
	case string:
		if schema["format"] != nil {
			return "time"
		}
		return kind
	default:
		return fmt.Sprint(kind)
	}
}
