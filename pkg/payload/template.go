package payload

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"text/template"
)

// templateData is what templates of manifests/ may use.
type templateData struct {
	ReleaseImage   string
	ClusterProfile string
	Images         map[string]string
}

var templateErrorPlace = regexp.MustCompile(`^template: manifest:(\d+)(?::\d+)?: `)

// renderTemplate renders a text. One that can't be rendered refuses the whole
// payload: to go on without its objects would drop them from the release.
func renderTemplate(text []byte, data templateData) ([]byte, error) {
	if !bytes.Contains(text, []byte("{{")) {
		return text, nil
	}
	parsed, err := template.New("manifest").Parse(string(text))
	if err != nil {
		return nil, templateError(err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, templateError(err)
	}
	return out.Bytes(), nil
}

func templateError(err error) error {
	message := err.Error()
	found := templateErrorPlace.FindStringSubmatch(message)
	if found == nil {
		return &errSyntax{message: "its template can't be rendered: " + message}
	}
	line, _ := strconv.Atoi(found[1])
	message = strings.TrimPrefix(message, found[0])
	message = strings.TrimPrefix(message, `executing "manifest" at `)
	return &errSyntax{line: line, message: "its template can't be rendered: " + message}
}
