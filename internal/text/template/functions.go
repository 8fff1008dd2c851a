package template

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
)

// A function can be called by templates.
type function struct {
	arguments  int
	isVariadic bool // more arguments may follow
	call       func(arguments []any) (any, error)
}

// functions are the functions of text/template, apart from call and those that escape.
var functions = map[string]function{
	"and":     {1, true, func(a []any) (any, error) { return a[len(a)-1], nil }}, // the earlier ones are true
	"or":      {1, true, func(a []any) (any, error) { return a[len(a)-1], nil }}, // the earlier ones are false
	"not":     {1, false, func(a []any) (any, error) { return !isTrue(a[0]), nil }},
	"eq":      {1, true, func(a []any) (any, error) { return equalsAny(a[0], a[1:]) }},
	"ne":      {2, false, func(a []any) (any, error) { equal, err := equalsAny(a[0], a[1:]); return !equal, err }},
	"index":   {1, true, index},
	"len":     {1, false, func(a []any) (any, error) { return length(a[0]) }},
	"slice":   {1, true, slice},
	"print":   {0, true, func(a []any) (any, error) { return fmt.Sprint(a...), nil }},
	"println": {0, true, func(a []any) (any, error) { return fmt.Sprintln(a...), nil }},
	"printf":  {1, true, printf},
}

// check returns an error if a call has another number of arguments.
func (f function) check(name string, count int) error {
	switch {
	case f.isVariadic && count < f.arguments:
		return fmt.Errorf("wrong number of args for %s: want at least %d got %d", name, f.arguments, count)
	case !f.isVariadic && count != f.arguments:
		return fmt.Errorf("wrong number of args for %s: want %d got %d", name, f.arguments, count)
	}
	return nil
}

// isTrue reports whether a value counts as true: neither false nor 0 nor empty.
func isTrue(value any) bool {
	reflected := reflect.ValueOf(value)
	if reflected.Kind() == reflect.Map {
		return reflected.Len() > 0
	}
	return reflected.IsValid() && !reflected.IsZero()
}

func equalsAny(value any, others []any) (bool, error) {
	if len(others) == 0 {
		return false, errors.New("missing argument for comparison")
	}
	for _, other := range others {
		switch {
		case reflect.TypeOf(value) != reflect.TypeOf(other):
			return false, fmt.Errorf("incompatible types for comparison: %T and %T", value, other)
		case !reflect.TypeOf(value).Comparable():
			return false, fmt.Errorf("non-comparable type %T", value)
		case value == other:
			return true, nil
		}
	}
	return false, nil
}

// index returns the value of a map under a key, "" if there is none.
func index(arguments []any) (any, error) {
	value := arguments[0]
	for _, key := range arguments[1:] {
		name, isText := key.(string)
		if !isText {
			return nil, fmt.Errorf("value has type %T; should be string", key)
		}
		switch fields := value.(type) {
		case map[string]string:
			value = fields[name]
		case map[string]any:
			value = cmp.Or(fields[name], any(""))
		default:
			return nil, fmt.Errorf("can't index item of type %T", value)
		}
	}
	return value, nil
}

func length(value any) (int, error) {
	switch value := value.(type) {
	case string:
		return len(value), nil
	case map[string]string:
		return len(value), nil
	}
	return 0, fmt.Errorf("len of type %T", value)
}

// slice returns a part of a text: from the first index to before the second.
func slice(arguments []any) (any, error) {
	text, isText := arguments[0].(string)
	if !isText {
		return nil, fmt.Errorf("can't slice item of type %T", arguments[0])
	}
	bounds := []any{0, len(text)}
	copy(bounds, arguments[1:])
	first, isFirst := bounds[0].(int)
	end, isEnd := bounds[1].(int)
	if !isFirst || !isEnd || len(arguments) > 3 || first < 0 || first > end || end > len(text) {
		return nil, fmt.Errorf("can't slice %d bytes by %v", len(text), arguments[1:])
	}
	return text[first:end], nil
}

func printf(arguments []any) (any, error) {
	format, isText := arguments[0].(string)
	if !isText {
		return nil, fmt.Errorf("wrong type for value; expected string; got %T", arguments[0])
	}
	return fmt.Sprintf(format, arguments[1:]...), nil
}
