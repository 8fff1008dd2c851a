package template_test

import (
	"bytes"
	"strings"
	"testing"
	texttemplate "text/template"

	"github.com/runlevel/runlevel/internal/text/template"
)

type release struct {
	Image, Profile string
	Images         map[string]string
}

// TestResultsAreThoseOfTextTemplate renders templates by this package and by text/template.
func TestResultsAreThoseOfTextTemplate(t *testing.T) {
	t.Parallel()
	data := release{Image: "registry.example/a:1", Images: map[string]string{"api": "registry.example/api:2"}}
	fields := template.Fields{"Image": data.Image, "Profile": data.Profile, "Images": data.Images}
	for _, text := range []string{
		"plain", "", `{{.Image}} {{$.Image}} {{"text"}} {{1}} {{1.5}} {{true}} {{.Images}}`,
		`{{/* why */}}a {{- .Image -}} b {{- "{{x}}" }}`,
		`{{if .Image}}a{{else}}b{{end}}{{if .Profile}}a{{else if .Image}}b{{else}}c{{end}}{{if .Profile}}a{{end}}`,
		`{{with .Images}}{{.api}} {{$.Image}}{{end}}{{with .Profile}}a{{else}}b{{end}}{{with .Profile}}a{{end}}`,
		`{{with index .Images "api"}}{{.}}{{end}}{{index .Images "none"}}{{(index .Images "none") | not}}`,
		`{{.Image | eq "x"}} {{eq .Image "a" "registry.example/a:1"}} {{ne 1 2}} {{not 0}} {{eq true false}}`,
		`{{and .Image .Profile "x"}}|{{or .Profile "default"}}|{{or .Profile 0}}|{{and 1 2}}|{{"a" | or .Profile}}`,
		`{{and .Profile .Images.none}}{{or .Image .Images.none}}`,
		`{{len .Image}} {{len .Images}} {{slice .Image 2 5}} {{slice .Image 2}} {{slice .Image}}`,
		`{{print .Image 1 2 "x"}} {{printf "%s-%05d" .Image 7}} {{println 1}}`,
		`{{(printf "%q" .Image)}}`,
		`{{.None}}`, `{{.Image.x}}`, `{{.Images.none}}`, `{{(index .Images "api").x}}`, `{{$.None}}`,
		`a{{"\n"}}
{{.Images.none}}`, `{{index .Images "none" "x"}}`,
		`{{index .Image "x" | not}}`, `{{not}}`, `{{not 1 2}}`, `{{ne 1}}`, `{{index}}`, `{{and}}`,
		`{{eq 1}}`, `{{eq 1 "a"}}`, `{{eq .Images .Images}}`, `{{eq 1 1.0}}`,
		`{{slice .Image 5 2}}`, `{{slice .Image 100}}`, `{{slice .Image 1 2 3}}`, `{{slice 1}}`, `{{len 1}}`,
		`{{.Image "x"}}`, `{{"x" | .Image}}`, `{{1 2}}`, `{{printf 1}}`,
		`{{if}}`, `{{none}}`, `{{.Image`, `{{end}}`, `{{$x}}`, `{{nil}}`, `{{range .Images}}`,
	} {
		got, gotErr := render(text, fields)
		want, wantErr := renderByTextTemplate(text, data)
		if (gotErr == nil) != (wantErr == nil) || gotErr == nil && got != want {
			t.Errorf("%s: %q, %v, want %q, %v", text, got, gotErr, want, wantErr)
		}
	}
}

func TestOtherConstructsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{range .Images}}{{.}}{{end}}`:          "this construct is not supported",
		`{{with $x := .Image}}{{$x}}{{end}}`:     "variables are not supported",
		`{{$x := .Image}}`:                       "variables are not supported",
		`{{html "<"}}`:                           "function html is not supported",
		`{{gt 1 2}}`:                             "function gt is not supported",
		`{{define "x"}}a{{end}}{{template "x"}}`: "this construct is not supported",
	} {
		got, err := render(text, template.Fields{"Image": "a"})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %q, %v, want the error %q", text, got, err, want)
		}
	}
}

func render(text string, data any) (string, error) {
	trees, err := template.Parse("example", text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = template.Execute(trees["example"], &out, data)
	return out.String(), err
}

func renderByTextTemplate(text string, data any) (string, error) {
	parsed, err := texttemplate.New("example").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, data)
	return out.String(), err
}
