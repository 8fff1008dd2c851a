package main

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// awaitField waits until a field of an object has a value: await-field KIND KEY FIELD VALUE
func awaitField(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, args, func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		value, found, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(args[2], ".")...)
		return found && fmt.Sprint(value) == args[3]
	})
}
