package runtimehook

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	jsonutil "k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// A change is the current and the desired state of an object, and the patch of the changes that an extension can make.
type change struct {
	field            string // field of the request
	current, desired any
	patch            hooksv1.Patch
	path             []string // path of the compared fields: the spec, or the spec in a template
	// readMachine returns the spec of a Machine in the object, if it has one: fields that are not compared reach
	// Machines without an update.
	readMachine func(object []byte) (clusterv1.MachineSpec, error)
}

// uncoveredPaths returns the paths at which a current object differs from the desired one after the extension's patch.
func (c change) uncoveredPaths() ([]string, error) {
	current, desired, err := c.bytes()
	if err != nil {
		return nil, err
	}
	switch isCurrent, isDesired := string(current) != "null", string(desired) != "null"; {
	case !isCurrent && !isDesired:
		return nil, nil
	case isCurrent != isDesired:
		return []string{c.field}, nil
	}
	patched, err := applyPatch(current, c.patch)
	if err != nil {
		return nil, fmt.Errorf("%sPatch: %w", c.field, err)
	}
	after, err := c.comparedFields(patched)
	if err != nil {
		return nil, fmt.Errorf("%sPatch produces an invalid object: %s", c.field, shorten(err.Error()))
	}
	wanted, err := c.comparedFields(desired)
	if err != nil {
		return nil, fmt.Errorf("read the desired %s: %w", c.field, err)
	}
	paths := differences(strings.Join(c.path, "."), after, wanted)
	for i := range paths {
		paths[i] = c.field + " " + shorten(paths[i])
	}
	return paths, nil
}

// bytes returns both objects as JSON: null for a missing one.
func (c change) bytes() (current, desired []byte, err error) {
	if current, err = json.Marshal(c.current); err != nil {
		return nil, nil, fmt.Errorf("write the current %s: %w", c.field, err)
	}
	if desired, err = json.Marshal(c.desired); err != nil {
		return nil, nil, fmt.Errorf("write the desired %s: %w", c.field, err)
	}
	return current, desired, nil
}

// comparedFields returns the fields of an object that are compared.
func (c change) comparedFields(object []byte) (any, error) {
	if c.readMachine != nil {
		spec, err := c.readMachine(object)
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(comparedOfMachine(&spec))
	}
	var fields map[string]any
	if err := jsonutil.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	found, _, err := unstructured.NestedFieldNoCopy(fields, c.path...)
	return found, err
}

// comparedOfMachine returns the fields of a Machine's spec that are compared. The objects that it refers to are
// compared separately; omitted fields are updated on existing Machines, or never change. A data secret that a user
// names is compared: it can't be changed in place unless the extension covers it. A data secret of a bootstrap config
// is not.
func comparedOfMachine(spec *clusterv1.MachineSpec) *clusterv1.MachineSpec {
	compared := &clusterv1.MachineSpec{Version: spec.Version, FailureDomain: spec.FailureDomain}
	if !spec.Bootstrap.ConfigRef.IsDefined() {
		compared.Bootstrap.DataSecretName = spec.Bootstrap.DataSecretName
	}
	return compared
}

func machineOf(object []byte) (clusterv1.MachineSpec, error) {
	var machine clusterv1.Machine
	err := json.Unmarshal(object, &machine)
	return machine.Spec, err
}

func machineOfSet(object []byte) (clusterv1.MachineSpec, error) {
	var set clusterv1.MachineSet
	err := json.Unmarshal(object, &set)
	return set.Spec.Template.Spec, err
}

// differences returns the paths at which two values of JSON differ, in their order. A null field counts as missing.
func differences(path string, after, wanted any) []string {
	if before, ok := after.(map[string]any); ok {
		if wanted, ok := wanted.(map[string]any); ok {
			return differencesOfFields(path, before, wanted)
		}
	}
	if before, ok := after.([]any); ok {
		if wanted, ok := wanted.([]any); ok && len(before) == len(wanted) {
			var found []string
			for i := range wanted {
				found = append(found, differences(fmt.Sprintf("%s[%d]", path, i), before[i], wanted[i])...)
			}
			return found
		}
	}
	if equality.Semantic.DeepEqual(after, wanted) {
		return nil
	}
	return []string{path}
}

func differencesOfFields(path string, after, wanted map[string]any) []string {
	names := slices.Sorted(maps.Keys(after))
	for name := range wanted {
		if _, isKnown := after[name]; !isKnown {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var found []string
	for _, name := range names {
		found = append(found, differences(path+"."+name, after[name], wanted[name])...)
	}
	return found
}

const (
	maxOperations = 10_000  // operations of a JSONPatch, as many as the API server applies
	maxCopied     = 3 << 20 // bytes that operations of a JSONPatch copy
)

// applyPatch returns an object, as JSON, with a patch of an extension applied to it. The caller ignores changes outside
// of the spec.
func applyPatch(object []byte, patch hooksv1.Patch) (patched []byte, err error) {
	if !patch.IsDefined() {
		return object, nil
	}
	defer func() { // the library panics for some patches
		if problem := recover(); problem != nil {
			err = fmt.Errorf("it can't be applied: %v", problem)
		}
	}()
	switch patch.PatchType {
	case hooksv1.JSONPatchType:
		return applyOperations(object, patch.Patch)
	case hooksv1.JSONMergePatchType:
		return mergePatch(object, patch.Patch)
	case "":
		return nil, errors.New("it has no patchType: write JSONPatch or JSONMergePatch")
	default:
		return nil, fmt.Errorf("its patchType is %q, and must be JSONPatch or JSONMergePatch",
			shorten(string(patch.PatchType)))
	}
}

func applyOperations(object, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("it is not a valid JSONPatch: %s", shorten(err.Error()))
	}
	if len(operations) > maxOperations {
		return nil, fmt.Errorf("it has %d operations, and %d is the most", len(operations), maxOperations)
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = maxCopied
	patched, err := operations.ApplyWithOptions(object, options)
	if err != nil {
		return nil, fmt.Errorf("it can't be applied: %s", shorten(err.Error()))
	}
	return patched, nil
}

func mergePatch(object, patch []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(patch, &fields); err != nil || fields == nil {
		return nil, errors.New("it is not a JSON object, as JSONMergePatch requires")
	}
	patched, err := jsonpatch.MergePatch(object, patch)
	if err != nil {
		return nil, fmt.Errorf("it can't be applied: %s", shorten(err.Error()))
	}
	return patched, nil
}
