package payload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// templateData are the fields for templates of manifests/.
type templateData struct {
	ReleaseImage   string
	ClusterProfile string
	Images         map[string]string
}

// maxTemplate is how many bytes a template may have. The parser of text/template calls itself
// for each nested action, and its stack must not overflow.
const maxTemplate = 1 << 20

var templateErrorPlace = regexp.MustCompile(`^template: manifest:(\d+)(?::\d+)?: `)

// renderTemplate renders a text. If it fails, the whole payload is
// refused: otherwise the objects of the text would be dropped from the release.
func renderTemplate(ctx context.Context, text []byte, data templateData) ([]byte, error) {
	if !bytes.Contains(text, []byte("{{")) {
		return text, nil
	}
	if len(text) > maxTemplate {
		return nil,
			&yamltext.TextError{Message: fmt.Sprintf("its template has %d bytes, and may have 1 MiB: put what needs "+
				"no template into %s/", len(text), ReleaseFolder)}
	}
	parsed, err := template.New("manifest").Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, templateError(err)
	}
	if err := checkTemplate(parsed, text); err != nil {
		return nil, err
	}
	out := &boundedBuffer{ctx: ctx}
	if err := parsed.Execute(out, data); err != nil {
		return nil, templateError(err)
	}
	return out.Bytes(), nil
}

// A boundedBuffer fails if more is written than a file may have, or when the context has ended. A
// field may be longer than the action for it.
type boundedBuffer struct {
	bytes.Buffer
	ctx context.Context // of the one call that fills it
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.Len()+len(p) > maxFile {
		return 0, errors.New("it makes more than 32 MiB, which is the limit")
	}
	return b.Buffer.Write(p)
}

func templateError(err error) error {
	message := err.Error()
	found := templateErrorPlace.FindStringSubmatch(message)
	if found == nil {
		return &yamltext.TextError{Message: "its template can't be rendered: " + message}
	}
	line, _ := strconv.Atoi(found[1])
	message = strings.TrimPrefix(message, found[0])
	message = strings.TrimPrefix(message, `executing "manifest" at `)
	return &yamltext.TextError{Line: line, Message: "its template can't be rendered: " + message}
}
