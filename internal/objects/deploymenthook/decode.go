package deploymenthook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// A decoder reads the text of an annotation strictly, as the API server reads an object, and collects problems with
// their places.
type decoder struct {
	places    *yamltext.FieldPlaces
	lines     int // lines of the text: YAML may count more
	problems  []HookProblem
	isRefused bool
}

// decode returns the hooks of a text; nil if the text has a problem.
func (d *decoder) decode(written string) *Hooks {
	root, wrong := parseText([]byte(written))
	if wrong != nil {
		d.invalidText(wrong)
		return nil
	}
	d.places, d.lines = yamltext.NewPlaces(root), 1+strings.Count(written, "\n")
	encoded, err := kyaml.YAMLToJSON([]byte(written))
	var value any
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(encoded, &value)
	}
	if err != nil {
		d.invalidText(explain(err, []byte(written)))
		return nil
	}
	if d.quantities(value, nil, ""); d.isRefused {
		return nil
	}
	hooks := &Hooks{}
	unknown, err := kjson.UnmarshalStrict(encoded, hooks)
	if err != nil {
		d.add(RuleInvalid, typeError(encoded, err))
	}
	for _, err := range unknown {
		var fieldError kjson.FieldError
		if errors.As(err, &fieldError) {
			d.add(RuleInvalid, unknownField(fieldError.FieldPath()))
		}
	}
	if d.isRefused {
		return nil
	}
	return hooks
}

// parseText returns the nodes of a text with one document, without aliases and tags: a reader would misunderstand them.
// Its errors do not quote the text, which may be secret.
func parseText(text []byte) (*yaml.Node, *yamltext.TextError) {
	if offset := yamltext.OddBreak(text); offset >= 0 { // one library reads a comment, the other a value
		return nil, &yamltext.TextError{
			Line: yamltext.LineAt(text, int64(offset)),
			Message: "this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in hooks: write them as " +
				"\\u2028 within double quotes",
		}
	}
	root, err := yamltext.Parse(text)
	var more *yamltext.TextError
	switch {
	case errors.As(err, &more):
		return nil, &yamltext.TextError{
			Line:    more.Line,
			Message: "it has more than one document: write pre, mid and post into one",
		}
	case err != nil:
		return nil, explain(err, text)
	case root == nil:
		return nil, nil
	}
	if wrong := findUnsupportedNode(root); wrong != nil {
		return nil, wrong
	}
	if twice := yamltext.RepeatedKeys(root); len(twice) > 0 {
		return nil, &yamltext.TextError{
			Line:    twice[0].Line,
			Column:  twice[0].Column,
			Message: fmt.Sprintf("the key %.60q occurs twice in the same mapping: keep one of them", twice[0].Key),
		}
	}
	return root, nil
}

// explain returns an error of a YAML library with a line of the text.
func explain(err error, text []byte) *yamltext.TextError {
	wrong := yamltext.Explain(err, text)
	wrong.Line = min(wrong.Line, 1+bytes.Count(bytes.TrimRight(text, " \n"), []byte("\n")))
	return wrong
}

// findUnsupportedNode returns an error for the first anchor, alias or tag; nil if there is none.
func findUnsupportedNode(node *yaml.Node) *yamltext.TextError {
	if node.Kind == yaml.AliasNode || node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 {
		return &yamltext.TextError{
			Line:    node.Line,
			Column:  node.Column,
			Message: `anchors, aliases and tags are not allowed in hooks: write out what they stand for, and put a text that begins with "&", "*" or "!" in quotes`,
		}
	}
	for _, child := range node.Content {
		if wrong := findUnsupportedNode(child); wrong != nil {
			return wrong
		}
	}
	return nil
}

// invalidText adds a problem of the text as a whole.
func (d *decoder) invalidText(wrong *yamltext.TextError) {
	d.isRefused = true
	d.problems = []HookProblem{{
		Rule:    RuleInvalid,
		Path:    annotationPath(Annotation),
		Line:    max(wrong.Line, 1),
		Column:  max(wrong.Column, 1),
		Message: wrong.Message,
	}}
}

// fieldStep matches one step of a field such as pre.execNewPod.env[1].name.
var fieldStep = regexp.MustCompile(`\[[^\]]*\]|[^.\[]+`)

