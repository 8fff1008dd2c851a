package ready

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Annotation is the key of an expression that returns true for a ready object, or of None.
const Annotation = "runlevel.dev/ready"

// None is the value of the annotation for objects that are not waited for.
const None = "none"

// base contains the API server's own functions and cost limit, which is about a tenth of a
// second. The object is the variable "self".
var base = sync.OnceValues(func() (*cel.Env, error) {
	version := environment.DefaultCompatibilityVersion()
	set, err := environment.MustBaseEnvSet(version).Extend(environment.VersionedOptions{
		IntroducedVersion: version,
		EnvOptions:        []cel.EnvOption{cel.Variable("self", cel.DynType)},
	})
	if err != nil {
		return nil, err
	}
	return set.StoredExpressionsEnv(), nil
})

// programs is a cache of compiled expressions: an object is checked many times before it
// is ready.
var programs = lru.New(256)

// Validate returns the problem of a value of the annotation, in one line.
func Validate(text string) error {
	if text == None {
		return nil
	}
	_, err := compile(text)
	return err
}

// compile compiles an expression.
func compile(text string) (cel.Program, error) {
	if made, isKnown := programs.Get(text); isKnown {
		return made.(cel.Program), nil
	}
	if strings.TrimSpace(text) == "" {
		return nil, errors.New(`it is empty: write a CEL expression such as self.status.phase == "Ready", or none`)
	}
	env, err := base()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		wrong, line := issues.Errors()[0], ""
		if wrong.Location.Line() > 1 {
			line = fmt.Sprintf("in line %d, ", wrong.Location.Line())
		}
		return nil, fmt.Errorf("it is not valid CEL, %sat character %d: %s", line, wrong.Location.Column()+1,
			strings.ReplaceAll(wrong.Message, "\n", " "))
	}
	if kind := ast.OutputType(); kind != cel.BoolType && kind != cel.DynType {
		return nil, fmt.Errorf("it is of type %s, and must be true or false", kind)
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, fmt.Errorf("it can't be evaluated: %s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	programs.Add(text, program)
	return program, nil
}

// checkExpression checks an object by the expression of its annotation. A missing field
// is not a failure: most of a status comes later.
func checkExpression(object *unstructured.Unstructured, text string) Verdict {
	program, err := compile(text)
	if err != nil {
		return failed("%s can't be used: %v", Annotation, err)
	}
	if liveObject(object.Object).isBehindGeneration() {
		return waiting(notSeen)
	}
	result, _, err := program.Eval(map[string]any{"self": object.Object})
	if err != nil {
		return waiting("%s %s", shown(text), evaluationFailure(object, err))
	}
	switch result.Value() {
	case true:
		return ready()
	case false:
		return waiting("%s is not true yet", shown(text))
	default:
		return waiting("%s is of type %s, and must be true or false", shown(text), result.Type().TypeName())
	}
}

// evaluationFailure returns the error of an expression that is neither true nor false. The error
// of a Secret is left out, because it may quote values.
func evaluationFailure(object *unstructured.Unstructured, err error) string {
	why := ": " + err.Error()
	if object.GetKind() == "Secret" {
		why = ""
	}
	switch {
	case strings.Contains(err.Error(), "no such key"):
		return "is not true yet" + why
	case strings.Contains(err.Error(), "cost limit exceeded"):
		return "can't be evaluated: it would take too long"
	default:
		return "can't be evaluated" + why
	}
}

// shown returns an expression in one line, shortened if it is long.
func shown(text string) string {
	const enough = 201
	return printable.Shorten(strings.Join(strings.Fields(text), " "), enough)
}
