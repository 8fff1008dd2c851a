package runtimehook

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

const (
	mostOperations = 10_000  // of a JSONPatch, as many as the API server applies
	mostCopied     = 3 << 20 // bytes that operations of a JSONPatch copy
)

// applyPatch returns an object, as JSON, with a patch of an extension applied to it. The caller ignores changes outside of
// the spec.
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
		return nil, fmt.Errorf("its patchType is %q, and has to be JSONPatch or JSONMergePatch", shown(string(patch.PatchType)))
	}
}

func applyOperations(object, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("it is no list of operations of a JSONPatch: %s", shown(err.Error()))
	}
	if len(operations) > mostOperations {
		return nil, fmt.Errorf("it has %d operations, and %d is the most", len(operations), mostOperations)
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = mostCopied
	patched, err := operations.ApplyWithOptions(object, options)
	if err != nil {
		return nil, fmt.Errorf("it can't be applied: %s", shown(err.Error()))
	}
	return patched, nil
}

func mergePatch(object, patch []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(patch, &fields); err != nil || fields == nil {
		return nil, errors.New("it is no JSON object, as a JSONMergePatch has to be")
	}
	patched, err := jsonpatch.MergePatch(object, patch)
	if err != nil {
		return nil, fmt.Errorf("it can't be applied: %s", shown(err.Error()))
	}
	return patched, nil
}