// add adds a problem of a field, at the place of the field.
func (d *decoder) add(rule HookRule, wrong *field.Error) {
	path := fieldStep.FindAllString(wrong.Field, -1)
	for i := range path {
		path[i] = strings.Trim(path[i], "[]")
	}
	line, column := d.places.At(path...)
	message := wrong.Error()
	if wrong.Field == "" {
		message = wrong.ErrorBody()
	}
	problem := HookProblem{
		Rule:      rule,
		Path:      annotationPath(Annotation),
		Line:      min(line, d.lines),
		Column:    column,
		Message:   printable.Line(message),
		IsUnknown: wrong.Type == field.ErrorTypeNotSupported || strings.HasPrefix(wrong.Detail, unknownFieldDetail),
	}
	isFirstError := !problem.IsWarning() && !d.isRefused // an error is added after any number of warnings
	d.isRefused = d.isRefused || isFirstError
	if len(d.problems) < maxProblems || isFirstError {
		d.problems = append(d.problems, problem)
	}
}

// wantedTypes have the advice for the types of fields.
var wantedTypes = map[reflect.Kind]string{
	reflect.String: "a string: write it in quotes", reflect.Slice: "a list", reflect.Bool: "true or false",
	reflect.Int32: "a whole number", reflect.Int64: "a whole number", reflect.Struct: "a mapping",
	reflect.Map: "a mapping",
}

// typeError returns the problem of a value that does not have the type of its field.
func typeError(encoded []byte, err error) *field.Error {
	wrong := &field.Error{Type: field.ErrorTypeInvalid, BadValue: field.OmitValueType{}, Detail: err.Error()}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		if path := pathAt(json.NewDecoder(bytes.NewReader(encoded)), wrongType.Offset, nil); path != nil {
			wrong.Field = path.String()
		}
		wanted := wantedTypes[wrongType.Type.Kind()]
		if known := fieldsOf[lastName(wrong.Field)]; wrongType.Type.Kind() == reflect.Struct && known != "" {
			wanted += " of " + known
		} else if wrongType.Type == reflect.TypeFor[[]string]() {
			wanted = `a list with an item for each word, such as [rake, "db:migrate"], or [sh, -c, "…"] for a line of a shell`
		}
		wrong.Detail = fmt.Sprintf("it is of type %s, and must be %s", wrongType.Value, wanted)
	}
	return wrong
}

// pathAt returns the field whose value ends at an offset of a JSON text, or is opened there; nil for the whole text.
func pathAt(text *json.Decoder, offset int64, path *field.Path) *field.Path {
	token, err := text.Token()
	if err != nil || text.InputOffset() >= offset {
		return path
	}
	for i := 0; token == json.Delim('{') || token == json.Delim('['); i++ {
		if !text.More() {
			_, _ = text.Token()
			return nil
		}
		p := path.Index(i)
		if token == json.Delim('{') {
			key, _ := text.Token()
			p = path.Child(key.(string))
		}
		if found := pathAt(text, offset, p); found != nil {
			return found
		}
	}
	return nil
}

// fieldsOf are the fields of hooks, by the last step of the path to them.
var fieldsOf = map[string]string{
	"": "pre, mid, post", "pre": hookFields, "mid": hookFields, "post": hookFields,
	"execNewPod": "containerName, command, args, env, volumes", "env": "name, value, valueFrom",
	"resources": "limits, requests",
}

const hookFields = "failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep"

// lastName returns the last name in a field, without indexes.
func lastName(field string) string {
	field, _, _ = strings.Cut(field[strings.LastIndexByte(field, '.')+1:], "[")
	return field
}

// unknownFieldDetail begins the detail of an unknown field.
const unknownFieldDetail = "unknown field: "

// unknownField returns the problem of a field that does not exist.
func unknownField(name string) *field.Error {
	advice := "is it misspelt?"
	if known := fieldsOf[lastName(name[:max(strings.LastIndexByte(name, '.'), 0)])]; known != "" {
		advice = "write one of " + known
	}
	return &field.Error{Type: field.ErrorTypeForbidden, Field: name, Detail: unknownFieldDetail + advice}
}

// quantities checks the quantities in a value before they are decoded, because their decoder does not name the field.
// Name is the last name in the path.
func (d *decoder) quantities(value any, path *field.Path, name string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if name == "limits" || name == "requests" {
				d.quantities(value[key], path.Key(key), quantity)
			} else {
				d.quantities(value[key], path.Child(key), key)
			}
		}
	case []any:
		for i, item := range value {
			d.quantities(item, path.Index(i), name)
		}
	case string, int64, float64:
		if name != quantity {
			return
		}
		written := fmt.Sprint(value)
		if parsed, err := resource.ParseQuantity(written); err != nil || parsed.Sign() < 0 {
			d.add(RuleInvalid, field.Invalid(path, short(written), "must be a quantity, such as 100m or 128Mi"))
		}
	}
}

// quantity is the name of the only field of a hook whose value is a quantity.
const quantity = "divisor"
