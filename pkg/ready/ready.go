// Package ready says when an object is ready. So far it reads the expressions with
// which manifests say so themselves, in the annotation runlevel.dev/ready: CEL over
// the object, with the functions that the API server has for it too.
//
// It asks no cluster, and waits for nothing.
//
// Validate is the call to start from.
package ready

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Annotation has an expression that is true when the object is ready, or None.
const Annotation = "runlevel.dev/ready"

// None says that nobody waits for the object.
const None = "none"

// base is the API server's own set of functions, with the object as "self".
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

// Validate says what is wrong with a value of the annotation, in one line.
func Validate(text string) error {
	switch {
	case text == None:
		return nil
	case strings.TrimSpace(text) == "":
		return errors.New(`it is empty: write a CEL expression such as self.status.phase == "Ready", or none`)
	}
	env, err := base()
	if err != nil {
		return err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		wrong, line := issues.Errors()[0], ""
		if wrong.Location.Line() > 1 {
			line = fmt.Sprintf("in line %d, ", wrong.Location.Line())
		}
		return fmt.Errorf("it is no valid CEL, %sat character %d: %s", line, wrong.Location.Column()+1, strings.ReplaceAll(wrong.Message, "\n", " "))
	}
	if kind := ast.OutputType(); kind != cel.BoolType && kind != cel.DynType {
		return fmt.Errorf("it is of type %s, and must be true or false", kind)
	}
	return nil
}
