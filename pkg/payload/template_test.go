package payload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

// rendered parses a release with one template, whose line 7 has the given text.
func rendered(t *testing.T, template string) (*payload.Payload, []payload.Problem) {
	t.Helper()
	return parse(t, release(t, map[string]string{
		"manifests/a.yaml": configMap("a", `value: '`+template+`'`), "release-manifests/b.yaml": configMap("b"),
	}), payload.Options{ReleaseImage: "registry.example/release:1", Filter: payload.Filter{}})
}

func TestATemplateMayChooseAndCompare(t *testing.T) {
	for template, want := range map[string]string{
		`{{.ReleaseImage}}{{.ClusterProfile}}`:                                          "registry.example/release:1",
		`{{if eq .ClusterProfile ""}}none{{else if .ReleaseImage}}some{{else}}x{{end}}`: "none",
		`{{if and (ne .ReleaseImage "x") (not .ClusterProfile)}}yes{{end}}`:             "yes",
		`{{or .ClusterProfile "default"}}`:                                              "default",
		`{{index .Images "api"}} {{.Images.api}}`:                                       "registry.example/team/api:v2 registry.example/team/api:v2",
		`{{with index .Images "api"}}{{.}} of {{$.ReleaseImage}}{{end}}`:                "registry.example/team/api:v2 of registry.example/release:1",
		`{{/* why */}}a {{- "{{ $labels.name }}" -}} b`:                                 "a{{ $labels.name }}b",
		`{{.ReleaseImage | eq "x"}}`:                                                    "false",
	} {
		p, problems := rendered(t, template)
		if len(problems) > 0 {
			t.Errorf("%s: %v", template, lines(problems))
			continue
		}
		if got := p.Manifests[0].Object().GetAnnotations()["value"]; got != want {
			t.Errorf("%s became %q, want %q", template, got, want)
		}
	}
}

func TestATemplateMayNotLoopOrGrow(t *testing.T) {
	const side = "write fields and text side by side, as in {{.ClusterProfile}}-text"
	for template, want := range map[string]string{
		`{{ $x := "<" }}{{ range $i := 40 }}{{ $x = print $x $x $x }}{{ end }}{{ len $x }}`: "a variable is not allowed: write the field in its place",
		`{{if .ReleaseImage}}{{range .Images}}a{{end}}{{end}}`: "range is not allowed: " +
			"write each item out",
		`{{range $name, $image := .Images}}a{{end}}`:       "range is not allowed: write each item out",
		`{{with $x := .ReleaseImage}}{{$x}}{{end}}`:        "a variable is not allowed: write the field in its place",
		`{{if .ClusterProfile}}{{else}}{{$x := 1}}{{end}}`: "a variable is not allowed: write the field in its place",
		`{{define "x"}}a{{end}}`: "define is not allowed: " +
			"write its text where it is used",
		`{{define "x"}}a{{end}}{{template "x"}}`: "template is not allowed: write the text of the other template here",
		`{{block "x" .}}a{{end}}`:                "template is not allowed: write the text of the other template here",
		`{{print .ReleaseImage .ReleaseImage}}`: "print is not allowed: " +
			side,
		`{{printf "%100000000d" 1}}`: "printf is not allowed: " + side,
		`{{.ReleaseImage | printf "%q"}}`: "printf is not allowed: " +
			side,
		`{{eq (println "a") "b"}}`: "println is not allowed: " + side,
		`{{len .Images}}`: "len is not allowed: " +
			"compare with eq or ne",
		`{{html "<"}}`:           "html is not allowed",
		`{{js "<"}}`:             "js is not allowed",
		`{{urlquery "<"}}`:       "urlquery is not allowed",
		`{{slice "abc" 1}}`:      "slice is not allowed",
		`{{call .ReleaseImage}}`: "call is not allowed",
		`{{(index .Images "api").x}}`: "a field of an expression " +
			"in brackets is not allowed",
	} {
		_, problems := rendered(t, template)
		want = "manifests/a.yaml:7: its template can't be rendered: " + want +
			" (allowed are fields, texts, if, with, and the functions and, eq, index, ne, not, or)"
		if diff := cmp.Diff([]string{want}, lines(problems)); diff != "" {
			t.Errorf("%s:\n%s", template, diff)
		}
	}
}

func TestATemplateIsBounded(t *testing.T) {
	image := "registry.example/" + strings.Repeat("x", 400)
	for name, test := range map[string]struct{ text, want string }{
		"text": {"{{.ReleaseImage}}" + strings.Repeat("x", 1<<20),
			"its template has 1048593 bytes, and may have 1 MiB: put what needs no template into release-manifests/"},
		"nesting": {strings.Repeat("{{if .ReleaseImage}}", 37_000) + strings.Repeat("{{end}}", 37_000) + configMap("a"),
			""},
		"output": {strings.Repeat("{{$.Images}}", 80_000), "the output exceeds the limit of 32 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, release(t, map[string]string{
				"manifests/a.yaml": test.text, "release-manifests/b.yaml": configMap("b"),
				"release-manifests/image-references": fmt.Sprintf(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[{"name":"web","from":{"kind":"DockerImage","name":%q}}]}}`, image),
			}), payload.Options{ReleaseImage: "registry.example/release:1"})
			if got := strings.Join(lines(problems), "\n"); !strings.HasSuffix(got, test.want) ||
				(test.want == "") != (got == "") {
				t.Errorf("the problems are %q, want %q", got, test.want)
			}
		})
	}
}
