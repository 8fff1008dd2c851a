// Package template renders text/template's templates whose data are texts: those of release payloads, and of the names
// of machines. It has no variables, range, templates of templates, methods, or functions that escape.
//
// text/template calls methods by name. The linker then keeps every exported method of every type, so that a program
// becomes a third larger. The parser is that of text/template, and so are the texts of errors.
//
// Start with Parse, then Execute.
package template

import (
	"fmt"
	"io"
	"strings"
	"text/template/parse"
)

// Fields are the fields of the data of a template. A template with any other field was written for other data, while a
// missing key of a map is a missing value.
type Fields map[string]any

// Parse parses a text. The result has a tree for the text by name, and one for each template that the text defines.
func Parse(name, text string) (map[string]*parse.Tree, error) {
	known := map[string]any{}
	for name := range functions {
		known[name] = true
	}
	for name := range strings.FieldsSeq("call html js urlquery lt le gt ge") {
		known[name] = true
	}
	return parse.Parse(name, text, "", "", known)
}

// Execute renders a tree. The data are Fields or maps of texts, which may contain each other.
func Execute(tree *parse.Tree, out io.Writer, data any) error {
	return state{tree: tree, out: out, data: data}.walk(data, tree.Root)
}

// A state is that of one rendering.
type state struct {
	tree *parse.Tree
	out  io.Writer
	data any // value of $
}

// errorAt returns an error with the place of a node, as text/template words it.
func (s state) errorAt(node parse.Node, format string, arguments ...any) error {
	location, text := s.tree.ErrorContext(node)
	return fmt.Errorf("template: %s: executing %q at <%s>: %w", location, s.tree.Name, text,
		fmt.Errorf(format, arguments...))
}

// walk renders a node. The value dot is that of {{.}}.
func (s state) walk(dot any, node parse.Node) error {
	switch node := node.(type) {
	case *parse.TextNode:
		_, err := s.out.Write(node.Text)
		return err
	case *parse.ActionNode:
		value, err := s.pipe(dot, node.Pipe)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(s.out, value)
		return err
	case *parse.ListNode:
		for _, child := range node.Nodes {
			if err := s.walk(dot, child); err != nil {
				return err
			}
		}
		return nil
	case *parse.CommentNode:
		return nil
	case *parse.IfNode:
		return s.branch(dot, node.BranchNode)
	case *parse.WithNode:
		return s.branch(dot, node.BranchNode)
	default:
		return s.errorAt(node, "this construct is not supported")
	}
}

// branch renders an if or a with.
func (s state) branch(dot any, node parse.BranchNode) error {
	value, err := s.pipe(dot, node.Pipe)
	if err != nil {
		return err
	}
	if isTrue(value) {
		if node.NodeType == parse.NodeWith {
			dot = value
		}
		return s.walk(dot, node.List)
	}
	if node.ElseList == nil {
		return nil
	}
	return s.walk(dot, node.ElseList)
}

// pipe evaluates commands, each of which gets the value of the one before as its last argument.
func (s state) pipe(dot any, pipe *parse.PipeNode) (any, error) {
	if len(pipe.Decl) > 0 {
		return nil, s.errorAt(pipe, "variables are not supported")
	}
	var values []any
	for _, command := range pipe.Cmds {
		value, err := s.command(dot, command, values)
		if err != nil {
			return nil, err
		}
		values = []any{value}
	}
	return values[0], nil
}

// command evaluates a command: the call of a function, or one operand.
func (s state) command(dot any, command *parse.CommandNode, piped []any) (any, error) {
	first := command.Args[0]
	if name, isCall := first.(*parse.IdentifierNode); isCall {
		return s.call(dot, command, name.Ident, command.Args[1:], piped)
	}
	if len(command.Args) > 1 || len(piped) > 0 {
		return nil, s.errorAt(first, "can't give argument to non-function %s", first)
	}
	return s.operand(dot, first)
}

// operand evaluates an argument of a function, or a command without arguments.
func (s state) operand(dot any, node parse.Node) (any, error) {
	switch node := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return s.fields(dot, node, node.Ident)
	case *parse.VariableNode:
		return s.fields(s.data, node, node.Ident[1:])
	case *parse.ChainNode:
		value, err := s.operand(dot, node.Node)
		if err != nil {
			return nil, err
		}
		return s.fields(value, node, node.Field)
	case *parse.PipeNode:
		return s.pipe(dot, node)
	case *parse.IdentifierNode:
		return s.call(dot, node, node.Ident, nil, nil)
	case *parse.BoolNode:
		return node.True, nil
	case *parse.StringNode:
		return node.Text, nil
	case *parse.NumberNode:
		if node.IsInt && !strings.Contains(node.Text, ".") {
			return int(node.Int64), nil
		}
		if node.IsFloat {
			return node.Float64, nil
		}
	case *parse.NilNode:
		return nil, s.errorAt(node, "nil is not a command")
	}
	return nil, s.errorAt(node, "can't evaluate %s", node)
}

// fields follows a path of fields.
func (s state) fields(value any, node parse.Node, names []string) (any, error) {
	for _, name := range names {
		var found bool
		switch fields := value.(type) {
		case map[string]string:
			value, found = fields[name]
		case map[string]any:
			value, found = fields[name]
		case Fields:
			if value, found = fields[name]; !found {
				return nil, s.errorAt(node, "can't evaluate field %s in type %T", name, fields)
			}
		default:
			return nil, s.errorAt(node, "can't evaluate field %s in type %T", name, value)
		}
		if !found {
			return nil, s.errorAt(node, "map has no entry for key %q", name)
		}
	}
	return value, nil
}

// call calls a function. The functions and and or evaluate arguments until one decides.
func (s state) call(dot any, command parse.Node, name string, operands []parse.Node, piped []any) (any, error) {
	function, isKnown := functions[name]
	if !isKnown {
		return nil, s.errorAt(command, "function %s is not supported", name)
	}
	if err := function.check(name, len(operands)+len(piped)); err != nil {
		return nil, s.errorAt(command, "%w", err)
	}
	var arguments []any
	for _, operand := range operands {
		value, err := s.operand(dot, operand)
		if err != nil || name == "and" && !isTrue(value) || name == "or" && isTrue(value) {
			return value, err
		}
		arguments = append(arguments, value)
	}
	value, err := function.call(append(arguments, piped...))
	if err != nil {
		return nil, s.errorAt(command, "error calling %s: %w", name, err)
	}
	return value, nil
}
