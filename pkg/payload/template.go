package payload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/runlevel/runlevel/internal/text/template"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// templateData are the fields for templates of manifests/.
type templateData struct {
	ReleaseImage   string
	ClusterProfile string
	Images         map[string]string
}

// templateFields are the fields of templateData, for messages.
const templateFields = ".ClusterProfile, .Images, .ReleaseImage"

// maxTemplate is the maximum size of a template in bytes. The parser of text/template calls itself
// for each nested action, and its stack must not overflow.
const maxTemplate = 1 << 20

// templateName is the name of a template in errors.
const templateName = "manifest"

// The errors of templates have no types: these expressions match their texts.
var (
	templateErrorPlace  = regexp.MustCompile(`^template: manifest:(\d+)(?::\d+)?: `)
	unknownTemplateName = regexp.MustCompile(
		`(?s)^<.*>: can't evaluate (field) (\S+) in type \S+$|^(function) "([^"]+)" not defined$`)
)

// A newerError is the error of a part that this program does not know or does not allow. A newer one may.
type newerError struct{ *yamltext.TextError }

func (e newerError) Unwrap() error { return e.TextError }

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
	trees, err := template.Parse(templateName, string(text))
	if err != nil {
		return nil, templateError(err)
	}
	if err := checkTemplate(trees, text); err != nil {
		return nil, err
	}
	out := &boundedBuffer{ctx: ctx}
	fields := template.Fields{
		"ReleaseImage": data.ReleaseImage, "ClusterProfile": data.ClusterProfile, "Images": data.Images,
	}
	if err := template.Execute(trees[templateName], out, fields); err != nil {
		return nil, templateError(err)
	}
	return out.Bytes(), nil
}

// A boundedBuffer fails if more is written than a file may have, or when the context has ended. A
// field may be longer than the action for it.
type boundedBuffer struct {
	bytes.Buffer
	ctx context.Context // context of the one call that fills the buffer
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.Len()+len(p) > maxFile {
		return 0, errors.New("the output exceeds the limit of 32 MiB")
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
	if unknown := unknownTemplateName.FindStringSubmatch(message); unknown != nil {
		known := templateFields
		if unknown[3] != "" {
			known = strings.Join(slices.Sorted(maps.Keys(templateFunctions)), ", ")
		}
		return newerError{&yamltext.TextError{Line: line, Message: fmt.Sprintf("its template can't be rendered: "+
			"unknown %s %s: this runlevel knows %s; a newer one may know it", unknown[1]+unknown[3],
			unknown[2]+unknown[4], known)}}
	}
	return &yamltext.TextError{Line: line, Message: "its template can't be rendered: " + message}
}

// templateFunctions are the functions that a template may call: they return one of their arguments or
// compare them, so that no text becomes longer.
var templateFunctions = map[string]bool{"and": true, "or": true, "not": true, "eq": true, "ne": true, "index": true}

// templateAdvice contains an alternative for each forbidden construct.
var templateAdvice = map[string]string{
	"a variable": "write the field in its place",
	"range":      "write each item out",
	"define":     "write its text where it is used",
	"template":   "write the text of the other template here",
	"print":      "write fields and text side by side, as in {{.ClusterProfile}}-text",
	"printf":     "write fields and text side by side, as in {{.ClusterProfile}}-text",
	"println":    "write fields and text side by side, as in {{.ClusterProfile}}-text",
	"len":        "compare with eq or ne",
}

// checkTemplate refuses a template that could loop, or multiply its own text: variables,
// range, templates that call each other, and functions such as printf. Other templates take time
// and memory in proportion to their size.
func checkTemplate(trees map[string]*parse.Tree, text []byte) error {
	if err := (templateChecker{text}).node(trees[templateName].Root); err != nil {
		return err
	}
	for name, other := range trees {
		if name != templateName {
			return templateChecker{text}.refuse(other.Root, "define")
		}
	}
	return nil
}

// A templateChecker walks the tree of a template.
type templateChecker struct{ text []byte }

// node returns an error for the first forbidden part below a node.
func (c templateChecker) node(node parse.Node) error {
	switch node := node.(type) {
	case *parse.TextNode, *parse.FieldNode, *parse.DotNode, *parse.StringNode, *parse.BoolNode, *parse.NumberNode,
		*parse.NilNode:
		return nil
	case *parse.ListNode:
		if node == nil { // an if without else
			return nil
		}
		return each(node.Nodes, c.node)
	case *parse.ActionNode:
		return c.node(node.Pipe)
	case *parse.IfNode:
		return each([]parse.Node{node.Pipe, node.List, node.ElseList}, c.node)
	case *parse.WithNode:
		return each([]parse.Node{node.Pipe, node.List, node.ElseList}, c.node)
	case *parse.PipeNode:
		if len(node.Decl) > 0 {
			return c.refuse(node, "a variable")
		}
		return each(node.Cmds, func(command *parse.CommandNode) error { return each(command.Args, c.node) })
	case *parse.VariableNode: // $ alone is the template's data
		if node.Ident[0] == "$" {
			return nil
		}
		return c.refuse(node, "a variable")
	case *parse.IdentifierNode:
		if templateFunctions[node.Ident] {
			return nil
		}
		return c.refuse(node, node.Ident)
	case *parse.RangeNode:
		return c.refuse(node, "range")
	case *parse.TemplateNode:
		return c.refuse(node, "template")
	case *parse.ChainNode:
		return c.refuse(node, "a field of an expression in brackets")
	default:
		return c.refuse(node, fmt.Sprintf("%.40q", node))
	}
}

// each calls a function with each item, and returns the first error.
func each[T any](items []T, call func(T) error) error {
	for _, item := range items {
		if err := call(item); err != nil {
			return err
		}
	}
	return nil
}

// refuse returns the error of a forbidden node.
func (c templateChecker) refuse(node parse.Node, construct string) error {
	message := "its template can't be rendered: " + construct + " is not allowed"
	if advice := templateAdvice[construct]; advice != "" {
		message += ": " + advice
	}
	return newerError{&yamltext.TextError{
		Line: yamltext.LineAt(c.text, int64(node.Position())),
		Message: fmt.Sprintf("%s (allowed are fields, texts, if, with, and the functions %s)", message,
			strings.Join(slices.Sorted(maps.Keys(templateFunctions)), ", ")),
	}}
}
